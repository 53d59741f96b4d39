#pragma once
// The one type that does arithmetic on sizes that come from files. An overflow throws bad data, so a shape
// made to overflow can never pass for a small one.

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/error.hpp"

namespace diffuse {

class CheckedSize {
 public:
  constexpr CheckedSize(std::uint64_t value = 0) : value_(value) {}  // NOLINT(google-explicit-constructor)

  CheckedSize operator*(CheckedSize other) const {
    std::uint64_t result = 0;
    if (__builtin_mul_overflow(value_, other.value_, &result))
      throw_bad_data("a size in the input overflows 64 bits");
    return result;
  }
  CheckedSize operator+(CheckedSize other) const {
    std::uint64_t result = 0;
    if (__builtin_add_overflow(value_, other.value_, &result))
      throw_bad_data("a size in the input overflows 64 bits");
    return result;
  }
  CheckedSize operator-(CheckedSize other) const {
    if (other.value_ > value_) throw_bad_data("a size in the input is negative");
    return value_ - other.value_;
  }
  auto operator<=>(const CheckedSize&) const = default;
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_;
};

// The product of a shape's dimensions (1 for a scalar). Throws bad data on a negative dimension or an
// overflow.
inline std::uint64_t count_of(std::span<const std::int64_t> shape) {
  CheckedSize product = 1;
  for (const auto dim : shape) {
    if (dim < 0) throw_bad_data("a tensor's shape has a negative dimension");
    product = product * static_cast<std::uint64_t>(dim);
  }
  return product.value();
}

}  // namespace diffuse

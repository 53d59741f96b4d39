#pragma once
// A value of a `generate` object, and what to call it in an error.

#include <cmath>
#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "core/json.hpp"
#include "core/utf8.hpp"

namespace diffuse {

// Each reading throws bad data, one line that says what was expected and what stands there.
struct Given {
  const Json& value;
  std::string name;

  [[noreturn]] void wrong(const std::string& expected) const {
    throw_bad_data(name + " must be " + expected + ", not '" +
                   visible(utf8_prefix(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80)) +
                   "'");
  }
  std::int64_t integer(std::int64_t low, std::int64_t high) const {
    const bool fits =
        value.is_number_integer() &&
        !(value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high)) &&
        value.get<std::int64_t>() >= low && value.get<std::int64_t>() <= high;
    if (!fits) wrong("a whole number from " + std::to_string(low) + " to " + std::to_string(high));
    return value.get<std::int64_t>();
  }
  double number(double low, double high) const {
    return number(low, high, false, "a number from " + Json(low).dump() + " to " + Json(high).dump());
  }
  double number(double low, double high, bool above_low, const std::string& expected) const {
    if (!value.is_number()) wrong(expected);
    const auto number = value.get<double>();
    if (!std::isfinite(number) || number < low || number > high || (above_low && number == low))
      wrong(expected);
    return number;
  }
  bool boolean() const {
    if (!value.is_boolean()) wrong("true or false");
    return value.get<bool>();
  }
  std::string text() const {
    constexpr std::size_t kLongest = 1U << 16;
    if (!value.is_string() || value.get_ref<const std::string&>().size() > kLongest)
      wrong("a text of at most 65536 bytes");
    return value.get<std::string>();
  }
};

}  // namespace diffuse

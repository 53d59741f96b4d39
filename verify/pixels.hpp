#pragma once
// How far pixels are from one another: the one measure of pictures that may differ.

#include <cstddef>
#include <cstdint>
#include <span>

namespace diffuse {

// Pixels from 0 to 255.
struct PixelError {
  double mean = 0;  // of the absolute difference
  double largest = 0;
  double psnr = 0;           // 10 log10(255^2 / mean of the squares); infinite where nothing differs
  std::uint64_t pixels = 0;  // a colour each

  bool operator==(const PixelError&) const = default;
};

// Over several pictures.
class PixelDifference {
 public:
  // u8 colours of two pictures of one size.
  void add(std::span<const std::byte> left, std::span<const std::byte> right);
  PixelError error() const;

 private:
  double sum_ = 0;
  double squares_ = 0;
  double largest_ = 0;
  std::uint64_t pixels_ = 0;
};

// Of two pictures of one size.
PixelError pixel_error(std::span<const std::byte> left, std::span<const std::byte> right);

}  // namespace diffuse

#include "verify/pixels.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/error.hpp"

namespace diffuse {

void PixelDifference::add(std::span<const std::byte> left, std::span<const std::byte> right) {
  if (left.size() != right.size()) throw_internal("pictures of two sizes are held against each other");
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double off = std::abs(std::to_integer<int>(left[i]) - std::to_integer<int>(right[i]));
    sum_ += off;
    squares_ += off * off;
    largest_ = std::max(largest_, off);
  }
  pixels_ += left.size();
}

PixelError PixelDifference::error() const {
  const auto count = static_cast<double>(std::max<std::uint64_t>(pixels_, 1));
  return {.mean = sum_ / count,
          .largest = largest_,
          .psnr = squares_ > 0 ? 10 * std::log10(255.0 * 255.0 * count / squares_)
                               : std::numeric_limits<double>::infinity(),
          .pixels = pixels_};
}

PixelError pixel_error(std::span<const std::byte> left, std::span<const std::byte> right) {
  PixelDifference difference;
  difference.add(left, right);
  return difference.error();
}

}  // namespace diffuse

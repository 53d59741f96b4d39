#pragma once
// Pictures as bytes: what video and picture decoders make, job files hold and files are written from.

#include <cstdint>
#include <span>
#include <vector>

namespace diffuse {

// `count` pictures of one size, one behind the other.
struct Frames {
  std::int64_t count = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels;  // [count, height, width, 3]: red, green, blue

  std::size_t frame_bytes() const { return static_cast<std::size_t>(height * width * 3); }
  std::span<const std::uint8_t> frame(std::int64_t index) const {
    return std::span(pixels).subspan(static_cast<std::size_t>(index) * frame_bytes(), frame_bytes());
  }
};

}  // namespace diffuse

#pragma once
// The 256 colours that stand for all colours of some pictures: for files that hold no more.

#include <cstdint>
#include <span>
#include <vector>

#include "core/frames.hpp"

namespace diffuse::media {

class Palette {
 public:
  // Of all frames together. Where they have no more than 256 colours, exactly these; else by median cut
  // (Heckbert, 1982): the box of colours with the widest side is halved, by pixels, until there are 256, and
  // each becomes the mean of its pixels. The same frames give the same palette.
  explicit Palette(const Frames& frames);

  // [at most 256], 0xRRGGBB.
  const std::vector<std::uint32_t>& colours() const { return colours_; }
  // The nearest one to a colour of the frames: of equally near ones the first.
  std::uint8_t index_of(std::uint8_t red, std::uint8_t green, std::uint8_t blue) const;

 private:
  void find_nearest(std::span<const std::uint32_t> used);

  std::vector<std::uint32_t> colours_;
  std::uint32_t shift_ = 0;            // of a channel's bits that do not tell colours apart
  std::vector<std::uint8_t> nearest_;  // of each cell of colours
};

}  // namespace diffuse::media

#include "media/palette.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace diffuse::media {
namespace {

constexpr std::size_t kMost = 256;
// Colours that differ in their lowest two bits only share a cell: 6 bits a channel.
constexpr std::uint32_t kCoarse = 2;

using Colour = std::array<std::uint32_t, 3>;

// Pixels of one cell.
struct Cell {
  std::uint32_t number = 0;
  std::uint64_t pixels = 0;
  std::array<std::uint64_t, 3> sums = {};  // of their channels

  std::uint32_t mean(std::size_t channel) const {
    return static_cast<std::uint32_t>((sums[channel] + pixels / 2) / pixels);
  }
};

std::uint32_t cell_of(const Colour& colour, std::uint32_t shift) {
  const auto bits = 8 - shift;
  return (colour[0] >> shift) << (2 * bits) | (colour[1] >> shift) << bits | colour[2] >> shift;
}

// A run of cells.
struct Box {
  std::size_t begin = 0, end = 0;
  std::size_t channel = 0;  // whose side is the widest
  std::uint32_t side = 0;
};

Box box_of(std::span<const Cell> cells, std::size_t begin, std::size_t end) {
  Box box{.begin = begin, .end = end};
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const auto less = [&](const Cell& a, const Cell& b) { return a.mean(channel) < b.mean(channel); };
    const auto part = cells.subspan(begin, end - begin);
    const auto [least, most] = std::minmax_element(part.begin(), part.end(), less);
    const auto side = most->mean(channel) - least->mean(channel);
    if (side > box.side) box = {.begin = begin, .end = end, .channel = channel, .side = side};
  }
  return box;
}

// Where a box is cut: half of its pixels on each side, and a cell at least.
std::size_t middle_of(std::vector<Cell>& cells, const Box& box) {
  const auto at = [&](std::size_t i) { return cells.begin() + static_cast<std::ptrdiff_t>(i); };
  std::sort(at(box.begin), at(box.end), [&](const Cell& a, const Cell& b) {
    return std::pair(a.mean(box.channel), a.number) < std::pair(b.mean(box.channel), b.number);
  });
  std::uint64_t all = 0;
  for (auto i = box.begin; i < box.end; ++i) all += cells[i].pixels;
  std::uint64_t passed = cells[box.begin].pixels;
  auto middle = box.begin + 1;
  while (middle + 1 < box.end && passed + cells[middle].pixels <= all / 2) passed += cells[middle++].pixels;
  return middle;
}

std::vector<Cell> cells_of(const Frames& frames, std::uint32_t shift) {
  std::vector<Cell> all(std::size_t{1} << (3 * (8 - shift)));
  for (std::size_t i = 0; i + 2 < frames.pixels.size(); i += 3) {
    const Colour colour = {frames.pixels[i], frames.pixels[i + 1], frames.pixels[i + 2]};
    const auto number = cell_of(colour, shift);
    auto& cell = all[number];
    cell.number = number;
    ++cell.pixels;
    for (std::size_t channel = 0; channel < 3; ++channel) cell.sums[channel] += colour[channel];
  }
  std::erase_if(all, [](const Cell& cell) { return cell.pixels == 0; });
  return all;
}

std::uint32_t mean_of(std::span<const Cell> cells) {
  Cell sum;
  for (const auto& cell : cells) {
    sum.pixels += cell.pixels;
    for (std::size_t channel = 0; channel < 3; ++channel) sum.sums[channel] += cell.sums[channel];
  }
  return sum.mean(0) << 16 | sum.mean(1) << 8 | sum.mean(2);
}

// All colours of the frames, as far as they are no more than kMost; else one more.
std::vector<std::uint32_t> distinct(const Frames& frames) {
  std::vector<bool> seen(std::size_t{1} << 24);
  std::vector<std::uint32_t> colours;
  for (std::size_t i = 0; i + 2 < frames.pixels.size() && colours.size() <= kMost; i += 3) {
    const auto colour = cell_of({frames.pixels[i], frames.pixels[i + 1], frames.pixels[i + 2]}, 0);
    if (seen[colour]) continue;
    seen[colour] = true;
    colours.push_back(colour);
  }
  std::sort(colours.begin(), colours.end());
  return colours;
}

}  // namespace

Palette::Palette(const Frames& frames) {
  colours_ = distinct(frames);
  if (colours_.size() <= kMost) {
    find_nearest(colours_);
    return;
  }
  shift_ = kCoarse;
  auto cells = cells_of(frames, shift_);
  std::vector<Box> boxes = {box_of(cells, 0, cells.size())};
  while (boxes.size() < kMost) {
    const auto widest = std::max_element(boxes.begin(), boxes.end(),
                                         [](const Box& a, const Box& b) { return a.side < b.side; });
    if (widest->side == 0) break;
    const auto box = *widest;
    const auto middle = middle_of(cells, box);
    *widest = box_of(cells, box.begin, middle);
    boxes.push_back(box_of(cells, middle, box.end));
  }
  colours_.clear();
  for (const auto& box : boxes)
    colours_.push_back(mean_of(std::span(cells).subspan(box.begin, box.end - box.begin)));
  std::vector<std::uint32_t> used;
  for (const auto& cell : cells) used.push_back(cell.mean(0) << 16 | cell.mean(1) << 8 | cell.mean(2));
  find_nearest(used);
}

void Palette::find_nearest(std::span<const std::uint32_t> used) {
  const auto channels = [](std::uint32_t colour) {
    return std::array{static_cast<int>(colour >> 16), static_cast<int>(colour >> 8 & 0xff),
                      static_cast<int>(colour & 0xff)};
  };
  nearest_.resize(std::size_t{1} << (3 * (8 - shift_)));
  for (const auto colour : used) {
    const auto own = channels(colour);
    int least = std::numeric_limits<int>::max();
    std::size_t best = 0;
    for (std::size_t i = 0; i < colours_.size(); ++i) {
      const auto other = channels(colours_[i]);
      int distance = 0;
      for (std::size_t c = 0; c < 3; ++c) distance += (own[c] - other[c]) * (own[c] - other[c]);
      if (distance < least) {
        least = distance;
        best = i;
      }
    }
    nearest_[cell_of({colour >> 16, colour >> 8 & 0xff, colour & 0xff}, shift_)] =
        static_cast<std::uint8_t>(best);
  }
}

std::uint8_t Palette::index_of(std::uint8_t red, std::uint8_t green, std::uint8_t blue) const {
  return nearest_[cell_of({red, green, blue}, shift_)];
}

}  // namespace diffuse::media

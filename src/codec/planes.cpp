#include "codec/planes.hpp"

#include <algorithm>

#include "core/size.hpp"

namespace diffuse::codec {

void PlaneData::clear_sides() const {
  for (std::int64_t y = 0; y < height; ++y) {
    std::fill_n(at(y, -1), channels, 0.0F);
    std::fill_n(at(y, width), channels, 0.0F);
  }
}

void PlanePool::Return::operator()(PlaneData* plane) const {
  pool->free_[{plane->height, plane->width, plane->channels}].emplace_back(plane);
}

PlanePool::Plane PlanePool::take(std::int64_t height, std::int64_t width, std::int64_t channels) {
  auto& free = free_[{height, width, channels}];
  if (!free.empty()) {
    Plane plane(free.back().release(), Return{this});
    free.pop_back();
    return plane;
  }
  const std::int64_t shape[] = {height + 2, width + 2, channels, static_cast<std::int64_t>(sizeof(float))};
  const auto bytes = count_of(shape);
  auto made = std::make_unique<PlaneData>(
      PlaneData{backend_.allocate(static_cast<std::size_t>(bytes)), height, width, channels});
  bytes_ += bytes;
  most_bytes_ = std::max(most_bytes_, bytes_);
  return {made.release(), Return{this}};
}

void PlanePool::release() {
  for (const auto& [shape, planes] : free_) {
    for (const auto& plane : planes) bytes_ -= plane->memory.bytes();
  }
  free_.clear();
}

}  // namespace diffuse::codec

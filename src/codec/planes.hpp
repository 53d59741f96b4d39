#pragma once
// Frames of activations with a border of zeros, which convolutions see outside of the picture.

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "backend/backend.hpp"

namespace diffuse::codec {

// [(height + 2) * (width + 2), channels]: rows of the picture one behind the other. The border is zero.
struct PlaneData {
  Buffer memory;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;

  std::int64_t line() const { return width + 2; }
  std::int64_t places() const { return (height + 2) * line(); }
  // The place (y, x), from (-1, -1).
  float* at(std::int64_t y, std::int64_t x) const {
    return memory.floats() + ((y + 1) * line() + x + 1) * channels;
  }
  Rows all() const { return {memory.floats(), places(), channels, channels}; }
  Rows row(std::int64_t y) const { return {at(y, 0), width, channels, channels}; }
  // What was written to all places of the rows of the picture leaves the border's.
  void clear_sides() const;
};

// Hands out planes, and takes them back when they are let go: memory is asked for where none of the shape is
// free. Must outlive its planes.
class PlanePool {
 public:
  explicit PlanePool(Backend& backend) : backend_(backend) {}
  PlanePool(const PlanePool&) = delete;
  PlanePool& operator=(const PlanePool&) = delete;

  struct Return {
    PlanePool* pool = nullptr;
    void operator()(PlaneData* plane) const;
  };
  using Plane = std::unique_ptr<PlaneData, Return>;

  // With a border of zeros and anything inside. Throws bad data where its size overflows.
  Plane take(std::int64_t height, std::int64_t width, std::int64_t channels);

  // Gives back the memory of the planes that are not in use.
  void release();
  // Of all planes, in use and not, when they were most.
  std::uint64_t most_bytes() const { return most_bytes_; }

 private:
  using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  Backend& backend_;
  std::uint64_t bytes_ = 0;
  std::uint64_t most_bytes_ = 0;
  std::map<Shape, std::vector<std::unique_ptr<PlaneData>>> free_;
};
using Plane = PlanePool::Plane;

}  // namespace diffuse::codec

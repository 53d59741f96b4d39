#pragma once
// Copies between the host and a card through a ring of pinned memory: an upload's bytes are taken when the
// call returns, and nothing waits while the ring has room.

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/device.hpp"

namespace diffuse::cuda {

class Staging {
 public:
  // Bytes of one piece of a long copy; the ring holds several.
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

  explicit Staging(std::shared_ptr<Device> device);
  ~Staging();  // waits for what still reads the ring
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Queued on the device's stream.
  void upload(std::byte* to, std::span<const std::byte> from);
  // Waits for all that was queued before, and for the bytes.
  void download(std::span<std::byte> to, const std::byte* from);

 private:
  // A piece of the ring that a queued copy still reads.
  struct Piece {
    std::size_t begin = 0;
    std::size_t end = 0;
    Event read;
  };
  std::size_t take_room(std::size_t bytes);  // the place of as many free bytes; waits for older copies
  void mark(std::size_t begin, std::size_t end);

  std::shared_ptr<Device> device_;
  PinnedMemory ring_;
  std::size_t head_ = 0;
  std::deque<Piece> pieces_;  // oldest first
  std::vector<Event> spare_;
};

}  // namespace diffuse::cuda

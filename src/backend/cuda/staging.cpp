#include "backend/cuda/staging.hpp"

#include <algorithm>
#include <cstring>

namespace diffuse::cuda {
namespace {

constexpr std::size_t kRingBytes = 4 * Staging::kPieceBytes;
constexpr std::size_t kAlignment = 256;

}  // namespace

Staging::Staging(std::shared_ptr<Device> device) : device_(std::move(device)) {
  void* ring = nullptr;
  device_->check(cudaHostAlloc(&ring, kRingBytes, cudaHostAllocDefault), "cudaHostAlloc",
                 "taking pinned memory for copies");
  ring_ = PinnedMemory(ring, device_->releases());
}

Staging::~Staging() {
  device_->releases()->note(cudaStreamSynchronize(device_->stream()), "cudaStreamSynchronize");
}

std::size_t Staging::take_room(std::size_t bytes) {
  if (head_ + bytes > kRingBytes) head_ = 0;
  const std::size_t begin = head_;
  const std::size_t end = begin + bytes;
  const auto in_use = [&] {
    return std::any_of(pieces_.begin(), pieces_.end(),
                       [&](const Piece& piece) { return piece.begin < end && begin < piece.end; });
  };
  while (in_use()) {
    device_->check(cudaEventSynchronize(pieces_.front().read.get()), "cudaEventSynchronize",
                   "waiting for an earlier copy");
    spare_.push_back(std::move(pieces_.front().read));
    pieces_.pop_front();
  }
  head_ = (end + kAlignment - 1) / kAlignment * kAlignment;
  return begin;
}

void Staging::mark(std::size_t begin, std::size_t end) {
  if (spare_.empty()) {
    cudaEvent_t event = nullptr;
    device_->check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags",
                   "making an event for copies");
    spare_.emplace_back(event, device_->releases());
  }
  device_->check(cudaEventRecord(spare_.back().get(), device_->stream()), "cudaEventRecord",
                 "marking a copy to the card");
  pieces_.push_back({begin, end, std::move(spare_.back())});
  spare_.pop_back();
}

void Staging::upload(std::byte* to, std::span<const std::byte> from) {
  device_->require_running("copying to the card");
  while (!from.empty()) {
    const auto piece = from.first(std::min(from.size(), kPieceBytes));
    const auto begin = take_room(piece.size());
    auto* room = static_cast<std::byte*>(ring_.get()) + begin;
    std::memcpy(room, piece.data(), piece.size());
    device_->check(cudaMemcpyAsync(to, room, piece.size(), cudaMemcpyHostToDevice, device_->stream()),
                   "cudaMemcpyAsync", "copying to the card");
    mark(begin, begin + piece.size());
    to += piece.size();
    from = from.subspan(piece.size());
  }
}

void Staging::download(std::span<std::byte> to, const std::byte* from) {
  device_->require_running("copying from the card");
  while (!to.empty()) {
    const auto piece = to.first(std::min(to.size(), kPieceBytes));
    const auto begin = take_room(piece.size());
    auto* room = static_cast<std::byte*>(ring_.get()) + begin;
    device_->check(cudaMemcpyAsync(room, from, piece.size(), cudaMemcpyDeviceToHost, device_->stream()),
                   "cudaMemcpyAsync", "copying from the card");
    device_->wait("copying from the card");
    std::memcpy(piece.data(), room, piece.size());
    from += piece.size();
    to = to.subspan(piece.size());
  }
}

}  // namespace diffuse::cuda

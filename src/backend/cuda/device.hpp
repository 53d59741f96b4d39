#pragma once
// One card and the stream that all of a backend's operations are queued on. Memory that was allocated here
// keeps it alive.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.hpp"
#include "backend/cuda/check.hpp"
#include "backend/cuda/handles.hpp"

namespace diffuse::cuda {

class Device : public std::enable_shared_from_this<Device> {
 public:
  // Refuses, with a sentence that says what is missing, where there is no such card.
  static std::shared_ptr<Device> open(int index);

  int index() const { return index_; }
  // Where operations are queued: the card's stream, or while something is recorded the one that records.
  cudaStream_t stream() const { return recording_ != nullptr ? recording_ : stream_.get(); }
  // Null: recording has ended.
  void record_on(cudaStream_t stream) { recording_ = stream; }
  // Throws internal while something is recorded: `doing` would be done once, and not with each replay.
  void require_running(const std::string& doing) const;
  // Counts memory of the backend's own that moved: what was recorded before has old addresses.
  std::uint64_t moves() const { return moves_; }
  void moved() { ++moves_; }

  const std::string& name() const { return name_; }
  const std::string& id() const { return id_; }      // its UUID
  const std::string& arch() const { return arch_; }  // "sm_90"
  int processors() const { return processors_; }
  std::int64_t block_memory() const { return block_memory_; }  // shared memory that a block may ask for
  std::uint64_t free_bytes() const;

  // Makes the card the current one of this thread.
  void use() const;
  // What failed while memory or handles of this card were freed; outlives it.
  const std::shared_ptr<Releases>& releases() const { return releases_; }
  // Waits for all that was queued, never while something is recorded. Throws what failed there, or else what
  // failed to be freed before.
  void wait(const std::string& doing) const;

  // Not cleared; aligned to 256 bytes. Freed with the last copy, after what was queued on the stream until
  // then has run.
  Buffer allocate(std::size_t bytes, const std::string& what);

  void check(cudaError_t error, const char* call, const std::string& doing) const {
    if (error != cudaSuccess) cuda::check(error, {call, doing, index_});
  }
  void check(cublasStatus_t status, const char* call, const std::string& doing) const {
    if (status != CUBLAS_STATUS_SUCCESS) cuda::check(status, {call, doing, index_});
  }
  // Of a kernel's launch: `what` names it.
  void launched(cudaError_t error, const char* what) const {
    if (error != cudaSuccess) cuda::check(error, {"a kernel's launch", what, index_});
  }

 private:
  explicit Device(int index);

  int index_;
  std::string name_;
  std::string id_;
  std::string arch_;
  int processors_ = 0;
  std::int64_t block_memory_ = 0;
  std::shared_ptr<Releases> releases_;
  Stream stream_;
  cudaStream_t recording_ = nullptr;
  std::uint64_t moves_ = 0;
};

// Memory that grows and never shrinks; what it holds is lost when it grows.
class Scratch {
 public:
  template <class T>
  T* get(Device& device, std::int64_t count) {
    return reinterpret_cast<T*>(reserve(device, static_cast<std::size_t>(count) * sizeof(T), true));
  }
  // Room for what is expected, and no more.
  void expect(Device& device, std::int64_t bytes) { reserve(device, static_cast<std::size_t>(bytes), false); }

 private:
  std::byte* reserve(Device& device, std::size_t bytes, bool spare);
  Buffer memory_;
};

}  // namespace diffuse::cuda

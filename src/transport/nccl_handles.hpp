#pragma once
// Handles of CUDA and NCCL, and the check of their calls; inside src/transport/ only.

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace diffuse::nccl {

// Turns a failed call into an Error (io) that says what was being done.
inline void check(cudaError_t code, const std::string& doing) {
  if (code != cudaSuccess)
    throw_io("CUDA failed while " + doing + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) +
             ")");
}
inline void check(ncclResult_t code, const std::string& doing) {
  if (code != ncclSuccess) throw_io("NCCL failed while " + doing + ": " + ncclGetErrorString(code));
}

// Owns a handle that `kDestroy` frees. destroy() says whether that went well; the destructor cannot.
template <class Handle, auto kDestroy>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) kDestroy(handle_);
  }

  Handle get() const { return handle_; }
  void destroy(const std::string& doing) {
    if (handle_ != nullptr) check(kDestroy(std::exchange(handle_, nullptr)), doing);
  }

 private:
  Handle handle_ = nullptr;
};
using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;

inline Stream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  return Stream(stream);
}
inline Event make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  return Event(event);
}

// Device memory that work on one stream uses; freed when that has run.
class DeviceMemory {
 public:
  DeviceMemory(std::size_t bytes, cudaStream_t stream, const std::string& doing) : stream_(stream) {
    check(cudaMalloc(&memory_, bytes), doing);
  }
  ~DeviceMemory() {
    if (memory_ == nullptr) return;
    cudaStreamSynchronize(stream_);
    cudaFree(memory_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* get() const { return static_cast<std::byte*>(memory_); }
  void free(const std::string& doing) { check(cudaFree(std::exchange(memory_, nullptr)), doing); }

 private:
  void* memory_ = nullptr;
  cudaStream_t stream_;
};

}  // namespace diffuse::nccl

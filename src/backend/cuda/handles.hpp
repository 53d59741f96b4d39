#pragma once
// Owners of what the CUDA runtime and cuBLASLt hand out. They free it when they end; what fails then is
// noted, for a destructor cannot throw, and told by the next wait or at the very end (Backend::released).

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "backend/cuda/check.hpp"

namespace diffuse::cuda {

// A function's name, as a template's argument.
template <std::size_t size>
struct Name {
  // A literal becomes one. NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Name(const char (&name)[size]) { std::copy_n(name, size, text); }
  char text[size]{};
};

// A handle that `release` frees; null owns nothing.
template <typename Handle, auto release, Name name>
class Owned {
 public:
  Owned() = default;
  Owned(Handle handle, std::shared_ptr<Releases> releases)
      : handle_(handle), releases_(std::move(releases)) {}
  Owned(Owned&& from) noexcept
      : handle_(std::exchange(from.handle_, nullptr)), releases_(std::move(from.releases_)) {}
  Owned& operator=(Owned&& from) noexcept {
    std::swap(handle_, from.handle_);
    std::swap(releases_, from.releases_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != nullptr) releases_->note(release(handle_), name.text);
  }

  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
  std::shared_ptr<Releases> releases_;
};

using Stream = Owned<cudaStream_t, &cudaStreamDestroy, "cudaStreamDestroy">;
using Event = Owned<cudaEvent_t, &cudaEventDestroy, "cudaEventDestroy">;
using Graph = Owned<cudaGraph_t, &cudaGraphDestroy, "cudaGraphDestroy">;
using GraphExec = Owned<cudaGraphExec_t, &cudaGraphExecDestroy, "cudaGraphExecDestroy">;
using PinnedMemory = Owned<void*, &cudaFreeHost, "cudaFreeHost">;
using LtHandle = Owned<cublasLtHandle_t, &cublasLtDestroy, "cublasLtDestroy">;
using LtDesc = Owned<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy, "cublasLtMatmulDescDestroy">;
using LtLayout = Owned<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy">;
using LtPreference =
    Owned<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy">;

}  // namespace diffuse::cuda

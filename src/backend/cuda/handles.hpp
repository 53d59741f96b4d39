#pragma once
// Owners of what the CUDA runtime and cuBLASLt hand out. They free it when they end; what fails then is not
// told, for the work that mattered was waited for, and checked, before.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <type_traits>
#include <utility>

namespace diffuse::cuda {

// A handle that `release` frees; null owns nothing.
template <typename Handle, auto release>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& from) noexcept : handle_(std::exchange(from.handle_, nullptr)) {}
  Owned& operator=(Owned&& from) noexcept {
    std::swap(handle_, from.handle_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != nullptr) release(handle_);
  }

  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using Stream = Owned<cudaStream_t, &cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, &cudaEventDestroy>;
using PinnedMemory = Owned<void*, &cudaFreeHost>;
using LtHandle = Owned<cublasLtHandle_t, &cublasLtDestroy>;
using LtDesc = Owned<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy>;
using LtLayout = Owned<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>;
using LtPreference = Owned<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy>;

}  // namespace diffuse::cuda

#include "backend/cuda/check.hpp"

#include <utility>

namespace diffuse::cuda {
namespace {

std::string head_of(const Doing& doing) {
  return (doing.device < 0 ? std::string("CUDA") : "CUDA device " + std::to_string(doing.device)) + ": " +
         doing.call + " failed while " + doing.what + ": ";
}

}  // namespace

void check(cudaError_t error, const Doing& doing) {
  if (error == cudaSuccess) return;
  const std::string message =
      head_of(doing) + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
  switch (error) {
    case cudaErrorMemoryAllocation:
      throw_io(
          message +
          "; give this rank fewer layers (--slices, or more ranks) or less --kv-memory, or end what else "
          "holds the card's memory");
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidPitchValue:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInvalidResourceHandle:
      throw_internal(message);
    default:
      throw_io(message +
               "; the card, its driver or an earlier kernel failed: the kernel log and nvidia-smi may "
               "say more; the same command goes on from the journal");
  }
}

void check(cublasStatus_t status, const Doing& doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string message =
      head_of(doing) + cublasLtGetStatusString(status) + " (cuBLASLt " + cublaslt_version() + ")";
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      throw_io(message + "; the host or the card is out of memory");
    case CUBLAS_STATUS_INVALID_VALUE:
      throw_internal(message);
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED:
      throw_refused(message +
                    "; this card and this cuBLASLt cannot do it: try another version, or --device cpu");
    default:
      throw_io(message +
               "; the card, its driver or an earlier kernel failed: the kernel log and nvidia-smi may "
               "say more; the same command goes on from the journal");
  }
}

template <class Status>
void Releases::keep(Status status, const char* call) noexcept {
  try {
    check(status, {call, "freeing what is not needed any more", device_});
  } catch (const Error& problem) {
    if (!first_) first_ = problem;
    // The runtime keeps it too, and the next launch would say that it was its own.
    static_cast<void>(cudaGetLastError());
  }
}

template void Releases::keep(cudaError_t, const char*) noexcept;
template void Releases::keep(cublasStatus_t, const char*) noexcept;

void Releases::tell() {
  if (const auto problem = std::exchange(first_, std::nullopt)) throw Error(*problem);
}

std::string cublaslt_version() {
  const auto number = cublasLtGetVersion();
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

std::string runtime_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number / 10 % 100);
}

}  // namespace diffuse::cuda

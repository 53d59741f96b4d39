#pragma once
// The one place where a failed call of the CUDA runtime or of cuBLASLt becomes an Error: which call, on which
// card, what was being done, what the library says, and what to do.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <optional>
#include <string>

#include "core/error.hpp"

namespace diffuse::cuda {

// Where a call was made, for messages.
struct Doing {
  const char* call;  // "cudaMalloc"
  std::string what;  // "taking 3.1 GiB of memory"
  int device = -1;   // -1: before a card was chosen
};

// Throws where the call failed: io for what the card, the driver or their memory lacks, internal for a call
// that was wrong.
void check(cudaError_t error, const Doing& doing);
void check(cublasStatus_t status, const Doing& doing);

// What failed while something was freed, by a destructor that cannot throw.
class Releases {
 public:
  explicit Releases(int device) : device_(device) {}

  // Keeps the first failure, of which the next ones are mostly the echo.
  void note(cudaError_t error, const char* call) noexcept { keep(error, call); }
  void note(cublasStatus_t status, const char* call) noexcept { keep(status, call); }
  // Throws it, once.
  void tell();

 private:
  template <class Status>
  void keep(Status status, const char* call) noexcept;

  int device_;
  std::optional<Error> first_;
};

std::string cublaslt_version();           // of the library that runs: "13.0.2"
std::string runtime_version(int number);  // "13.0" of 13000, as runtime and driver count

}  // namespace diffuse::cuda

#pragma once
// The one place where a failed call of the CUDA runtime or of cuBLASLt becomes an Error: which call, on which
// card, what was being done, what the library says, and what to do.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string>

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

std::string cublaslt_version();           // of the library that runs: "13.0.2"
std::string runtime_version(int number);  // "13.0" of 13000, as runtime and driver count

}  // namespace diffuse::cuda

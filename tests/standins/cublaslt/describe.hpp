#pragma once
// Inside of the cuBLASLt stand-in: what lies in the opaque descriptors.

#include <cublasLt.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace standin::lt {

struct Layout {
  std::uint32_t type = 0;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::int64_t ld = 0;
  std::int32_t batch = 1;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

struct Desc {
  std::int32_t compute = 0;
  std::int32_t scale = 0;
  std::int32_t trans_a = CUBLAS_OP_N;
  std::int32_t trans_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t bias_type = -1;  // as D
  const void* bias = nullptr;
};
static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t));

struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reduction_mask = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

struct Algo {
  std::uint64_t magic = 0;
  std::uint64_t problem = 0;  // hash of all but the number of columns of B
  std::int32_t id = 0;
  std::int32_t split_k = 1;
  std::uint32_t reduction = 0;
  std::uint32_t workspace = 0;
  std::uint32_t alignment[4] = {};
  std::uint32_t supported = 1;
};
static_assert(sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t));

// Keeps the reason for cublaslt_problem() and hands the status on.
cublasStatus_t refuse(cublasStatus_t status, const std::string& why);

// What an opaque descriptor holds.
template <typename Inside, typename Opaque>
Inside load(const Opaque* opaque) {
  Inside inside;
  std::memcpy(&inside, opaque->data, sizeof inside);
  return inside;
}

template <typename Inside, typename Opaque>
void store(Opaque* opaque, const Inside& inside) {
  std::memcpy(opaque->data, &inside, sizeof inside);
}

}  // namespace standin::lt

struct cublasLtContext {
  int device = 0;
};

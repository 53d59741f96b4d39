// Handles, descriptors and their attributes.

#include <cstring>
#include <mutex>

#include "describe.hpp"
#include "standin_cublaslt.hpp"
#include "standin_faults.hpp"
#include "standin_runtime.hpp"

namespace standin {
namespace {

// The last problem of this thread's calls.
thread_local std::string last_problem;

constexpr std::size_t kVersion = 130000;

const char* name_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

cublasStatus_t begin_call(const char* function, cublasStatus_t fault = CUBLAS_STATUS_INTERNAL_ERROR) {
  const auto code = injected(function, fault);
  return code ? static_cast<cublasStatus_t>(*code) : CUBLAS_STATUS_SUCCESS;
}

// A new descriptor of `Opaque` that holds `content`.
template <typename Opaque, typename Content>
Opaque* create(const Content& content, const char* kind) {
  auto* opaque = new Opaque();
  lt::store(opaque, content);
  register_object(opaque, kind);
  return opaque;
}

template <typename Opaque>
void destroy(Opaque* opaque, const char* kind) {
  forget_object(opaque, kind);
  delete opaque;
}

template <typename Field>
cublasStatus_t set(Field& field, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof field)
    return lt::refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute was set with a value of another size");
  std::memcpy(&field, value, sizeof field);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

std::string cublaslt_problem() {
  return last_problem;
}

cublasStatus_t lt::refuse(cublasStatus_t status, const std::string& why) {
  last_problem = why;
  return status;
}

}  // namespace standin

using namespace standin;      // NOLINT(google-build-using-namespace): the interface is in C
using namespace standin::lt;  // NOLINT(google-build-using-namespace)

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t status) {
  return name_of(status);
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return name_of(status);
}

size_t cublasLtGetVersion(void) {
  return kVersion;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (const auto fault = begin_call("cublasLtCreate", CUBLAS_STATUS_NOT_INITIALIZED);
      fault != CUBLAS_STATUS_SUCCESS)
    return fault;
  auto* context = new cublasLtContext;
  context->device = current_device();
  register_object(context, "cuBLASLt handle");
  *handle = context;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const auto fault = begin_call("cublasLtDestroy");
  forget_object(handle, "cuBLASLt handle");
  delete handle;
  return fault;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  if (const auto fault = begin_call("cublasLtMatrixLayoutCreate", CUBLAS_STATUS_ALLOC_FAILED);
      fault != CUBLAS_STATUS_SUCCESS)
    return fault;
  *layout = create<cublasLtMatrixLayoutOpaque_t>(
      Layout{static_cast<std::uint32_t>(type), CUBLASLT_ORDER_COL, rows, cols, ld, 1}, "matrix layout");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  const auto fault = begin_call("cublasLtMatrixLayoutDestroy");
  destroy(layout, "matrix layout");
  return fault;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  if (const auto fault = begin_call("cublasLtMatrixLayoutSetAttribute"); fault != CUBLAS_STATUS_SUCCESS)
    return fault;
  if (!is_registered(layout, "matrix layout"))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matrix layout that is not alive");
  auto held = load<Layout>(layout);
  const auto change = [&](auto& field) {
    const auto status = set(field, value, bytes);
    store(layout, held);
    return status;
  };
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return change(held.type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return change(held.order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return change(held.rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return change(held.cols);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return change(held.ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return change(held.batch);
  }
  return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matrix layout has no such attribute");
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType scale) {
  if (const auto fault = begin_call("cublasLtMatmulDescCreate", CUBLAS_STATUS_ALLOC_FAILED);
      fault != CUBLAS_STATUS_SUCCESS)
    return fault;
  Desc content;
  content.compute = compute;
  content.scale = scale;
  *desc = create<cublasLtMatmulDescOpaque_t>(content, "matmul descriptor");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  const auto fault = begin_call("cublasLtMatmulDescDestroy");
  destroy(desc, "matmul descriptor");
  return fault;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  if (const auto fault = begin_call("cublasLtMatmulDescSetAttribute"); fault != CUBLAS_STATUS_SUCCESS)
    return fault;
  if (!is_registered(desc, "matmul descriptor"))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matmul descriptor that is not alive");
  auto held = load<Desc>(desc);
  const auto change = [&](auto& field) {
    const auto status = set(field, value, bytes);
    store(desc, held);
    return status;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return change(held.compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return change(held.scale);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return change(held.trans_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return change(held.trans_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return change(held.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return change(held.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return change(held.bias_type);
  }
  return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matmul descriptor has no such attribute");
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  if (const auto fault = begin_call("cublasLtMatmulPreferenceCreate", CUBLAS_STATUS_ALLOC_FAILED);
      fault != CUBLAS_STATUS_SUCCESS)
    return fault;
  *preference = create<cublasLtMatmulPreferenceOpaque_t>(Preference{}, "matmul preference");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  const auto fault = begin_call("cublasLtMatmulPreferenceDestroy");
  destroy(preference, "matmul preference");
  return fault;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (const auto fault = begin_call("cublasLtMatmulPreferenceSetAttribute"); fault != CUBLAS_STATUS_SUCCESS)
    return fault;
  if (!is_registered(preference, "matmul preference"))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matmul preference that is not alive");
  auto held = load<Preference>(preference);
  const auto change = [&](auto& field) {
    const auto status = set(field, value, bytes);
    store(preference, held);
    return status;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return change(held.workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return change(held.reduction_mask);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return change(held.alignment[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return change(held.alignment[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return change(held.alignment[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return change(held.alignment[3]);
  }
  return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matmul preference has no such attribute");
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, size_t bytes, size_t* written) {
  if (const auto fault = begin_call("cublasLtMatmulAlgoConfigGetAttribute"); fault != CUBLAS_STATUS_SUCCESS)
    return fault;
  const auto held = load<Algo>(algo);
  std::uint32_t answer = 0;
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
      answer = static_cast<std::uint32_t>(held.id);
      break;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      answer = static_cast<std::uint32_t>(held.split_k);
      break;
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      answer = held.reduction;
      break;
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      break;
  }
  if (value == nullptr || bytes != sizeof answer)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm's attribute was asked for in another size");
  std::memcpy(value, &answer, sizeof answer);
  if (written != nullptr) *written = sizeof answer;
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

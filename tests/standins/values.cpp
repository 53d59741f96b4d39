// Prints the values that the stand-ins' headers give to NVIDIA's names, or that NVIDIA's own do: one source,
// compiled over each of them, so that the two can be compared.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdio>

#define SHOW(name) std::printf("%s %lld\n", #name, static_cast<long long>(name))

int main() {
  SHOW(cudaSuccess);
  SHOW(cudaErrorInvalidValue);
  SHOW(cudaErrorMemoryAllocation);
  SHOW(cudaErrorInitializationError);
  SHOW(cudaErrorInvalidConfiguration);
  SHOW(cudaErrorInvalidPitchValue);
  SHOW(cudaErrorInvalidMemcpyDirection);
  SHOW(cudaErrorInsufficientDriver);
  SHOW(cudaErrorNoDevice);
  SHOW(cudaErrorInvalidDevice);
  SHOW(cudaErrorInvalidResourceHandle);
  SHOW(cudaErrorIllegalState);
  SHOW(cudaErrorNotReady);
  SHOW(cudaErrorIllegalAddress);
  SHOW(cudaErrorLaunchFailure);
  SHOW(cudaErrorNotSupported);
  SHOW(cudaErrorStreamCaptureUnsupported);
  SHOW(cudaErrorStreamCaptureInvalidated);
  SHOW(cudaErrorStreamCaptureMerge);
  SHOW(cudaErrorStreamCaptureUnmatched);
  SHOW(cudaErrorStreamCaptureUnjoined);
  SHOW(cudaErrorStreamCaptureIsolation);
  SHOW(cudaErrorCapturedEvent);
  SHOW(cudaErrorStreamCaptureWrongThread);
  SHOW(cudaErrorUnknown);
  SHOW(cudaMemcpyHostToHost);
  SHOW(cudaMemcpyHostToDevice);
  SHOW(cudaMemcpyDeviceToHost);
  SHOW(cudaMemcpyDeviceToDevice);
  SHOW(cudaMemcpyDefault);
  SHOW(cudaMemoryTypeUnregistered);
  SHOW(cudaMemoryTypeHost);
  SHOW(cudaMemoryTypeDevice);
  SHOW(cudaMemoryTypeManaged);
  SHOW(cudaDevAttrMaxSharedMemoryPerBlock);
  SHOW(cudaDevAttrWarpSize);
  SHOW(cudaDevAttrMultiProcessorCount);
  SHOW(cudaDevAttrComputeCapabilityMajor);
  SHOW(cudaDevAttrComputeCapabilityMinor);
  SHOW(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  SHOW(cudaStreamDefault);
  SHOW(cudaStreamNonBlocking);
  SHOW(cudaEventDefault);
  SHOW(cudaEventBlockingSync);
  SHOW(cudaEventDisableTiming);
  SHOW(cudaHostAllocDefault);
  SHOW(cudaStreamCaptureStatusNone);
  SHOW(cudaStreamCaptureStatusActive);
  SHOW(cudaStreamCaptureStatusInvalidated);
  SHOW(cudaStreamCaptureModeGlobal);
  SHOW(cudaStreamCaptureModeThreadLocal);
  SHOW(cudaStreamCaptureModeRelaxed);
  SHOW(CUDA_R_32F);
  SHOW(CUDA_R_64F);
  SHOW(CUDA_R_16F);
  SHOW(CUDA_R_16BF);
  SHOW(CUBLAS_STATUS_SUCCESS);
  SHOW(CUBLAS_STATUS_NOT_INITIALIZED);
  SHOW(CUBLAS_STATUS_ALLOC_FAILED);
  SHOW(CUBLAS_STATUS_INVALID_VALUE);
  SHOW(CUBLAS_STATUS_ARCH_MISMATCH);
  SHOW(CUBLAS_STATUS_MAPPING_ERROR);
  SHOW(CUBLAS_STATUS_EXECUTION_FAILED);
  SHOW(CUBLAS_STATUS_INTERNAL_ERROR);
  SHOW(CUBLAS_STATUS_NOT_SUPPORTED);
  SHOW(CUBLAS_STATUS_LICENSE_ERROR);
  SHOW(CUBLAS_OP_N);
  SHOW(CUBLAS_OP_T);
  SHOW(CUBLAS_COMPUTE_32F);
  SHOW(CUBLASLT_ORDER_COL);
  SHOW(CUBLASLT_ORDER_ROW);
  SHOW(CUBLASLT_MATRIX_LAYOUT_TYPE);
  SHOW(CUBLASLT_MATRIX_LAYOUT_ORDER);
  SHOW(CUBLASLT_MATRIX_LAYOUT_ROWS);
  SHOW(CUBLASLT_MATRIX_LAYOUT_COLS);
  SHOW(CUBLASLT_MATRIX_LAYOUT_LD);
  SHOW(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  SHOW(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
  SHOW(CUBLASLT_MATMUL_DESC_SCALE_TYPE);
  SHOW(CUBLASLT_MATMUL_DESC_TRANSA);
  SHOW(CUBLASLT_MATMUL_DESC_TRANSB);
  SHOW(CUBLASLT_MATMUL_DESC_EPILOGUE);
  SHOW(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  SHOW(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  SHOW(CUBLASLT_REDUCTION_SCHEME_NONE);
  SHOW(CUBLASLT_REDUCTION_SCHEME_INPLACE);
  SHOW(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  SHOW(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
  SHOW(CUBLASLT_REDUCTION_SCHEME_MASK);
  SHOW(CUBLASLT_EPILOGUE_DEFAULT);
  SHOW(CUBLASLT_EPILOGUE_RELU);
  SHOW(CUBLASLT_EPILOGUE_BIAS);
  SHOW(CUBLASLT_EPILOGUE_RELU_BIAS);
  SHOW(CUBLASLT_EPILOGUE_GELU);
  SHOW(CUBLASLT_EPILOGUE_GELU_BIAS);
  SHOW(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  SHOW(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
  SHOW(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  SHOW(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
  SHOW(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
  SHOW(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  SHOW(CUBLASLT_ALGO_CONFIG_ID);
  SHOW(CUBLASLT_ALGO_CONFIG_TILE_ID);
  SHOW(CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  SHOW(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  SHOW(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
  SHOW(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
  SHOW(CUBLASLT_ALGO_CONFIG_STAGES_ID);
  SHOW(sizeof(cublasLtMatrixLayoutOpaque_t));
  SHOW(sizeof(cublasLtMatmulDescOpaque_t));
  SHOW(sizeof(cublasLtMatmulPreferenceOpaque_t));
  SHOW(sizeof(cublasLtMatmulAlgo_t));
  SHOW(sizeof(cublasLtMatmulHeuristicResult_t));
  return 0;
}

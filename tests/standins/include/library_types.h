#pragma once
// Stand-in for the header of this name in the CUDA toolkit: the element types that we name, with NVIDIA's
// values.

typedef enum cudaDataType_t {
  CUDA_R_32F = 0,
  CUDA_R_64F = 1,
  CUDA_R_16F = 2,
  CUDA_R_16BF = 14,
} cudaDataType;

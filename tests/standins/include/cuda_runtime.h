#pragma once
// Stand-in for the CUDA runtime's C++ header.

#include <cuda_runtime_api.h>

#ifndef __host__
#define __host__
#define __device__
#define __global__
#endif

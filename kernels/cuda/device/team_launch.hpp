#pragma once
// Teams and launches on a GPU, for nvcc.

#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/team.hpp"

#define DIFFUSE_UNROLL _Pragma("unroll")
#define DIFFUSE_UNROLL_BY_4 _Pragma("unroll 4")

namespace diffuse::kernels::cuda {

extern __shared__ uint4 block_scratch[];

class DeviceTeam {
 public:
  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ std::int64_t block_x() const { return blockIdx.x; }
  __device__ std::int64_t block_y() const { return blockIdx.y; }
  __device__ std::int64_t block_z() const { return blockIdx.z; }
  __device__ std::byte* scratch() const { return reinterpret_cast<std::byte*>(block_scratch); }
  __device__ void sync() const { __syncthreads(); }

  template <int kLanes, class Partial>
  __device__ void sum(int units, float* lanes, float* totals, const Partial& partial) const {
    reduce<kLanes>(units, lanes, totals, partial, [](float a, float b) { return a + b; });
  }
  template <int kLanes, class Partial>
  __device__ void largest(int units, float* lanes, float* totals, const Partial& partial) const {
    reduce<kLanes>(units, lanes, totals, partial, [](float a, float b) { return b > a ? b : a; });
  }

  __device__ void copy16(void* to, const void* from) const { __pipeline_memcpy_async(to, from, 16); }
  __device__ void commit_copies() const { __pipeline_commit(); }
  template <int kLatest>
  __device__ void wait_copies() const {
    __pipeline_wait_prior(kLatest);
  }

 private:
  // A warp takes a run of 32 lanes; its threads are the lanes.
  template <int kLanes, class Partial, class Join>
  __device__ void reduce(int units, float* lanes, float* totals, const Partial& partial,
                         const Join& join) const {
    constexpr int kWarp = 32;
    constexpr int kRuns = kLanes / kWarp;
    static_assert(kRuns * kWarp == kLanes && (kRuns & (kRuns - 1)) == 0);
    const int lane = rank() % kWarp;
    for (int run = rank() / kWarp; run < units * kRuns; run += size() / kWarp) {
      float value = partial(run / kRuns, run % kRuns * kWarp + lane);
      DIFFUSE_UNROLL
      for (int half = kWarp / 2; half > 0; half /= 2)
        value = join(value, __shfl_down_sync(0xffffffffU, value, static_cast<unsigned>(half)));
      if (lane == 0) (kRuns == 1 ? totals : lanes)[run] = value;
    }
    sync();
    if constexpr (kRuns > 1) {
      for (int unit = rank(); unit < units; unit += size()) {
        float runs[kRuns];
        DIFFUSE_UNROLL
        for (int i = 0; i < kRuns; ++i) runs[i] = lanes[unit * kRuns + i];
        DIFFUSE_UNROLL
        for (int half = kRuns / 2; half > 0; half /= 2) {
          DIFFUSE_UNROLL
          for (int i = 0; i < half; ++i) runs[i] = join(runs[i], runs[i + half]);
        }
        totals[unit] = runs[0];
      }
      sync();
    }
  }
};

template <class Body>
__global__ void __launch_bounds__(Body::kTeam) run_body(const Body body) {
  DeviceTeam team;
  body(team);
}

template <class Body>
cudaError_t launch(cudaStream_t stream, Grid grid, std::int64_t scratch_bytes, const Body& body) {
  static_assert(Body::kTeam % 32 == 0);
  // What a kernel may ask for without saying so before.
  constexpr std::int64_t kPlainScratch = 48 << 10;
  const auto scratch = static_cast<std::size_t>(scratch_bytes);
  if (scratch_bytes > kPlainScratch) {
    const cudaError_t error = cudaFuncSetAttribute(
        run_body<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(scratch_bytes));
    if (error != cudaSuccess) return error;
  }
  const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                    static_cast<unsigned>(grid.z));
  run_body<Body><<<blocks, Body::kTeam, scratch, stream>>>(body);
  return cudaGetLastError();
}

}  // namespace diffuse::kernels::cuda

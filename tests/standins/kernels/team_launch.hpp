#pragma once
// Launches on the stand-in of the CUDA runtime: a kernel is queued on its stream and runs, once that is
// waited for, block after block by a team of one thread.

#include "host_team.hpp"
#include "standin_runtime.hpp"

namespace diffuse::kernels::cuda {

template <class Body>
cudaError_t launch(cudaStream_t stream, Grid grid, std::int64_t scratch_bytes, const Body& body) {
  // What a block of any device since sm_70 can have.
  constexpr std::int64_t kMostScratch = 227 << 10;
  if (!launchable(grid) || scratch_bytes > kMostScratch) return cudaErrorInvalidValue;
  const auto run = [=] {
    HostScratch scratch(scratch_bytes);
    each_block(grid, [&](const HostBlock& block) {
      scratch.spoil();
      OneThread team(block, scratch.data());
      body(team);
    });
  };
  static_cast<void>(standin::enqueue_kernel(stream, run, &body, sizeof body));
  // As on a device: an error that nobody asked for before shows here too.
  return cudaGetLastError();
}

}  // namespace diffuse::kernels::cuda

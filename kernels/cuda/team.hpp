#pragma once
// How a kernel is written once for a GPU and for the tests on a CPU.
//
// A kernel is a body: a struct of pointers, sizes and strides with
//   static constexpr int kTeam;                                  // threads that it wants
//   template <class Team> __device__ void operator()(Team& team) const;
// and launch(stream, grid, scratch_bytes, body) queues it: the body runs once for each block of the grid, by
// a team of threads that share scratch memory. On a GPU a team is a block of kTeam threads; elsewhere it may
// be of any size, 1 included, so a body shares out its work as `for (i = team.rank(); i < count; i +=
// team.size())`, and its result must not depend on the size. <team_launch.hpp> comes from the include path:
// device/ for nvcc, or one of the tests' own.
//
// A team has
//   rank(), size()                    of the thread
//   block_x(), block_y(), block_z()   of the block in the grid
//   scratch()                         scratch_bytes shared by the team, aligned to 16 bytes, not cleared
//   sync()                            all threads of the team have come here, and see what was written before
//   sum<kLanes>(units, lanes, totals, partial)
//   largest<kLanes>(units, lanes, totals, partial)
//       totals[u] = partial(u, 0) + ... + partial(u, kLanes - 1), or the largest of them, for units u.
//       partial is called once for each unit and lane, by any thread. The order is fixed: runs of 32 lanes by
//       halving (lane l takes in lane l + 16, then + 8, ...), then the runs' sums by halving. kLanes is a
//       multiple of 32 by a power of two. lanes (units * kLanes floats) and totals (units) are scratch; a
//       sync comes before the return, none at the call.
//   copy16(to, from), commit_copies(), wait_copies<N>()
//       copies of 16 aligned bytes to scratch behind the thread's back. commit ends a group; wait returns
//       when all but the thread's N latest groups are there, for the thread itself: others need a sync after
//       it.
//
// The device's team has warp shuffles and asynchronous copies in the last two; the tests' teams have plain
// code for the same contract, and it is that code that tests without a GPU cover.

#include <cstdint>

namespace diffuse::kernels::cuda {

// Blocks of a launch; y and z at most 65535.
struct Grid {
  std::int64_t x = 1;
  std::int64_t y = 1;
  std::int64_t z = 1;
};

}  // namespace diffuse::kernels::cuda

#include <team_launch.hpp>

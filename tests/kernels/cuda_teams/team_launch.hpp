#pragma once
// Launches for the kernels' own tests: each runs at once, by teams of as many threads as a test asks for.

#include <barrier>
#include <exception>
#include <thread>
#include <vector>

#include "../../standins/kernels/host_team.hpp"

namespace diffuse::kernels::cuda {

// How the launches of this thread run.
struct TeamKind {
  int size = 1;                 // threads
  bool copies_at_once = false;  // of those made behind a thread's back
};
inline TeamKind& team_kind() {
  thread_local TeamKind kind;
  return kind;
}

// A thread of a team of real threads.
class ThreadTeam : public HostTeam<ThreadTeam> {
 public:
  ThreadTeam(const HostBlock& block, std::byte* scratch, const TeamKind& kind, int rank,
             std::barrier<>& barrier)
      : HostTeam(block, scratch, kind.copies_at_once), rank_(rank), size_(kind.size), barrier_(barrier) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  void sync() { barrier_.arrive_and_wait(); }

 private:
  int rank_;
  int size_;
  std::barrier<>& barrier_;
};

template <class Body>
void run_by_one(const Grid& grid, std::int64_t scratch_bytes, const Body& body) {
  HostScratch scratch(scratch_bytes);
  each_block(grid, [&](const HostBlock& block) {
    scratch.spoil();
    OneThread team(block, scratch.data());
    body(team);
  });
}

template <class Body>
void run_by_threads(const TeamKind& kind, const Grid& grid, std::int64_t scratch_bytes, const Body& body) {
  HostScratch scratch(scratch_bytes);
  std::barrier<> barrier(kind.size);
  const auto run = [&](int rank) {
    each_block(grid, [&](const HostBlock& block) {
      barrier.arrive_and_wait();
      if (rank == 0) scratch.spoil();
      barrier.arrive_and_wait();
      ThreadTeam team(block, scratch.data(), kind, rank, barrier);
      body(team);
    });
  };
  std::vector<std::jthread> threads;
  for (int rank = 1; rank < kind.size; ++rank) threads.emplace_back(run, rank);
  run(0);
}

template <class Body>
cudaError_t launch(cudaStream_t, Grid grid, std::int64_t scratch_bytes, const Body& body) {
  if (!launchable(grid)) return cudaErrorInvalidConfiguration;
  if (team_kind().size == 1) {
    run_by_one(grid, scratch_bytes, body);
  } else {
    run_by_threads(team_kind(), grid, scratch_bytes, body);
  }
  return cudaSuccess;
}

}  // namespace diffuse::kernels::cuda

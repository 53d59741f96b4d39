#pragma once
// Teams of threads on the host, for the CUDA kernels' tests (contract: kernels/cuda/team.hpp). Reductions go
// through scratch in the device's order. Copies behind a thread's back are made at the last moment that the
// contract allows, so that a missing wait shows, or at the first, so that a target still in use shows.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/team.hpp"

#ifndef __device__
#define __device__
#endif
#define DIFFUSE_UNROLL
#define DIFFUSE_UNROLL_BY_4

namespace diffuse::kernels::cuda {

struct HostBlock {
  std::int64_t x = 0;
  std::int64_t y = 0;
  std::int64_t z = 0;
};

template <class Team>
class HostTeam {
 public:
  HostTeam(const HostBlock& block, std::byte* scratch, bool copies_at_once = false)
      : block_(block), scratch_(scratch), copies_at_once_(copies_at_once) {}

  std::int64_t block_x() const { return block_.x; }
  std::int64_t block_y() const { return block_.y; }
  std::int64_t block_z() const { return block_.z; }
  std::byte* scratch() const { return scratch_; }

  template <int kLanes, class Partial>
  void sum(int units, float* lanes, float* totals, const Partial& partial) {
    reduce<kLanes>(units, lanes, totals, partial, [](float a, float b) { return a + b; });
  }
  template <int kLanes, class Partial>
  void largest(int units, float* lanes, float* totals, const Partial& partial) {
    reduce<kLanes>(units, lanes, totals, partial, [](float a, float b) { return b > a ? b : a; });
  }

  void copy16(void* to, const void* from) {
    if (copies_at_once_) {
      std::memcpy(to, from, 16);
    } else {
      open_.push_back({to, from});
    }
  }
  void commit_copies() {
    groups_.push_back(std::move(open_));
    open_.clear();
  }
  template <int kLatest>
  void wait_copies() {
    while (groups_.size() > kLatest) {
      for (const auto& copy : groups_.front()) std::memcpy(copy.to, copy.from, 16);
      groups_.erase(groups_.begin());
    }
  }

 private:
  struct Copy {
    void* to;
    const void* from;
  };

  template <int kLanes, class Partial, class Join>
  void reduce(int units, float* lanes, float* totals, const Partial& partial, const Join& join) {
    constexpr int kRun = 32;
    static_assert(kLanes % kRun == 0 && (kLanes & (kLanes - 1)) == 0);
    Team& team = static_cast<Team&>(*this);
    for (int i = team.rank(); i < units * kLanes; i += team.size())
      lanes[i] = partial(i / kLanes, i % kLanes);
    team.sync();
    for (int unit = team.rank(); unit < units; unit += team.size()) {
      float* tree = lanes + unit * kLanes;
      for (int run = 0; run < kLanes; run += kRun) {
        for (int half = kRun / 2; half > 0; half /= 2)
          for (int lane = 0; lane < half; ++lane)
            tree[run + lane] = join(tree[run + lane], tree[run + lane + half]);
      }
      for (int half = kLanes / 2; half >= kRun; half /= 2)
        for (int run = 0; run < half; run += kRun) tree[run] = join(tree[run], tree[run + half]);
      totals[unit] = tree[0];
    }
    team.sync();
  }

  HostBlock block_;
  std::byte* scratch_;
  bool copies_at_once_;
  std::vector<Copy> open_;
  std::vector<std::vector<Copy>> groups_;
};

class OneThread : public HostTeam<OneThread> {
 public:
  using HostTeam::HostTeam;
  int rank() const { return 0; }
  int size() const { return 1; }
  void sync() {}
};

// Scratch of a block: as large as asked for (in words of 16 bytes), aligned, and full of NaN at first.
class HostScratch {
 public:
  explicit HostScratch(std::int64_t bytes) : words_(static_cast<std::size_t>((bytes + 15) / 16)) { spoil(); }
  void spoil() {
    if (!words_.empty()) std::memset(words_.data(), 0xff, words_.size() * sizeof(Word));
  }
  std::byte* data() { return words_.empty() ? nullptr : words_.data()->bytes; }

 private:
  struct alignas(16) Word {
    std::byte bytes[16];
  };
  std::vector<Word> words_;
};

template <class Visit>
void each_block(const Grid& grid, const Visit& visit) {
  HostBlock block;
  for (block.z = 0; block.z < grid.z; ++block.z)
    for (block.y = 0; block.y < grid.y; ++block.y)
      for (block.x = 0; block.x < grid.x; ++block.x) visit(block);
}

// What a device refuses.
inline bool launchable(const Grid& grid) {
  const auto within = [](std::int64_t count, std::int64_t most) { return count >= 1 && count <= most; };
  return within(grid.x, 0x7fffffff) && within(grid.y, 65535) && within(grid.z, 65535);
}

}  // namespace diffuse::kernels::cuda

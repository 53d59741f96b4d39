#pragma once
// The noise levels (sigmas) and timesteps of a run, as diffusers' schedulers compute them: in double where
// NumPy does, in f32 where torch does, in the same order of operations.

#include <cstdint>
#include <vector>

#include "sampler/scheduler_config.hpp"

namespace diffuse {

struct NoiseSchedule {
  std::vector<float> timesteps;  // [steps], what the network is told
  std::vector<float> sigmas;     // [steps + 1]; the last is the level that the last step leads to
};

// steps >= 1. Throws refused where they are more than the schedule has.
NoiseSchedule noise_schedule(const SchedulerConfig& config, std::int64_t steps);

}  // namespace diffuse

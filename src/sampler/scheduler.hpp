#pragma once
// Diffusion schedulers: what a network's prediction makes of a latent, a step after the other. diffusers'
// UniPCMultistepScheduler, DPMSolverMultistepScheduler (dpmsolver++), FlowMatchEulerDiscreteScheduler and
// EulerDiscreteScheduler.
//
// A step treats each element by itself, so a latent may be cut at any elements: each part keeps a state of
// its own, and the bits are those of the whole. All noise levels, timesteps and factors are computed when the
// scheduler is made, with this program's own elementary functions.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "sampler/coefficients.hpp"
#include "sampler/sampler_state.hpp"

namespace diffuse {

// A plain value; copies are independent.
class Scheduler {
 public:
  std::size_t steps() const { return schedule_.timesteps.size(); }
  // What the network is told at each step: [steps].
  const std::vector<float>& timesteps() const { return schedule_.timesteps; }
  // [steps + 1]
  const std::vector<float>& sigmas() const { return schedule_.sigmas; }
  // The logarithm of alpha / sigma where a step starts: how far it is along the way from noise to data. No
  // less than that of a sigma of 0.9999 of flow, whose first step may start from noise alone.
  double log_signal_to_noise(std::size_t step) const;
  // Whether its noise levels are those of flow: latent = (1 - sigma) * data + sigma * noise.
  bool flow() const { return flow_sigmas_; }
  // Unit noise times this is the start latent: 1 but for EulerDiscreteScheduler. (Wan's pipeline starts from
  // unit noise whatever the scheduler says.)
  float start_scale() const { return start_scale_; }
  // The network reads the latent divided by this at a step: 1 but for EulerDiscreteScheduler.
  float input_divisor(std::size_t step) const;
  // Arrays of the latent's size that a state holds once all its steps are under way.
  std::size_t kept_arrays() const { return kept_earlier_ + (keeps_sample_ ? 1 : 0); }

  // Step `step` (from 0) of the elements of `latent`, in place, by what the network predicted of them (after
  // guidance). `state` is that of the same elements and has done the steps before, else throws internal.
  void step(std::size_t step, std::span<const float> prediction, std::span<float> latent,
            SamplerState& state) const;

 private:
  friend Scheduler make_scheduler(const Json& config, std::int64_t steps, const std::string& what);
  Scheduler(const SchedulerConfig& config, std::int64_t steps);

  NoiseSchedule schedule_;
  std::vector<StepCoefficients> coefficients_;
  std::size_t kept_earlier_ = 0;
  bool keeps_sample_ = false;
  bool divides_input_ = false;
  bool flow_sigmas_ = false;
  float start_scale_ = 1;
};

// Of a scheduler_config.json, for `steps` steps; `what` names the file in errors. Throws refused, naming key
// and value, for what this build does not have, and for a schedule whose steps are not finite; bad data for a
// value that is out of range and for fewer than one step.
Scheduler make_scheduler(const Json& config, std::int64_t steps,
                         const std::string& what = "scheduler_config.json");

}  // namespace diffuse

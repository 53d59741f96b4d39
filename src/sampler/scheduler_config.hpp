#pragma once
// A diffusers scheduler_config.json as plain values. Every key is read, or known to change nothing for its
// class, or refused by name.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.hpp"

namespace diffuse {

// The classes of diffusers whose steps this build has.
enum class SchedulerKind : std::uint8_t { unipc, dpm_solver, flow_euler, euler };

// What the network's output is of the latent x = alpha * data + sigma * noise. flow: noise - data.
enum class Prediction : std::uint8_t { noise, data, velocity, flow };

// How the noise levels of the steps lie between the first and the last.
enum class SigmaSpacing : std::uint8_t { given, karras, exponential };

enum class TimestepSpacing : std::uint8_t { linspace, leading, trailing };

enum class BetaSchedule : std::uint8_t { linear, scaled_linear, squared_cosine };

// bh1, bh2: of UniPC (arXiv 2302.04867); midpoint, heun: of DPM-Solver++ (arXiv 2211.01095).
enum class SolverType : std::uint8_t { bh1, bh2, midpoint, heun };

struct SchedulerConfig {
  SchedulerKind kind = SchedulerKind::unipc;
  Prediction prediction = Prediction::noise;
  std::int64_t train_steps = 1000;

  // The noise levels.
  bool flow_sigmas = false;  // alpha = 1 - sigma; else alpha = 1 / sqrt(1 + sigma^2)
  double shift = 1;
  double shift_terminal = 0;  // the last level is brought to it; 0: none
  bool inverted = false;      // 1 - sigma
  SigmaSpacing spacing = SigmaSpacing::given;
  bool log_linear = false;  // Euler: levels between the ends by their logarithm
  std::optional<double> sigma_min, sigma_max;
  bool ends_at_zero = true;  // else at the least level
  TimestepSpacing timesteps = TimestepSpacing::linspace;
  std::int64_t steps_offset = 0;
  std::optional<double> least_lambda;
  double beta_start = 0.0001;
  double beta_end = 0.02;
  BetaSchedule betas = BetaSchedule::linear;

  // The solver.
  std::int64_t order = 1;
  SolverType solver = SolverType::bh2;
  bool of_data = true;  // the solver works on the data that is predicted, else on the noise
  bool lower_order_final = true;
  bool euler_at_final = false;
  std::vector<std::int64_t> uncorrected;  // steps behind which UniPC does not correct
};

// Throws refused, naming key and value, for what this build does not have; bad data for a value of another
// type or out of range. `what` names the file.
SchedulerConfig read_scheduler_config(const Json& config, const std::string& what);

}  // namespace diffuse

#pragma once
// What each step of a scheduler multiplies by: computed once, from the noise levels alone, in f32 in
// diffusers' order of operations.

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "sampler/noise_schedule.hpp"
#include "sampler/scheduler_config.hpp"

namespace diffuse {

// The network's prediction p at the latent x -> what the solver works on, the data or the noise.
struct Conversion {
  enum class Form : std::uint8_t {
    none,                 // p
    subtract,             // x - sigma * p
    subtract_and_divide,  // (x - sigma * p) / alpha
    mix,                  // alpha * x - sigma * p
    mix_noise,            // alpha * p + sigma * x
    noise_of_data,        // (x - alpha * p) / sigma
    mix_and_divide,       // alpha * p + x / sigma
  };
  Form form = Form::none;
  float alpha = 0;
  float sigma = 0;
};

// One update of UniPC (arXiv 2302.04867, B(h) forms): with m the latest estimate and m_k the k-th before it,
//     keep * x - first * m - scale * (sum of weights[k] * (m_k - m) / ratios[k] + last * (new - m)),
// where `new` is the estimate at the point that is led to; a predictor has none.
struct UnipcUpdate {
  float keep = 0;
  float first = 0;
  float scale = 0;
  std::vector<float> ratios, weights;  // [order - 1]
  std::optional<float> last;
};
struct UnipcStep {
  Conversion conversion;
  std::optional<UnipcUpdate> corrector;  // of the latent that the step before led to
  UnipcUpdate predictor;
};

// One update of DPM-Solver++ (arXiv 2211.01095): keep * x + c0 * D0 + c1 * D1 + c2 * D2, of an order.
//     D0 = m;  order 2: D1 = inverse0 * (m - m_1);
//     order 3: d = inverse0 * (m - m_1), e = inverse1 * (m_1 - m_2), D1 = d + mix * (d - e), D2 = inverse_sum
//     * (d - e)
struct DpmStep {
  Conversion conversion;
  int order = 1;
  float keep = 0, c0 = 0, c1 = 0, c2 = 0;
  float inverse0 = 0, inverse1 = 0, mix = 0, inverse_sum = 0;
};

// x + delta * p; or x + delta * (x - data) / sigma with the data of the conversion.
struct EulerStep {
  std::optional<Conversion> conversion;
  float sigma = 0;
  float delta = 0;
};

using StepCoefficients = std::variant<UnipcStep, DpmStep, EulerStep>;

// One a step. Throws refused where a step has none that is finite.
std::vector<StepCoefficients> step_coefficients(const SchedulerConfig& config, const NoiseSchedule& schedule);

}  // namespace diffuse

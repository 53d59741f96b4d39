#include "sampler/scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "core/exact_math.hpp"
#include "core/overloaded.hpp"

namespace diffuse {
namespace {

using Floats = std::vector<float>;

void convert(const Conversion& how, std::span<const float> p, std::span<const float> x, float* out) {
  using Form = Conversion::Form;
  const float alpha = how.alpha;
  const float sigma = how.sigma;
  const auto each = [&](auto&& formula) {
    for (std::size_t i = 0; i < p.size(); ++i) out[i] = formula(p[i], x[i]);
  };
  switch (how.form) {
    case Form::none:
      return each([](float prediction, float) { return prediction; });
    case Form::subtract:
      return each([=](float prediction, float at) { return at - sigma * prediction; });
    case Form::subtract_and_divide:
      return each([=](float prediction, float at) { return (at - sigma * prediction) / alpha; });
    case Form::mix:
      return each([=](float prediction, float at) { return alpha * at - sigma * prediction; });
    case Form::mix_noise:
      return each([=](float prediction, float at) { return alpha * prediction + sigma * at; });
    case Form::noise_of_data:
      return each([=](float prediction, float at) { return (at - alpha * prediction) / sigma; });
    case Form::mix_and_divide:
      return each([=](float prediction, float at) { return alpha * prediction + at / sigma; });
  }
}

// `estimates`: the latest, then those before it. `fresh`: at the point that is led to; or null.
void update(const UnipcUpdate& how, std::span<const Floats> estimates, const float* fresh, const Floats& from,
            std::span<float> out) {
  const float* m = estimates.front().data();
  for (std::size_t i = 0; i < out.size(); ++i) {
    float sum = 0;
    for (std::size_t k = 0; k < how.weights.size(); ++k)
      sum += how.weights[k] * ((estimates[k + 1][i] - m[i]) / how.ratios[k]);
    if (how.last) sum += *how.last * (fresh[i] - m[i]);
    const float whole = how.keep * from[i] - how.first * m[i];
    out[i] = how.weights.empty() && !how.last ? whole : whole - how.scale * sum;
  }
}

// The newest estimate comes first; at most `kept` stay.
void remember(SamplerState& state, Floats estimate, std::size_t kept) {
  state.earlier.insert(state.earlier.begin(), std::move(estimate));
  if (state.earlier.size() > kept) state.earlier.resize(kept);
}

void run(const UnipcStep& step, std::span<const float> prediction, std::span<float> latent,
         SamplerState& state, std::size_t kept) {
  Floats estimate(latent.size());
  convert(step.conversion, prediction, latent, estimate.data());
  if (step.corrector) update(*step.corrector, state.earlier, estimate.data(), state.sample, latent);
  remember(state, std::move(estimate), kept);
  state.sample.assign(latent.begin(), latent.end());
  update(step.predictor, state.earlier, nullptr, state.sample, latent);
}

void run(const DpmStep& step, std::span<const float> prediction, std::span<float> latent, SamplerState& state,
         std::size_t kept) {
  Floats estimate(latent.size());
  convert(step.conversion, prediction, latent, estimate.data());
  const float* m = estimate.data();
  const auto before = [&](std::size_t k) { return state.earlier[k].data(); };
  switch (step.order) {
    case 1:
      for (std::size_t i = 0; i < latent.size(); ++i) latent[i] = step.keep * latent[i] + step.c0 * m[i];
      break;
    case 2: {
      const float* m1 = before(0);
      for (std::size_t i = 0; i < latent.size(); ++i) {
        const float d1 = step.inverse0 * (m[i] - m1[i]);
        latent[i] = step.keep * latent[i] + step.c0 * m[i] + step.c1 * d1;
      }
      break;
    }
    default: {
      const float* m1 = before(0);
      const float* m2 = before(1);
      for (std::size_t i = 0; i < latent.size(); ++i) {
        const float near = step.inverse0 * (m[i] - m1[i]);
        const float far = step.inverse1 * (m1[i] - m2[i]);
        const float d1 = near + step.mix * (near - far);
        const float d2 = step.inverse_sum * (near - far);
        latent[i] = step.keep * latent[i] + step.c0 * m[i] + step.c1 * d1 + step.c2 * d2;
      }
    }
  }
  if (kept > 0) remember(state, std::move(estimate), kept);
}

void run(const EulerStep& step, std::span<const float> prediction, std::span<float> latent) {
  if (!step.conversion) {
    for (std::size_t i = 0; i < latent.size(); ++i) latent[i] = latent[i] + step.delta * prediction[i];
    return;
  }
  Floats data(latent.size());
  convert(*step.conversion, prediction, latent, data.data());
  for (std::size_t i = 0; i < latent.size(); ++i)
    latent[i] = latent[i] + (latent[i] - data[i]) / step.sigma * step.delta;
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, std::int64_t steps)
    : schedule_(noise_schedule(config, steps)), coefficients_(step_coefficients(config, schedule_)) {
  flow_sigmas_ = config.flow_sigmas;
  const auto order = static_cast<std::size_t>(config.order);
  switch (config.kind) {
    case SchedulerKind::unipc:
      kept_earlier_ = order;
      keeps_sample_ = true;
      break;
    case SchedulerKind::dpm_solver:
      kept_earlier_ = order - 1;
      break;
    case SchedulerKind::flow_euler:
      break;
    case SchedulerKind::euler: {
      divides_input_ = true;
      const float most = *std::max_element(schedule_.sigmas.begin(), schedule_.sigmas.end());
      const bool leading = config.timesteps == TimestepSpacing::leading;
      start_scale_ = leading ? std::sqrt(most * most + 1) : most;
      break;
    }
  }
}

double Scheduler::log_signal_to_noise(std::size_t step) const {
  const auto sigma = static_cast<double>(schedule_.sigmas.at(step));
  if (!flow_sigmas_) return -exact::log(sigma);
  const double level = std::min(sigma, 0.9999);
  return exact::log((1 - level) / level);
}

float Scheduler::input_divisor(std::size_t step) const {
  const float sigma = schedule_.sigmas.at(step);
  return divides_input_ ? std::sqrt(sigma * sigma + 1) : 1;
}

void Scheduler::step(std::size_t step, std::span<const float> prediction, std::span<float> latent,
                     SamplerState& state) const {
  const auto fits = [&](const Floats& array) { return array.size() == latent.size(); };
  const bool of_these = std::all_of(state.earlier.begin(), state.earlier.end(), fits) &&
                        state.earlier.size() == std::min(step, kept_earlier_) &&
                        (keeps_sample_ && step > 0 ? fits(state.sample) : state.sample.empty());
  if (step >= steps() || state.steps != step || prediction.size() != latent.size() || !of_these)
    throw_internal("a scheduler's step " + std::to_string(step) + " of " + std::to_string(steps()) +
                   " was asked of a state that is not the one before it, or of other elements");
  std::visit(Overloaded{[&](const EulerStep& each) { run(each, prediction, latent); },
                        [&](const auto& each) { run(each, prediction, latent, state, kept_earlier_); }},
             coefficients_[step]);
  ++state.steps;
}

Scheduler make_scheduler(const Json& config, std::int64_t steps, const std::string& what) {
  const auto read = read_scheduler_config(config, what);
  if (steps < 1)
    throw_bad_data("a scheduler needs at least one step, and " + std::to_string(steps) + " were asked for");
  return {read, steps};
}

}  // namespace diffuse

#include "sampler/coefficients.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/exact_math.hpp"
#include "core/overloaded.hpp"

namespace diffuse {
namespace {

float log_of(float x) {
  return static_cast<float>(exact::log(static_cast<double>(x)));
}
float exp_of(float x) {
  return static_cast<float>(exact::exp(static_cast<double>(x)));
}
float expm1_of(float x) {
  return static_cast<float>(exact::exp(static_cast<double>(x)) - 1);
}

// The latent at a noise level is alpha * data + sigma * noise; lambda = log(alpha / sigma).
struct Level {
  float alpha = 0;
  float sigma = 0;
  float lambda() const { return log_of(alpha) - log_of(sigma); }
};

// matrix [n, n] row by row; solves by elimination with row exchange, in f32.
std::vector<float> solve(std::vector<std::vector<float>> matrix, std::vector<float> right) {
  const auto n = right.size();
  for (std::size_t column = 0; column < n; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column + 1; row < n; ++row) {
      if (std::abs(matrix[row][column]) > std::abs(matrix[pivot][column])) pivot = row;
    }
    std::swap(matrix[column], matrix[pivot]);
    std::swap(right[column], right[pivot]);
    for (std::size_t row = column + 1; row < n; ++row) {
      const float factor = matrix[row][column] / matrix[column][column];
      for (std::size_t k = column; k < n; ++k) matrix[row][k] -= factor * matrix[column][k];
      right[row] -= factor * right[column];
    }
  }
  for (std::size_t row = n; row-- > 0;) {
    for (std::size_t k = row + 1; k < n; ++k) right[row] -= matrix[row][k] * right[k];
    right[row] /= matrix[row][row];
  }
  return right;
}

class CoefficientBuilder {
 public:
  CoefficientBuilder(const SchedulerConfig& config, const NoiseSchedule& schedule)
      : config_(config), schedule_(schedule), steps_(static_cast<std::int64_t>(schedule.timesteps.size())) {}

  StepCoefficients step(std::int64_t i) const {
    switch (config_.kind) {
      case SchedulerKind::unipc:
        return unipc(i);
      case SchedulerKind::dpm_solver:
        return dpm(i);
      case SchedulerKind::flow_euler:
        return EulerStep{.conversion = std::nullopt, .sigma = sigma(i), .delta = sigma(i + 1) - sigma(i)};
      case SchedulerKind::euler:
        return EulerStep{
            .conversion = euler_conversion(i), .sigma = sigma(i), .delta = sigma(i + 1) - sigma(i)};
    }
    throw_internal("a scheduler is of no kind that exists");
  }

 private:
  float sigma(std::int64_t i) const { return schedule_.sigmas[static_cast<std::size_t>(i)]; }

  Level level(std::int64_t i) const {
    const float at = sigma(i);
    if (config_.flow_sigmas) return {1 - at, at};
    const float alpha = 1 / std::sqrt(at * at + 1);
    return {alpha, at * alpha};
  }

  Conversion conversion(std::int64_t i) const {
    using Form = Conversion::Form;
    const auto [alpha, noise] = level(i);
    switch (config_.prediction) {
      case Prediction::noise:
        return {config_.of_data ? Form::subtract_and_divide : Form::none, alpha, noise};
      case Prediction::data:
        return {config_.of_data ? Form::none : Form::noise_of_data, alpha, noise};
      case Prediction::velocity:
        return {config_.of_data ? Form::mix : Form::mix_noise, alpha, noise};
      case Prediction::flow:
        return {Form::subtract, alpha, sigma(i)};
    }
    throw_internal("a scheduler's prediction is of no kind that exists");
  }

  // Here x = data + sigma * noise, which the network is given divided by sqrt(sigma^2 + 1).
  Conversion euler_conversion(std::int64_t i) const {
    using Form = Conversion::Form;
    const float at = sigma(i);
    switch (config_.prediction) {
      case Prediction::noise:
        return {Form::subtract, 1, at};
      case Prediction::velocity:
        return {Form::mix_and_divide, -at / std::sqrt(at * at + 1), at * at + 1};
      case Prediction::data:
        return {Form::none, 1, at};
      case Prediction::flow:
        break;
    }
    throw_internal("Euler's scheduler of a prediction that it does not have");
  }

  // Of the step that starts at `i`: less at the start, where there are no earlier estimates, and at the end.
  std::int64_t unipc_order(std::int64_t i) const {
    const auto most = config_.lower_order_final ? std::min(config_.order, steps_ - i) : config_.order;
    return std::min(most, i + 1);
  }

  UnipcStep unipc(std::int64_t i) const {
    UnipcStep step;
    step.conversion = conversion(i);
    const auto& skipped = config_.uncorrected;
    if (i > 0 && std::find(skipped.begin(), skipped.end(), i - 1) == skipped.end())
      step.corrector = unipc_update(i - 1, unipc_order(i - 1), true);
    step.predictor = unipc_update(i, unipc_order(i), false);
    return step;
  }

  // From level `from` to the next; the names are the paper's.
  UnipcUpdate unipc_update(std::int64_t from, std::int64_t order, bool corrects) const {
    const auto to = level(from + 1);
    const auto s0 = level(from);
    const float lambda_s0 = s0.lambda();
    const float h = to.lambda() - lambda_s0;
    UnipcUpdate update;
    for (std::int64_t k = 1; k < order; ++k)
      update.ratios.push_back((level(from - k).lambda() - lambda_s0) / h);

    const float hh = config_.of_data ? -h : h;
    const float phi1 = expm1_of(hh);
    const float b_h = config_.solver == SolverType::bh1 ? hh : phi1;
    const float outer = config_.of_data ? to.alpha : to.sigma;
    update.keep = config_.of_data ? to.sigma / s0.sigma : to.alpha / s0.alpha;
    update.first = outer * phi1;
    update.scale = outer * b_h;

    auto points = update.ratios;
    points.push_back(1);
    const auto unknowns = static_cast<std::size_t>(corrects ? order : order - 1);
    // The lowest order of each kind has its weight by definition.
    auto weights = unknowns == 1 ? std::vector<float>{0.5F} : solved(points, unknowns, hh, phi1, b_h);
    if (corrects) {
      update.last = weights.back();
      weights.pop_back();
    }
    update.weights = std::move(weights);
    return update;
  }

  static std::vector<float> solved(const std::vector<float>& points, std::size_t unknowns, float hh,
                                   float phi1, float b_h) {
    std::vector<std::vector<float>> powers;
    std::vector<float> right;
    std::vector<float> row(unknowns, 1);
    float phi = phi1 / hh - 1;
    double factorial = 1;
    for (std::size_t i = 0; i < unknowns; ++i) {
      powers.push_back(row);
      for (std::size_t k = 0; k < unknowns; ++k) row[k] *= points[k];
      right.push_back(phi * static_cast<float>(factorial) / b_h);
      factorial *= static_cast<double>(i + 2);
      phi = phi / hh - static_cast<float>(1 / factorial);
    }
    return solve(std::move(powers), std::move(right));
  }

  DpmStep dpm(std::int64_t i) const {
    const bool few = config_.lower_order_final && steps_ < 15;
    const bool first_at_end = i == steps_ - 1 && (config_.euler_at_final || few || config_.ends_at_zero);
    const bool second_at_end = i == steps_ - 2 && few;
    DpmStep step;
    step.conversion = conversion(i);
    if (config_.order == 1 || i < 1 || first_at_end) {
      step.order = 1;
    } else {
      step.order = config_.order == 2 || i < 2 || second_at_end ? 2 : 3;
    }

    const auto to = level(i + 1);
    const auto s0 = level(i);
    const float h = to.lambda() - s0.lambda();
    const float shrink = exp_of(-h) - 1.0F;
    step.keep = to.sigma / s0.sigma;
    step.c0 = -(to.alpha * shrink);
    if (step.order == 1) return step;
    const float h0 = s0.lambda() - level(i - 1).lambda();
    const float r0 = h0 / h;
    step.inverse0 = 1.0F / r0;
    const float heun = to.alpha * (shrink / h + 1.0F);
    step.c1 = config_.solver == SolverType::midpoint ? -(0.5F * (to.alpha * shrink)) : heun;
    if (step.order == 2) return step;
    const float r1 = (level(i - 1).lambda() - level(i - 2).lambda()) / h;
    step.inverse1 = 1.0F / r1;
    step.mix = r0 / (r0 + r1);
    step.inverse_sum = 1.0F / (r0 + r1);
    step.c1 = heun;
    step.c2 = -(to.alpha * ((shrink + h) / (h * h) - 0.5F));
    return step;
  }

  const SchedulerConfig& config_;
  const NoiseSchedule& schedule_;
  std::int64_t steps_;
};

bool is_finite(const UnipcUpdate& update) {
  // What is divided by an infinity adds nothing.
  const auto divides = [](float ratio) { return ratio != 0 && !std::isnan(ratio); };
  const auto finite = [](float weight) { return std::isfinite(weight); };
  return std::isfinite(update.keep) && std::isfinite(update.first) && std::isfinite(update.scale) &&
         std::isfinite(update.last.value_or(0)) &&
         std::all_of(update.ratios.begin(), update.ratios.end(), divides) &&
         std::all_of(update.weights.begin(), update.weights.end(), finite);
}

bool is_finite(const StepCoefficients& coefficients) {
  return std::visit(
      Overloaded{
          [](const UnipcStep& step) {
            return is_finite(step.predictor) && (!step.corrector || is_finite(*step.corrector));
          },
          [](const DpmStep& step) {
            const float sum = step.keep + step.c0 + step.c1 + step.c2 + step.inverse0 + step.inverse1 +
                              step.mix + step.inverse_sum;
            return std::isfinite(sum);
          },
          [](const EulerStep& step) { return std::isfinite(step.sigma) && std::isfinite(step.delta); },
      },
      coefficients);
}

}  // namespace

std::vector<StepCoefficients> step_coefficients(const SchedulerConfig& config,
                                                const NoiseSchedule& schedule) {
  std::vector<StepCoefficients> all;
  const CoefficientBuilder builder(config, schedule);
  const auto steps = static_cast<std::int64_t>(schedule.timesteps.size());
  for (std::int64_t i = 0; i < steps; ++i) {
    all.push_back(builder.step(i));
    if (!is_finite(all.back()))
      throw_refused("cannot run: step " + std::to_string(i + 1) + " of " + std::to_string(steps) +
                    " of this scheduler divides by zero, from a noise level of " +
                    std::to_string(schedule.sigmas[static_cast<std::size_t>(i)]) + " to one of " +
                    std::to_string(schedule.sigmas[static_cast<std::size_t>(i) + 1]) +
                    "; set lower_order_final, solver_type bh2 or another final_sigmas_type");
  }
  return all;
}

}  // namespace diffuse

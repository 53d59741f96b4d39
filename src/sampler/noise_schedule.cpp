#include "sampler/noise_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "core/error.hpp"
#include "core/exact_math.hpp"

namespace diffuse {
namespace {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

// numpy.linspace: the last is the stop itself.
Doubles linspace(double start, double stop, std::int64_t count) {
  Doubles values;
  const double step = count > 1 ? (stop - start) / static_cast<double>(count - 1) : 0;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i) * step + start);
  if (count > 1) values.back() = stop;
  return values;
}

// torch.linspace in f32: from both ends to the middle.
Floats torch_linspace(float start, float stop, std::int64_t count) {
  const float step = count > 1 ? (stop - start) / static_cast<float>(count - 1) : 0;
  Floats values;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool first_half = i < count / 2 || count == 1;
    values.push_back(first_half ? start + step * static_cast<float>(i)
                                : stop - step * static_cast<float>(count - i - 1));
  }
  return values;
}

// numpy.arange(start, 0, -step).
Doubles arange_down(double start, double step) {
  const double delta = (start - step) - start;
  Doubles values;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(std::ceil(start / step)); ++i)
    values.push_back(start + static_cast<double>(i) * delta);
  return values;
}

// To the nearest, halves to even; |x| < 2^51.
double rounded(double x) {
  constexpr double kPush = 0x1.8p52;
  return (x + kPush) - kPush;
}

float f32(double x) {
  return static_cast<float>(x);
}

class ScheduleBuilder {
 public:
  ScheduleBuilder(const SchedulerConfig& config, std::int64_t steps)
      : config_(config), steps_(steps), train_(static_cast<double>(config.train_steps)) {}

  NoiseSchedule build() {
    if (config_.kind == SchedulerKind::flow_euler) {
      flow_euler();
    } else {
      cumulate_alphas();
      if (config_.kind == SchedulerKind::euler) {
        euler();
      } else {
        multistep();
      }
    }
    NoiseSchedule schedule;
    for (const auto sigma : sigmas_) schedule.sigmas.push_back(f32(sigma));
    for (const auto timestep : timesteps_) schedule.timesteps.push_back(f32(timestep));
    return schedule;
  }

 private:
  // alphas_ and levels_ of the training steps.
  void cumulate_alphas() {
    double product = 1;
    for (const auto beta : betas()) {
      product *= static_cast<double>(1.0F - beta);
      alphas_.push_back(f32(product));
    }
    for (const auto alpha : alphas_) {
      const float level = std::sqrt((1 - alpha) / alpha);
      levels_.push_back(static_cast<double>(level));
      logs_.push_back(static_cast<double>(f32(exact::log(static_cast<double>(level)))));
    }
  }

  Floats betas() const {
    switch (config_.betas) {
      case BetaSchedule::linear:
        return torch_linspace(f32(config_.beta_start), f32(config_.beta_end), config_.train_steps);
      case BetaSchedule::scaled_linear: {
        auto roots = torch_linspace(f32(std::sqrt(config_.beta_start)), f32(std::sqrt(config_.beta_end)),
                                    config_.train_steps);
        for (auto& root : roots) root *= root;
        return roots;
      }
      case BetaSchedule::squared_cosine: {
        const auto bar = [](double t) {
          const double root = exact::cos((t + 0.008) / 1.008 * std::numbers::pi / 2);
          return root * root;
        };
        Floats values;
        for (std::int64_t i = 0; i < config_.train_steps; ++i) {
          const auto at = static_cast<double>(i);
          values.push_back(f32(std::min(1 - bar((at + 1) / train_) / bar(at / train_), 0.999)));
        }
        return values;
      }
    }
    throw_internal("a scheduler's betas lie in no way that exists");
  }

  double shifted(double sigma) const { return config_.shift * sigma / (1 + (config_.shift - 1) * sigma); }

  void bring_to_terminal() {
    if (config_.shift_terminal == 0) return;
    const double factor = (1 - sigmas_.back()) / (1 - config_.shift_terminal);
    for (auto& sigma : sigmas_) sigma = 1 - (1 - sigma) / factor;
  }

  // Whole steps of the training's, first to last.
  void spaced_timesteps() {
    const auto last = config_.least_lambda ? train_ - static_cast<double>(clipped()) : train_;
    const auto count = static_cast<double>(steps_);
    switch (config_.timesteps) {
      case TimestepSpacing::linspace: {
        const auto all = linspace(0, last - 1, steps_ + 1);
        for (std::int64_t i = steps_; i > 0; --i)
          timesteps_.push_back(rounded(all[static_cast<std::size_t>(i)]));
        break;
      }
      case TimestepSpacing::leading: {
        const auto ratio = static_cast<std::int64_t>(last) / (steps_ + 1);
        for (std::int64_t i = steps_; i > 0; --i)
          timesteps_.push_back(static_cast<double>(i * ratio + config_.steps_offset));
        break;
      }
      case TimestepSpacing::trailing:
        for (const auto at : arange_down(last, train_ / count)) timesteps_.push_back(rounded(at) - 1);
        break;
    }
  }

  // How many of the training's levels have a log-SNR under the least.
  std::int64_t clipped() const {
    return std::count_if(alphas_.begin(), alphas_.end(), [&](float alpha) {
      const float signal = f32(exact::log(static_cast<double>(std::sqrt(alpha))));
      const float noise = f32(exact::log(static_cast<double>(std::sqrt(1 - alpha))));
      return static_cast<double>(signal - noise) < *config_.least_lambda;
    });
  }

  // numpy.interp over the training's levels.
  double level_at(double timestep) const {
    const auto most = static_cast<double>(levels_.size() - 1);
    if (timestep <= 0) return levels_.front();
    if (timestep >= most) return levels_.back();
    const auto low = static_cast<std::size_t>(timestep);
    const double slope = levels_[low + 1] - levels_[low];
    return slope * (timestep - static_cast<double>(low)) + levels_[low];
  }

  // The timestep of a level, between the training's by the logarithm.
  double timestep_of(double sigma) const {
    // The last bits of a logarithm must not make the last timestep the one before it.
    if (sigma >= levels_.back() * (1 - 1e-7)) return train_ - 1;
    const double log = exact::log(std::max(sigma, 1e-10));
    const auto above = std::upper_bound(logs_.begin(), logs_.end(), log) - logs_.begin();
    auto low = static_cast<std::size_t>(std::max<std::ptrdiff_t>(above, 1) - 1);
    low = std::min(low, logs_.size() - 2);
    const double weight = std::clamp((logs_[low] - log) / (logs_[low] - logs_[low + 1]), 0.0, 1.0);
    return (1 - weight) * static_cast<double>(low) + weight * static_cast<double>(low + 1);
  }

  // Levels between two, by Karras et al. (arXiv 2206.00364, eq. 5) or by equal factors.
  void space(double first, double last) {
    const double most = config_.sigma_max.value_or(first);
    const double least = config_.sigma_min.value_or(last);
    sigmas_.clear();
    if (config_.spacing == SigmaSpacing::exponential) {
      for (const auto log : linspace(exact::log(most), exact::log(least), steps_))
        sigmas_.push_back(exact::exp(log));
      return;
    }
    constexpr double kRho = 7;
    const double from = exact::pow(most, 1 / kRho);
    const double to = exact::pow(least, 1 / kRho);
    for (const auto part : linspace(0, 1, steps_))
      sigmas_.push_back(exact::pow(from + part * (to - from), kRho));
  }

  void end(double least) { sigmas_.push_back(config_.ends_at_zero ? 0 : least); }

  void multistep() {
    spaced_timesteps();
    const bool unipc = config_.kind == SchedulerKind::unipc;
    if (config_.spacing != SigmaSpacing::given) {
      space(levels_.back(), levels_.front());
      const bool of_flow = unipc && config_.flow_sigmas && config_.spacing == SigmaSpacing::karras;
      timesteps_.clear();
      for (auto& sigma : sigmas_) {
        if (of_flow) sigma = sigma / (sigma + 1);
        const double timestep = of_flow ? sigma * train_ : timestep_of(sigma);
        const bool whole = config_.spacing == SigmaSpacing::karras && !of_flow &&
                           (unipc || config_.betas != BetaSchedule::squared_cosine);
        timesteps_.push_back(whole ? rounded(timestep) : timestep);
      }
      end(unipc ? sigmas_.back() : levels_.front());
    } else if (config_.flow_sigmas) {
      if (unipc) {
        unipc_flow();
      } else {
        dpm_flow();
      }
      timesteps_.clear();
      for (const auto sigma : sigmas_) timesteps_.push_back(sigma * train_);
      end(unipc ? sigmas_.back() : levels_.front());
    } else {
      sigmas_.clear();
      for (const auto timestep : timesteps_) sigmas_.push_back(level_at(timestep));
      end(levels_.front());
    }
    for (auto& timestep : timesteps_) timestep = std::trunc(timestep);
  }

  void unipc_flow() {
    constexpr double kBelowOne = 1e-6;
    sigmas_ = linspace(1, 1 / train_, steps_ + 1);
    sigmas_.pop_back();
    for (auto& sigma : sigmas_) sigma = shifted(sigma);
    bring_to_terminal();
    if (std::abs(sigmas_.front() - 1) < kBelowOne) sigmas_.front() -= kBelowOne;
  }

  void dpm_flow() {
    const auto alphas = linspace(1, 1 / train_, steps_ + 1);
    sigmas_.clear();
    for (std::size_t i = alphas.size() - 1; i > 0; --i) sigmas_.push_back(shifted(1 - alphas[i]));
  }

  // The levels of the training are shifted in f32, and those of the run once more.
  void flow_euler() {
    const auto trained = [&](double timestep) {
      const float sigma = f32(timestep) / f32(train_);
      return static_cast<double>(f32(config_.shift) * sigma / (1 + f32(config_.shift - 1) * sigma));
    };
    for (const auto timestep : linspace(trained(train_) * train_, trained(1) * train_, steps_))
      sigmas_.push_back(shifted(timestep / train_));
    bring_to_terminal();
    if (config_.spacing != SigmaSpacing::given) space(sigmas_.front(), sigmas_.back());
    for (auto& sigma : sigmas_) {
      const float single = config_.inverted ? 1 - f32(sigma) : f32(sigma);
      sigma = static_cast<double>(single);
      timesteps_.push_back(static_cast<double>(single * f32(train_)));
    }
    sigmas_.push_back(config_.inverted ? 1 : 0);
  }

  void euler() {
    const auto count = static_cast<double>(steps_);
    switch (config_.timesteps) {
      case TimestepSpacing::linspace:
        for (const auto timestep : linspace(0, train_ - 1, steps_))
          timesteps_.insert(timesteps_.begin(), timestep);
        break;
      case TimestepSpacing::leading: {
        const auto ratio = config_.train_steps / steps_;
        for (std::int64_t i = steps_ - 1; i >= 0; --i)
          timesteps_.push_back(static_cast<double>(i * ratio + config_.steps_offset));
        break;
      }
      case TimestepSpacing::trailing:
        for (const auto at : arange_down(train_, train_ / count)) timesteps_.push_back(rounded(at) - 1);
        break;
    }
    for (auto& timestep : timesteps_) timestep = static_cast<double>(f32(timestep));
    if (config_.log_linear) {
      for (const auto log : torch_linspace(f32(logs_.back()), f32(logs_.front()), steps_ + 1))
        sigmas_.push_back(static_cast<double>(f32(exact::exp(static_cast<double>(log)))));
    } else {
      for (const auto timestep : timesteps_) sigmas_.push_back(level_at(timestep));
    }
    if (config_.spacing != SigmaSpacing::given) {
      space(sigmas_.front(), sigmas_.back());
      timesteps_.clear();
      for (const auto sigma : sigmas_) timesteps_.push_back(timestep_of(sigma));
    } else if (config_.log_linear) {
      return;  // the least level is where the last step leads to
    }
    end(levels_.front());
  }

  const SchedulerConfig& config_;
  std::int64_t steps_;
  double train_;
  Floats alphas_;
  Doubles levels_, logs_;  // of the training's steps
  Doubles sigmas_, timesteps_;
};

}  // namespace

NoiseSchedule noise_schedule(const SchedulerConfig& config, std::int64_t steps) {
  if (steps > config.train_steps)
    throw_refused("cannot run: " + std::to_string(steps) + " steps of a scheduler that was trained over " +
                  std::to_string(config.train_steps));
  auto schedule = ScheduleBuilder(config, steps).build();
  const auto count = static_cast<std::size_t>(steps);
  if (schedule.timesteps.size() != count || schedule.sigmas.size() != count + 1)
    throw_refused("cannot run: the scheduler makes " + std::to_string(schedule.timesteps.size()) +
                  " steps where " + std::to_string(steps) + " were asked for; take another number");
  return schedule;
}

}  // namespace diffuse

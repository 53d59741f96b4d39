#include "media/resample.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>

#include "core/error.hpp"
#include "core/exact_math.hpp"
#include "core/sound.hpp"

namespace diffuse::media {
namespace {

constexpr double kZeroCrossings = 64;
constexpr double kBeta = 10;
constexpr double kRollOff = 0.95;  // the middle of the falling edge, of the lower Nyquist frequency
constexpr std::size_t kLanes = 4;

// The modified Bessel function of order 0, by its series.
double bessel_0(double x) {
  const double half = x / 2;
  double term = 1;
  double sum = 1;
  for (double k = 1; term > 1e-18 * sum; ++k) {
    term *= (half / k) * (half / k);
    sum += term;
  }
  return sum;
}

double sinc(double x) {
  if (x == 0) return 1;
  const double angle = std::numbers::pi * x;
  return exact::sin(angle) / angle;
}

void check_rate(std::int64_t rate) {
  if (rate < kLowestRate || rate > kHighestRate)
    throw_bad_data("a rate of " + std::to_string(rate) + " samples a second is not within " +
                   std::to_string(kLowestRate) + " to " + std::to_string(kHighestRate));
}

// The weights of one place between two input samples, again and again the same for each `up`-th output.
class Kernel {
 public:
  Kernel(std::uint64_t up, std::uint64_t down)
      : scale_(up < down ? static_cast<double>(up) / static_cast<double>(down) : 1.0),
        half_(static_cast<std::int64_t>(std::ceil(kZeroCrossings / scale_))),
        taps_(static_cast<std::size_t>(2 * half_)) {}

  std::int64_t half() const { return half_; }
  std::size_t taps() const { return taps_; }

  // For an output `fraction` (0 to 1) behind input sample b: the weights of b - half + 1 to b + half. They
  // sum to 1, so that a constant stays one.
  void row(double fraction, float* weights) const {
    const double width = kZeroCrossings / scale_;
    std::vector<double> values(taps_);
    double sum = 0;
    for (std::size_t i = 0; i < taps_; ++i) {
      const double t = static_cast<double>(static_cast<std::int64_t>(i) - half_ + 1) - fraction;
      const double inside = 1 - (t / width) * (t / width);
      if (inside > 0) values[i] = sinc(t * scale_ * kRollOff) * bessel_0(kBeta * std::sqrt(inside));
      sum += values[i];
    }
    for (std::size_t i = 0; i < taps_; ++i) weights[i] = static_cast<float>(values[i] / sum);
  }

 private:
  double scale_;
  std::int64_t half_;
  std::size_t taps_;
};

double weighted_sum(std::span<const float> samples, std::int64_t first, const float* weights,
                    std::size_t taps) {
  const auto end = static_cast<std::int64_t>(samples.size());
  std::array<double, kLanes> sums{};
  // Away from the ends no sample is missing; both ways add the same products in the same order.
  if (first >= 0 && first + static_cast<std::int64_t>(taps) <= end) {
    const float* data = samples.data() + first;
    for (std::size_t i = 0; i + kLanes <= taps; i += kLanes)
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        sums[lane] += static_cast<double>(weights[i + lane]) * static_cast<double>(data[i + lane]);
    for (std::size_t i = taps - taps % kLanes; i < taps; ++i)
      sums[i % kLanes] += static_cast<double>(weights[i]) * static_cast<double>(data[i]);
  } else {
    for (std::size_t i = 0; i < taps; ++i) {
      const auto at = first + static_cast<std::int64_t>(i);
      if (at >= 0 && at < end)
        sums[i % kLanes] +=
            static_cast<double>(weights[i]) * static_cast<double>(samples[static_cast<std::size_t>(at)]);
    }
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace

std::vector<float> resample(std::span<const float> samples, std::int64_t from, std::int64_t to) {
  check_rate(from);
  check_rate(to);
  if (from == to) return {samples.begin(), samples.end()};
  const auto common = static_cast<std::uint64_t>(std::gcd(from, to));
  const std::uint64_t up = static_cast<std::uint64_t>(to) / common;
  const std::uint64_t down = static_cast<std::uint64_t>(from) / common;
  const std::uint64_t outputs = (samples.size() * up + down - 1) / down;

  // Output n lies (n * down) / up input samples in; its fraction repeats every `up` outputs.
  const Kernel kernel(up, down);
  const std::uint64_t rows = std::min(up, outputs);
  std::vector<float> weights(rows * kernel.taps());
  for (std::uint64_t n = 0; n < rows; ++n)
    kernel.row(static_cast<double>(n * down % up) / static_cast<double>(up), &weights[n * kernel.taps()]);

  std::vector<float> out(outputs);
  for (std::uint64_t n = 0; n < outputs; ++n) {
    const auto first = static_cast<std::int64_t>(n * down / up) - kernel.half() + 1;
    out[n] =
        static_cast<float>(weighted_sum(samples, first, &weights[(n % up) * kernel.taps()], kernel.taps()));
  }
  return out;
}

}  // namespace diffuse::media

#include "media/log_mel.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <kissfft/kissfft.hh>
#include <numbers>

#include "core/error.hpp"
#include "core/exact_math.hpp"

namespace diffuse::media {
namespace {

constexpr std::size_t kFft = 400;
constexpr std::size_t kFrequencies = kFft / 2 + 1;
constexpr std::int64_t kHalf = kFft / 2;
constexpr double kHighest = 8000;
constexpr double kQuietest = 1e-10;
constexpr float kRange = 8;
constexpr std::size_t kFramesATask = 64;

// Slaney's mel scale: linear to 1 kHz, logarithmic from there.
constexpr double kLinearStep = 200.0 / 3;
constexpr double kBreakHz = 1000;
constexpr double kBreakMel = kBreakHz / kLinearStep;

double log_step() {
  return exact::log(6.4) / 27;
}
double mel_of(double hz) {
  return hz < kBreakHz ? hz / kLinearStep : kBreakMel + exact::log(hz / kBreakHz) / log_step();
}
double hz_of(double mel) {
  return mel < kBreakMel ? mel * kLinearStep : kBreakHz * exact::exp(log_step() * (mel - kBreakMel));
}

// A triangle over the frequencies [first, first + weights).
struct Filter {
  std::size_t first = 0;
  std::vector<double> weights;
};

std::vector<Filter> filters_of(std::int64_t bins) {
  std::vector<double> edges(static_cast<std::size_t>(bins) + 2);
  const double step = mel_of(kHighest) / static_cast<double>(bins + 1);
  for (std::size_t i = 0; i < edges.size(); ++i) edges[i] = hz_of(static_cast<double>(i) * step);
  std::vector<Filter> filters(static_cast<std::size_t>(bins));
  for (std::size_t bin = 0; bin < filters.size(); ++bin) {
    const double low = edges[bin];
    const double middle = edges[bin + 1];
    const double high = edges[bin + 2];
    for (std::size_t k = 0; k < kFrequencies; ++k) {
      const double hz = kHighest * static_cast<double>(k) / static_cast<double>(kFrequencies - 1);
      const double weight = std::min((hz - low) / (middle - low), (high - hz) / (high - middle));
      if (weight <= 0) continue;
      if (filters[bin].weights.empty()) filters[bin].first = k;
      filters[bin].weights.push_back(weight * 2 / (high - low));
    }
  }
  return filters;
}

}  // namespace

struct LogMel::Tables {
  // kissfft takes its rotations from libm: those of 400 points are the same in all of glibc's versions of sin
  // and cos (a test holds them), and the order of its additions is fixed.
  kissfft<double> fft{kFft, false};
  std::array<double, kFft> window{};
  std::vector<Filter> filters;
};

namespace {

// Sample `at` of a recording whose ends are mirrored.
double mirrored(std::span<const float> samples, std::int64_t count, std::int64_t at) {
  if (at < 0) at = -at;
  if (at >= count) at = 2 * (count - 1) - at;
  return at < static_cast<std::int64_t>(samples.size())
             ? static_cast<double>(samples[static_cast<std::size_t>(at)])
             : 0.0;
}

float log_10(double power) {
  return static_cast<float>(exact::log(std::max(power, kQuietest)) / std::numbers::ln10);
}

}  // namespace

LogMel::LogMel(std::int64_t bins) {
  if (bins < 1) throw_internal("log-mel features of " + std::to_string(bins) + " bins were asked for");
  auto tables = std::make_unique<Tables>();
  for (std::size_t i = 0; i < kFft; ++i)
    tables->window[i] =
        0.5 - 0.5 * exact::cos(2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(kFft));
  tables->filters = filters_of(bins);
  tables_ = std::move(tables);
}
LogMel::~LogMel() = default;
LogMel::LogMel(LogMel&&) noexcept = default;
LogMel& LogMel::operator=(LogMel&&) noexcept = default;

std::int64_t LogMel::bins() const {
  return static_cast<std::int64_t>(tables_->filters.size());
}

MelFrames LogMel::operator()(std::span<const float> samples, ThreadPool& pool) const {
  const std::int64_t count =
      std::max<std::int64_t>(static_cast<std::int64_t>(samples.size()), kWindowSamples);
  MelFrames mel;
  mel.bins = bins();
  mel.frames = count / kMelHop;
  const auto frames = static_cast<std::size_t>(mel.frames);
  mel.values.resize(tables_->filters.size() * frames);

  const auto frame_of = [&](std::size_t frame) {
    std::array<std::complex<double>, kFft> in;
    std::array<std::complex<double>, kFft> out;
    const auto first = static_cast<std::int64_t>(frame) * kMelHop - kHalf;
    for (std::size_t i = 0; i < kFft; ++i)
      in[i] = tables_->window[i] * mirrored(samples, count, first + static_cast<std::int64_t>(i));
    tables_->fft.transform(in.data(), out.data());
    std::array<double, kFrequencies> power;
    for (std::size_t k = 0; k < kFrequencies; ++k)
      power[k] = out[k].real() * out[k].real() + out[k].imag() * out[k].imag();
    for (std::size_t bin = 0; bin < tables_->filters.size(); ++bin) {
      const Filter& filter = tables_->filters[bin];
      double sum = 0;
      for (std::size_t k = 0; k < filter.weights.size(); ++k)
        sum += filter.weights[k] * power[filter.first + k];
      mel.values[bin * frames + frame] = log_10(sum);
    }
  };
  pool.parallel_for((frames + kFramesATask - 1) / kFramesATask, [&](std::size_t task, int) {
    const std::size_t end = std::min(frames, (task + 1) * kFramesATask);
    for (std::size_t frame = task * kFramesATask; frame < end; ++frame) frame_of(frame);
  });

  const float lowest = *std::ranges::max_element(mel.values) - kRange;
  for (auto& value : mel.values) value = (std::max(value, lowest) + 4.0F) / 4.0F;
  return mel;
}

std::vector<float> mel_window(const MelFrames& mel, std::int64_t seek, std::int64_t frames) {
  if (seek < 0 || frames < 0 || frames > kWindowFrames || seek + frames > mel.frames)
    throw_internal("a window of " + std::to_string(frames) + " frames at " + std::to_string(seek) +
                   " lies outside a recording of " + std::to_string(mel.frames));
  std::vector<float> window(static_cast<std::size_t>(mel.bins * kWindowFrames));
  for (std::int64_t bin = 0; bin < mel.bins; ++bin)
    std::copy_n(mel.values.begin() + bin * mel.frames + seek, frames, window.begin() + bin * kWindowFrames);
  return window;
}

std::vector<float> frames_first(const std::vector<float>& window, std::int64_t bins) {
  const auto frames = static_cast<std::int64_t>(window.size()) / bins;
  std::vector<float> turned(window.size());
  for (std::int64_t bin = 0; bin < bins; ++bin) {
    for (std::int64_t frame = 0; frame < frames; ++frame)
      turned[static_cast<std::size_t>(frame * bins + bin)] =
          window[static_cast<std::size_t>(bin * frames + frame)];
  }
  return turned;
}

}  // namespace diffuse::media

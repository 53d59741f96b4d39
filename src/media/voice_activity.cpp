#include "media/voice_activity.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/exact_math.hpp"
#include "media/log_mel.hpp"

namespace diffuse::media {
namespace {

constexpr std::int64_t kFrame = kSpeechRate / 50;  // 20 ms
constexpr double kSilentDb = -120;
constexpr double kFlat = 9;          // dB between quiet and loud: less is one loudness throughout
constexpr double kAboveFloor = 0.3;  // of the way from quiet to loud
constexpr double kBelowLoud = 30;    // dB below the loud parts nothing is speech

// The loudness of each whole or begun frame, dB below full scale.
std::vector<double> loudness_of(std::span<const float> samples) {
  std::vector<double> levels;
  for (std::size_t first = 0; first < samples.size(); first += kFrame) {
    const auto frame = samples.subspan(first, std::min<std::size_t>(kFrame, samples.size() - first));
    double mean = 0;
    for (const auto sample : frame) mean += static_cast<double>(sample);
    mean /= static_cast<double>(frame.size());
    double power = 0;  // about the mean: a constant offset is no sound
    for (const auto sample : frame) {
      const double value = static_cast<double>(sample) - mean;
      power += value * value;
    }
    power /= static_cast<double>(frame.size());
    levels.push_back(power > 1e-12 ? 10 * exact::log(power) / std::numbers::ln10 : kSilentDb);
  }
  return levels;
}

double quantile(std::vector<double> values, double part) {
  const auto at = static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<std::size_t>(at)];
}

double threshold_of(const std::vector<double>& levels, double quietest) {
  const double quiet = std::max(quantile(levels, 0.1), quietest - 10);
  const double loud = quantile(levels, 0.95);
  if (loud - quiet < kFlat) return quietest;
  return std::max({quietest, quiet + kAboveFloor * (loud - quiet), loud - kBelowLoud});
}

std::int64_t samples_in(double seconds) {
  return static_cast<std::int64_t>(std::llround(seconds * kSpeechRate));
}

// Runs of loud frames, in samples.
std::vector<Stretch> loud_runs(const std::vector<double>& levels, double threshold, std::int64_t count) {
  std::vector<Stretch> runs;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (levels[i] <= threshold) continue;
    const auto begin = static_cast<std::int64_t>(i) * kFrame;
    const auto end = std::min(begin + kFrame, count);
    if (!runs.empty() && runs.back().end == begin) {
      runs.back().end = end;
    } else {
      runs.push_back({begin, end});
    }
  }
  return runs;
}

std::vector<Stretch> joined(std::span<const Stretch> runs, std::int64_t gap) {
  std::vector<Stretch> out;
  for (const auto& run : runs) {
    if (!out.empty() && run.begin - out.back().end < gap) {
      out.back().end = run.end;
    } else {
      out.push_back(run);
    }
  }
  return out;
}

// The quietest frame's first sample within [from, to).
std::int64_t quietest_place(std::span<const float> samples, std::int64_t from, std::int64_t to) {
  const auto levels =
      loudness_of(samples.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)));
  const auto lowest = std::ranges::min_element(levels) - levels.begin();
  return from + lowest * kFrame;
}

}  // namespace

std::vector<Stretch> speech_stretches(std::span<const float> samples, const VoiceActivity& options) {
  if (samples.empty()) return {};
  const auto count = static_cast<std::int64_t>(samples.size());
  const auto levels = loudness_of(samples);
  const auto runs = loud_runs(levels, threshold_of(levels, options.quietest_db), count);
  // Short pauses first, so that the words between them count as one; then what stays short is no speech.
  auto stretches = joined(runs, samples_in(std::min(options.min_silence, 0.3)));
  std::erase_if(stretches,
                [&](const Stretch& s) { return s.end - s.begin < samples_in(options.min_speech); });
  stretches = joined(stretches, samples_in(options.min_silence));
  for (auto& stretch : stretches) {
    stretch.begin = std::max<std::int64_t>(0, stretch.begin - samples_in(options.padding));
    stretch.end = std::min(count, stretch.end + samples_in(options.padding));
  }
  return joined(stretches, 1);
}

std::vector<Stretch> pieces_of(std::span<const float> samples, std::span<const Stretch> stretches,
                               std::int64_t most) {
  std::vector<Stretch> pieces;
  for (auto stretch : stretches) {
    while (stretch.end - stretch.begin > most) {
      const auto cut = quietest_place(samples, stretch.begin + most * 2 / 3, stretch.begin + most);
      pieces.push_back({stretch.begin, cut});
      stretch.begin = cut;
    }
    if (!pieces.empty() && stretch.end - pieces.back().begin <= most) {
      pieces.back().end = stretch.end;
    } else {
      pieces.push_back(stretch);
    }
  }
  return pieces;
}

Condensed::Condensed(std::span<const float> samples, std::span<const Stretch> stretches)
    : stretches_(stretches.begin(), stretches.end()) {
  for (const auto& stretch : stretches_)
    samples_.insert(samples_.end(), samples.begin() + stretch.begin, samples.begin() + stretch.end);
}

double Condensed::original(double time, bool ends) const {
  double before = 0;
  for (const auto& stretch : stretches_) {
    const double length = static_cast<double>(stretch.end - stretch.begin) / kSpeechRate;
    const bool last = &stretch == &stretches_.back();
    if (time < before + length || (ends && time <= before + length) || last)
      return static_cast<double>(stretch.begin) / kSpeechRate + (time - before);
    before += length;
  }
  return time;
}

}  // namespace diffuse::media

#pragma once
// Log-mel features of speech at 16 kHz, as Whisper's feature extractor computes them: windows of 400 samples
// (Hann) every 160, mel filters after Slaney from 0 to 8 kHz, log10 of the power, at most 8 below the loudest
// value of the recording, then (x + 4) / 4. Formula: transformers' WhisperFeatureExtractor.
//
// The arithmetic is in double with a fixed order, so the features depend on the samples alone: not on
// threads, not on the machine.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/thread_pool.hpp"

namespace diffuse::media {

inline constexpr std::int32_t kSpeechRate = 16'000;
inline constexpr std::int64_t kMelHop = 160;         // samples a frame
inline constexpr std::int64_t kWindowFrames = 3000;  // what the encoder takes at a time: 30 s
inline constexpr std::int64_t kWindowSamples = kWindowFrames * kMelHop;
inline constexpr std::int64_t kFramesPerSecond = kSpeechRate / kMelHop;

// Features of a whole recording.
struct MelFrames {
  std::int64_t bins = 0;
  std::int64_t frames = 0;
  std::vector<float> values;  // [bins, frames]
};

class LogMel {
 public:
  // `bins` mel filters (80 or 128 in Whisper's models). Throws internal where bins < 1.
  explicit LogMel(std::int64_t bins);
  ~LogMel();
  LogMel(LogMel&&) noexcept;
  LogMel& operator=(LogMel&&) noexcept;

  std::int64_t bins() const;

  // Features of samples at 16 kHz: one frame each 160 samples. A recording shorter than 30 s is filled up
  // with silence first, so there are never fewer than 3000 frames. The pool only shares the work out.
  MelFrames operator()(std::span<const float> samples, ThreadPool& pool) const;

 private:
  struct Tables;
  std::unique_ptr<const Tables> tables_;
};

// The window that begins at `seek` and holds `frames` frames of the recording (at most 3000), filled up with
// zeros as both reference implementations do: [bins, 3000]. Throws internal where it lies outside.
std::vector<float> mel_window(const MelFrames& mel, std::int64_t seek, std::int64_t frames);

// [bins, frames] -> [frames, bins], as an encoder reads them.
std::vector<float> frames_first(const std::vector<float>& window, std::int64_t bins);

}  // namespace diffuse::media

#pragma once
// Finding speech by its energy, so that silence is not decoded. Small and fixed: no model, the same bits
// everywhere. It looks at 20 ms frames and calls those loud that stand out from the recording's quiet parts.

#include <cstdint>
#include <span>
#include <vector>

namespace diffuse::media {

struct VoiceActivity {
  double min_silence = 2.0;  // seconds; a shorter pause stays within the speech
  double min_speech = 0.25;  // seconds; what is shorter between two silences is a click
  double padding = 0.4;      // seconds kept on both sides
  double quietest_db = -60;  // below full scale: never speech
};

// Samples [begin, end).
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const Stretch&) const = default;
};

// The stretches with speech, in order, apart from each other. Samples at 16 kHz. Silence gives none; a
// recording of one loudness throughout (music, hum) is one stretch if it is loud enough to be heard.
std::vector<Stretch> speech_stretches(std::span<const float> samples, const VoiceActivity& options = {});

// Joins stretches to pieces of at most `most` samples, each to be decoded by itself; a stretch that is longer
// is cut where it is quietest in the last third of what fits.
std::vector<Stretch> pieces_of(std::span<const float> samples, std::span<const Stretch> stretches,
                               std::int64_t most);

// A recording without its silences, and where its seconds were before.
class Condensed {
 public:
  Condensed(std::span<const float> samples, std::span<const Stretch> stretches);

  const std::vector<float>& samples() const { return samples_; }
  // The second of the original that second `time` of the condensed recording was. A time on a seam belongs to
  // what ends there with `ends`, and otherwise to what begins.
  double original(double time, bool ends) const;

 private:
  std::vector<float> samples_;
  std::vector<Stretch> stretches_;
};

}  // namespace diffuse::media

#pragma once
// Silence around words that were likely never said: a model that hears nothing tends to say something, in
// words that are improbable, very short or very long. Pure. Behaviour: openai-whisper's
// `hallucination_silence_threshold`.

#include <cstdint>
#include <optional>
#include <span>

#include "core/transcript.hpp"

namespace diffuse {

// Where a window lies; seconds of the recording.
struct WindowPlace {
  double begin = 0;
  double end = 0;        // of what is in it
  double whole_end = 0;  // if it were as long as windows are
  double recording_end = 0;
};

struct SkippedSilence {
  std::size_t keep = 0;        // so many segments stay
  std::optional<double> next;  // where the next window begins, if not where it would have; seconds
  bool nothing = false;  // the window counts as not decoded: what stands before its first word is skipped
};

// `segments` of one window, with their words and times as place_words leaves them. `last_speech`: when the
// last word before the window ended. `threshold`: seconds of silence.
SkippedSilence skip_silence(std::span<const TranscriptSegment> segments, const WindowPlace& window,
                            double last_speech, double threshold);

}  // namespace diffuse

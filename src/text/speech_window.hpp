#pragma once
// What becomes of a decoded window: is it good enough, where are its segments, where does the next one begin.
// Pure functions. Behaviour: openai-whisper's transcribe.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "text/speech_tokens.hpp"

namespace diffuse {

inline constexpr double kFramesASecond = 100;  // of sound, as windows count them

// Bytes of the text over its bytes as zlib packs them: high where the text repeats itself. 0 for none.
double compression_ratio(std::string_view text);

// Mean log-probability a token, where `sum` is that of `tokens` tokens and of the end behind them.
double average_logprob(double sum, std::size_t tokens);

struct FallbackLimits {
  std::optional<double> compression_ratio = 2.4;  // above: too repetitive
  std::optional<double> logprob = -1.0;           // below: too unsure
  std::optional<double> no_speech = 0.6;          // above, and too unsure: silence
};

struct WindowScores {
  double avg_logprob = 0;
  double compression_ratio = 0;
  double no_speech_prob = 0;
};

enum class WindowVerdict {
  keep,
  retry,   // decode again at the next temperature; the last attempt is kept
  silent,  // nothing is said here
};

// `last`: no temperature is left.
WindowVerdict judge(const WindowScores& scores, const FallbackLimits& limits, bool last);

// Tokens [first, last) of a window, and its times in seconds from the window's begin.
struct CutSegment {
  std::size_t first = 0;
  std::size_t last = 0;
  double start = 0;
  double end = 0;
  bool operator==(const CutSegment&) const = default;
};

struct WindowCut {
  std::vector<CutSegment> segments;
  std::int64_t advance = 0;  // frames (10 ms) to the next window, at least 1
  bool to_the_end = false;   // a single timestamp at the end: nothing is said behind it
  // Tokens that count as said: all, or up to the second timestamp of the last pair (what stands behind is
  // decoded again in the next window). transformers' sequences are these, window by window.
  std::size_t said = 0;
};

// Cuts a window's tokens (without prompt and end) at its pairs of timestamps. `frames` of the recording are
// in the window.
WindowCut cut_window(std::span<const std::int32_t> chosen, const SpeechTokens& tokens, std::int64_t frames);

}  // namespace diffuse

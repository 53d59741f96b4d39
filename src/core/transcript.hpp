#pragma once
// What was said in a recording, and when. Values only: text/ makes them, job/ keeps and writes them.

#include <cstdint>
#include <string>
#include <vector>

namespace diffuse {

struct TranscriptWord {
  std::string word;  // with the space in front of it, where there is one
  double start = 0;  // seconds from the recording's start
  double end = 0;
  double probability = 0;  // mean over its tokens
};

struct TranscriptSegment {
  std::int64_t seek = 0;  // frame (10 ms) at which the window begins that it was decoded in
  double start = 0;       // seconds
  double end = 0;
  std::string text;
  std::vector<std::int32_t> tokens;  // timestamps among them
  std::string language;              // code ("en"); empty for a model of one language
  double temperature = 0;            // of the attempt that was kept
  double avg_logprob = 0;            // a token of the window, its end counted
  double compression_ratio = 0;      // of the window's text
  double no_speech_prob = 0;         // of the window
  std::vector<TranscriptWord> words;
};

struct Transcript {
  std::string text;
  std::string language;             // code; the first window's where each has its own
  double language_probability = 0;  // 1 where it was given
  bool with_words = false;          // words were asked for
  double duration = 0;              // seconds of the recording
  std::vector<TranscriptSegment> segments;
};

}  // namespace diffuse

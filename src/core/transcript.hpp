#pragma once
// What was said in a recording, and when. Values only: text/ makes them, job/ keeps and writes them.

#include <cstdint>
#include <map>
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

// What a finished window added to a recording that is under way, and where the next one begins. All windows
// from the first one on are all that is needed to go on: random numbers are keyed, not drawn.
struct TranscriptWindow {
  std::int64_t next = 0;                    // frame at which the next window begins
  std::int64_t clip = 0;                    // the stretch of the recording that it is of
  std::string language;                     // code that it was decoded in; empty for a model of one language
  double language_probability = 0;          // as it was found, or 1
  bool forget = false;                      // what was said up to here is not shown to later windows
  bool cut = false;                         // it had no room for all that it would have said
  double last_speech = 0;                   // seconds: when the last word so far ended
  std::vector<std::int32_t> said;           // tokens that count as said
  std::vector<TranscriptSegment> segments;  // none where nothing is said
};

// What there is of a recording that is under way: of each of its pieces, by number, the windows that are
// finished, from the first one on.
using KeptWindows = std::map<std::uint64_t, std::vector<TranscriptWindow>>;

}  // namespace diffuse

#pragma once
// What a job says about transcribing: the keys of `generate` that only speech has, by the names and with the
// defaults that faster-whisper's and openai-whisper's users know.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.hpp"
#include "text/speech_prompt.hpp"
#include "text/speech_window.hpp"
#include "text/speech_words.hpp"

namespace diffuse {

// What is speech and what is silence, in milliseconds where not said otherwise; nothing: the default.
struct VoiceLimits {
  std::optional<double> min_silence;
  std::optional<double> min_speech;
  std::optional<double> padding;
  std::optional<double> quietest_db;  // below full scale
};

struct SpeechOptions {
  std::string language;  // code; empty: found from the first window
  SpeechTask task = SpeechTask::transcribe;
  bool multilingual = false;                                      // find the language of each window anew
  std::vector<double> temperatures = {0, 0.2, 0.4, 0.6, 0.8, 1};  // tried in order
  std::int64_t beam_size = 5;                                     // at temperature 0; 1: greedy
  std::int64_t best_of = 5;              // samples at other temperatures, of which the best is kept
  double patience = 1;                   // finished beams to wait for, in beam sizes
  std::optional<double> length_penalty;  // nothing: mean over the tokens; else ((5 + n) / 6) ^ this
  double repetition_penalty = 1;
  std::int64_t no_repeat_ngram_size = 0;
  FallbackLimits limits;  // compression_ratio_threshold, log_prob_threshold, no_speech_threshold
  bool condition_on_previous_text = true;
  double prompt_reset_on_temperature = 0.5;  // above: earlier text is no longer shown
  std::string initial_prompt;
  std::vector<std::int32_t> initial_tokens;  // the same as token ids; then the text is empty
  bool carry_initial_prompt = false;         // in front of every window, not of the first ones alone
  std::string prefix;                        // of the first window; shown, and not part of the answer
  std::string hotwords;
  bool suppress_blank = true;
  // Nothing: the checkpoint's. An id of -1 stands for those too.
  std::optional<std::vector<std::int32_t>> suppress_tokens;
  bool without_timestamps = false;
  // Seconds; nothing: the checkpoint's max_initial_timestamp_index, else 1. Infinity: no limit.
  std::optional<double> max_initial_timestamp;
  bool word_timestamps = false;
  WordOptions words;  // prepend_punctuations, append_punctuations
  // Seconds; where words were asked for, silence longer than that is skipped around words that are likely
  // none.
  std::optional<double> hallucination_silence_threshold;
  std::vector<double> clips;          // seconds: begin, end, begin, …; the last end may be left out
  std::int64_t chunk_length = 30;     // seconds: of a window, and the most of a piece
  std::int64_t language_windows = 1;  // by so many windows the language is found at most,
  double language_threshold = 0.5;    // fewer where one is as sure as that
  bool vad_filter = false;            // leave silence out
  VoiceLimits vad;                    // vad_parameters
  bool batched = false;               // windows by silences, decoded side by side without earlier text
  std::optional<std::int64_t> max_new_tokens;  // of a window
};

// True for a key of `generate` that is speech's alone.
bool is_speech_key(std::string_view key);
// True for a key of `generate` that a recording's request may have.
bool means_something_to_speech(std::string_view key);

// Takes the keys of a `generate` object that are speech's (also `temperature`, a number or a list here,
// `num_beams` for `beam_size`, `repetition_penalty` and `max_new_tokens`) over `base`; null counts as not
// given. Other keys are not looked at: parse_generate does that with what without_speech_keys leaves. Throws
// bad data, one line that begins with `what`, for a wrong type, a value out of range, or two names of one
// thing that say different ones.
SpeechOptions parse_speech_options(const Json& generate, const std::string& what,
                                   const SpeechOptions& base = {});
Json without_speech_keys(const Json& generate);

// `language` (code, token or English name) and `task` of a request. Throws bad data for one that is not
// known.
void set_language(SpeechOptions& options, const std::string& language, const std::string& what);
void set_task(SpeechOptions& options, const std::string& task, const std::string& what);

}  // namespace diffuse

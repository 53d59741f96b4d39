#include "text/idle_options.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace diffuse {
namespace {

template <typename Options>
struct Rule {
  std::string_view key;
  bool (*idle)(const Options& options);
  const char* why;  // goes on behind the key
};

template <typename Options, std::size_t N>
std::string reason(const std::array<Rule<Options>, N>& rules, std::string_view key, const Options& options) {
  for (const auto& rule : rules)
    if (rule.key == key && rule.idle(options)) return "`" + std::string(key) + "` " + rule.why;
  return {};
}

using Text = GenerateOptions;

// Greedy because nobody said otherwise: elsewhere the same keys draw samples at a temperature of 1. Who says
// 0 knows, and leaves the others as they stand in many a program.
bool greedy_unsaid(const Text& options) {
  return options.sampling.temperature == 0 && !options.temperature_given && !options.do_sample;
}
constexpr auto kOfDrawnSamples =
    "is of drawn samples, and without a `temperature` the answer is greedy: give one (0 is greedy too), or "
    "`do_sample`";

constexpr auto kTextRules = std::to_array<Rule<Text>>({
    {"top_k", [](const Text& o) { return greedy_unsaid(o) && o.sampling.top_k != 0; }, kOfDrawnSamples},
    {"top_p", [](const Text& o) { return greedy_unsaid(o) && o.sampling.top_p != 1; }, kOfDrawnSamples},
    {"min_p", [](const Text& o) { return greedy_unsaid(o) && o.sampling.min_p != 0; }, kOfDrawnSamples},
    {"min_length", [](const Text& o) { return o.min_length.value_or(0) > 0 && o.min_new_tokens.has_value(); },
     "gives way to `min_new_tokens`: leave one of them out"},
    {"length_penalty", [](const Text& o) { return o.num_beams == 1 && o.length_penalty.value_or(1) != 1; },
     "ranks beams, and `num_beams` is 1"},
    {"early_stopping",
     [](const Text& o) {
       return o.num_beams == 1 && o.early_stopping.value_or(EarlyStopping::no) != EarlyStopping::no;
     },
     "ends a search by beams, and `num_beams` is 1"},
});

using Speech = SpeechOptions;

bool is_cold(const Speech& options) {
  return std::ranges::find(options.temperatures, 0.0) != options.temperatures.end();
}
bool is_hot(const Speech& options) {
  return std::ranges::any_of(options.temperatures, [](double each) { return each > 0; });
}
bool one_candidate(const Speech& options) {
  return (!is_cold(options) || options.beam_size == 1) && (!is_hot(options) || options.best_of == 1);
}
bool is_beamless(const Speech& options) {
  return !is_cold(options) && options.beam_size != 1 && options.beam_size != Speech().beam_size;
}
bool one_attempt(const Speech& options) {
  return options.temperatures.size() == 1;
}
bool one_language(const Speech& options) {
  return !options.language.empty();
}
// A prefix stands before what begins at 0.
bool begins_later(const Speech& options) {
  if (options.clips.empty() || options.batched) return false;
  for (std::size_t i = 0; i < options.clips.size(); i += 2)
    if (std::llround(options.clips[i] * kFramesASecond) == 0) return false;
  return true;
}
bool any_of(const VoiceLimits& limits) {
  return limits.min_silence || limits.min_speech || limits.padding || limits.quietest_db;
}

constexpr auto kOfBeams = "is of a beam search, which is made at temperature 0, and no `temperature` is 0";
constexpr auto kOfWords = "is of words with times; say `word_timestamps` too";
constexpr auto kBesideClips =
    "tells speech from silence, and `clip_timestamps` says already what is written down";
constexpr auto kOfAttempts = "decides whether a window is tried again, and there is one `temperature` to try";

constexpr auto kSpeechRules = std::to_array<Rule<Speech>>({
    {"beam_size", is_beamless, kOfBeams},
    {"num_beams", is_beamless, kOfBeams},
    {"patience", [](const Speech& o) { return o.patience != 1 && !is_cold(o); }, kOfBeams},
    {"patience", [](const Speech& o) { return o.patience != 1 && o.beam_size == 1; },
     "is of a beam search, and `beam_size` is 1: one beam"},
    {"best_of", [](const Speech& o) { return !is_hot(o) && o.best_of != 1 && o.best_of != Speech().best_of; },
     "is of samples that are drawn, and no `temperature` is above 0"},
    {"length_penalty", [](const Speech& o) { return one_candidate(o) && o.length_penalty.value_or(1) != 1; },
     "ranks beams or samples, and there is one: `beam_size` or `best_of` says how many"},
    {"compression_ratio_threshold",
     [](const Speech& o) {
       return one_attempt(o) && o.limits.compression_ratio != Speech().limits.compression_ratio;
     },
     kOfAttempts},
    {"log_prob_threshold",
     [](const Speech& o) {
       return one_attempt(o) && !o.limits.no_speech && o.limits.logprob != Speech().limits.logprob;
     },
     kOfAttempts},
    {"logprob_threshold",
     [](const Speech& o) {
       return one_attempt(o) && !o.limits.no_speech && o.limits.logprob != Speech().limits.logprob;
     },
     kOfAttempts},
    {"prompt_reset_on_temperature",
     [](const Speech& o) {
       return !o.condition_on_previous_text &&
              o.prompt_reset_on_temperature != Speech().prompt_reset_on_temperature;
     },
     "says when earlier text is no longer shown, and `condition_on_previous_text` is false: it never is"},
    {"carry_initial_prompt",
     [](const Speech& o) {
       return o.carry_initial_prompt && o.initial_prompt.empty() && o.initial_tokens.empty();
     },
     "repeats `initial_prompt`, and there is none"},
    {"prefix", [](const Speech& o) { return !o.prefix.empty() && begins_later(o); },
     "is how a recording begins, and no clip of `clip_timestamps` begins at 0"},
    {"max_initial_timestamp",
     [](const Speech& o) { return o.without_timestamps && o.max_initial_timestamp.value_or(1) != 1; },
     "is the latest first timestamp, and `without_timestamps` leaves all of them out"},
    {"prepend_punctuations",
     [](const Speech& o) { return !o.word_timestamps && o.words.prepend != WordOptions().prepend; },
     kOfWords},
    {"append_punctuations",
     [](const Speech& o) { return !o.word_timestamps && o.words.append != WordOptions().append; }, kOfWords},
    {"hallucination_silence_threshold", [](const Speech& o) { return !o.word_timestamps; }, kOfWords},
    {"vad_filter", [](const Speech& o) { return o.vad_filter && !o.clips.empty(); }, kBesideClips},
    {"vad_parameters", [](const Speech& o) { return any_of(o.vad) && !o.clips.empty(); }, kBesideClips},
    {"vad_parameters", [](const Speech& o) { return any_of(o.vad) && !o.vad_filter && !o.batched; },
     "says what is silence; say `vad_filter` or `batched` too"},
    {"multilingual", [](const Speech& o) { return o.multilingual && one_language(o); },
     "finds the language of each window, and the request's `language` says it: leave one of them out"},
    {"language_detection_segments",
     [](const Speech& o) { return one_language(o) && o.language_windows != Speech().language_windows; },
     "is by how many windows the language is found, and the request's `language` says it"},
    {"language_detection_threshold",
     [](const Speech& o) { return one_language(o) && o.language_threshold != Speech().language_threshold; },
     "is how sure one window must be of the language, and the request's `language` says it"},
    {"language_detection_threshold",
     [](const Speech& o) {
       return o.language_windows == 1 && o.language_threshold != Speech().language_threshold;
     },
     "is how sure one window must be to decide before others, and `language_detection_segments` is 1"},
});

}  // namespace

std::string why_idle(std::string_view key, const GenerateOptions& options) {
  return reason(kTextRules, key, options);
}

std::string why_idle(std::string_view key, const SpeechOptions& options) {
  return reason(kSpeechRules, key, options);
}

}  // namespace diffuse

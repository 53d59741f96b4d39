#include "text/speech_options.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "text/given.hpp"
#include "text/speech_languages.hpp"

namespace diffuse {
namespace {

constexpr std::size_t kMostTemperatures = 32;
constexpr double kSecondsAWindow = 30;

std::vector<double> temperatures_of(const Given& given) {
  const auto one = [&](const Json& value) {
    const double number = Given{value, given.name}.number(0, 1000);
    if (number != 0 && number < 1e-6) given.wrong("0 (greedy) or at least 0.000001");
    return number;
  };
  if (!given.value.is_array()) return {one(given.value)};
  if (given.value.empty() || given.value.size() > kMostTemperatures)
    given.wrong("a number, or 1 to 32 of them");
  std::vector<double> found;
  for (const auto& value : given.value) found.push_back(one(value));
  return found;
}

// A list, or its numbers in a text with commas between them, as command lines have it.
std::vector<double> numbers_of(const Given& given, double low, double high, const char* expected) {
  Json list = given.value;
  if (list.is_string()) {
    const auto text = given.text();
    list = Json::parse("[" + text + "]", nullptr, false);
  }
  if (!list.is_array()) given.wrong(expected);
  std::vector<double> numbers;
  for (const auto& value : list) numbers.push_back(Given{value, given.name}.number(low, high));
  return numbers;
}

std::vector<std::int32_t> ids_of(const Given& given, std::int32_t low, const char* expected) {
  std::vector<std::int32_t> ids;
  for (const auto number : numbers_of(given, low, std::numeric_limits<std::int32_t>::max(), expected)) {
    if (number != std::floor(number)) given.wrong(expected);
    ids.push_back(static_cast<std::int32_t>(number));
  }
  return ids;
}

std::optional<std::vector<std::int32_t>> suppressed(const Given& given) {
  auto ids = ids_of(given, -1, "a list of token ids ([-1] for the checkpoint's own)");
  if (ids == std::vector<std::int32_t>{-1}) return std::nullopt;
  return ids;
}

// Begins and ends in turn, or a list of objects with both.
std::vector<double> clips_of(const Given& given) {
  constexpr double kLatest = 1e7;  // seconds
  constexpr auto kExpected =
      "a list of seconds (start, end, start, …), the same in a text, or a list of objects with `start` and "
      "`end`";
  std::vector<double> clips;
  const bool objects = given.value.is_array() && !given.value.empty() && given.value.front().is_object();
  if (!objects) {
    clips = numbers_of(given, 0, kLatest, kExpected);
  } else {
    for (const auto& clip : given.value) {
      if (!clip.is_object() || clip.size() != 2 || !clip.contains("start") || !clip.contains("end"))
        given.wrong(kExpected);
      for (const auto* edge : {"start", "end"})
        clips.push_back(Given{clip[edge], given.name + ": `" + edge + "`"}.number(0, kLatest));
    }
  }
  for (std::size_t i = 0; i + 1 < clips.size(); i += 2)
    if (clips[i + 1] <= clips[i]) given.wrong("clips that end behind their start");
  // Both programs' default: all of it, as without the key.
  if (clips == std::vector<double>{0}) clips.clear();
  return clips;
}

VoiceLimits voice_of(const Given& given) {
  if (!given.value.is_object()) given.wrong("an object");
  constexpr double kLongest = 1e6;
  VoiceLimits limits;
  for (const auto& [key, value] : given.value.items()) {
    if (value.is_null()) continue;
    const Given each{value, given.name + ": `" + key + "`"};
    if (key == "min_silence_duration_ms") {
      limits.min_silence = each.number(0, kLongest);
    } else if (key == "min_speech_duration_ms") {
      limits.min_speech = each.number(0, kLongest);
    } else if (key == "speech_pad_ms") {
      limits.padding = each.number(0, kLongest);
    } else if (key == "quietest_db") {
      limits.quietest_db = each.number(-200, 0);
    } else if (key == "threshold" || key == "neg_threshold") {
      throw_bad_data(each.name +
                     " is a probability of a network that is not here: loudness tells speech from silence; "
                     "leave it out, or say `quietest_db`");
    } else if (key == "max_speech_duration_s") {
      throw_bad_data(each.name + ": say `chunk_length`, the most of a piece");
    } else {
      throw_bad_data(each.name +
                     " is not known; min_silence_duration_ms, min_speech_duration_ms, speech_pad_ms and "
                     "quietest_db are");
    }
  }
  return limits;
}

void set_initial_prompt(SpeechOptions& options, const Given& given) {
  options.initial_prompt.clear();
  options.initial_tokens.clear();
  if (given.value.is_array()) {
    for (const auto& value : given.value)
      options.initial_tokens.push_back(static_cast<std::int32_t>(
          Given{value, given.name}.integer(0, std::numeric_limits<std::int32_t>::max())));
  } else {
    options.initial_prompt = given.text();
  }
}

using Options = SpeechOptions;
struct Field {
  std::string_view name;
  bool shared;  // parse_generate knows it too
  void (*set)(Options& options, const Given& given);
};

constexpr auto kFields = std::to_array<Field>({
    {"temperature", true, [](Options& o, const Given& g) { o.temperatures = temperatures_of(g); }},
    {"num_beams", true, [](Options& o, const Given& g) { o.beam_size = g.integer(1, 1024); }},
    {"max_new_tokens", true,
     [](Options& o, const Given& g) {
       o.max_new_tokens = g.integer(1, std::numeric_limits<std::int32_t>::max());
     }},
    {"repetition_penalty", true,
     [](Options& o, const Given& g) { o.repetition_penalty = g.number(0.01, 100); }},
    {"multilingual", false, [](Options& o, const Given& g) { o.multilingual = g.boolean(); }},
    {"beam_size", false, [](Options& o, const Given& g) { o.beam_size = g.integer(1, 64); }},
    {"best_of", false, [](Options& o, const Given& g) { o.best_of = g.integer(1, 64); }},
    {"patience", false, [](Options& o, const Given& g) { o.patience = g.number(0.1, 100); }},
    {"length_penalty", true, [](Options& o, const Given& g) { o.length_penalty = g.number(0, 10); }},
    {"no_repeat_ngram_size", true,
     [](Options& o, const Given& g) { o.no_repeat_ngram_size = g.integer(0, 1000); }},
    {"compression_ratio_threshold", false,
     [](Options& o, const Given& g) { o.limits.compression_ratio = g.number(0, 1000); }},
    {"log_prob_threshold", false, [](Options& o, const Given& g) { o.limits.logprob = g.number(-1000, 0); }},
    {"logprob_threshold", false, [](Options& o, const Given& g) { o.limits.logprob = g.number(-1000, 0); }},
    {"no_speech_threshold", false, [](Options& o, const Given& g) { o.limits.no_speech = g.number(0, 1); }},
    {"condition_on_previous_text", false,
     [](Options& o, const Given& g) { o.condition_on_previous_text = g.boolean(); }},
    {"prompt_reset_on_temperature", false,
     [](Options& o, const Given& g) { o.prompt_reset_on_temperature = g.number(0, 1000); }},
    {"initial_prompt", false, set_initial_prompt},
    {"carry_initial_prompt", false, [](Options& o, const Given& g) { o.carry_initial_prompt = g.boolean(); }},
    {"prefix", false, [](Options& o, const Given& g) { o.prefix = g.text(); }},
    {"hotwords", false, [](Options& o, const Given& g) { o.hotwords = g.text(); }},
    {"suppress_blank", false, [](Options& o, const Given& g) { o.suppress_blank = g.boolean(); }},
    {"suppress_tokens", false, [](Options& o, const Given& g) { o.suppress_tokens = suppressed(g); }},
    {"without_timestamps", false, [](Options& o, const Given& g) { o.without_timestamps = g.boolean(); }},
    {"max_initial_timestamp", false,
     [](Options& o, const Given& g) { o.max_initial_timestamp = g.number(0, kSecondsAWindow); }},
    {"word_timestamps", false, [](Options& o, const Given& g) { o.word_timestamps = g.boolean(); }},
    {"prepend_punctuations", false, [](Options& o, const Given& g) { o.words.prepend = g.text(); }},
    {"append_punctuations", false, [](Options& o, const Given& g) { o.words.append = g.text(); }},
    {"hallucination_silence_threshold", false,
     [](Options& o, const Given& g) { o.hallucination_silence_threshold = g.number(0, 1e6); }},
    {"clip_timestamps", false, [](Options& o, const Given& g) { o.clips = clips_of(g); }},
    {"chunk_length", false, [](Options& o, const Given& g) { o.chunk_length = g.integer(1, 30); }},
    {"language_detection_segments", false,
     [](Options& o, const Given& g) { o.language_windows = g.integer(1, 1000); }},
    {"language_detection_threshold", false,
     [](Options& o, const Given& g) { o.language_threshold = g.number(0, 1); }},
    {"vad_parameters", false, [](Options& o, const Given& g) { o.vad = voice_of(g); }},
    {"vad_filter", false, [](Options& o, const Given& g) { o.vad_filter = g.boolean(); }},
    {"batched", false, [](Options& o, const Given& g) { o.batched = g.boolean(); }},
});

// Two programs' names of one thing.
struct Alias {
  const char* name;
  const char* other;
  bool null_counts;  // null says something too
};
constexpr std::array kAliases = {Alias{"beam_size", "num_beams", false},
                                 Alias{"log_prob_threshold", "logprob_threshold", true}};

void check_aliases(const Json& generate, const std::string& what) {
  for (const auto& [name, other, null_counts] : kAliases) {
    const auto one = generate.find(name);
    const auto two = generate.find(other);
    if (one == generate.end() || two == generate.end() || *one == *two) continue;
    if (!null_counts && (one->is_null() || two->is_null())) continue;
    throw_bad_data(what + ": `" + name + "` and `" + other +
                   "` are two names of one thing, and say different ones; leave one of them out");
  }
}

// Limits that null turns off, as both programs' users write it.
void turn_off(Options& options, std::string_view key) {
  if (key == "compression_ratio_threshold") options.limits.compression_ratio.reset();
  if (key == "log_prob_threshold" || key == "logprob_threshold") options.limits.logprob.reset();
  if (key == "no_speech_threshold") options.limits.no_speech.reset();
  if (key == "max_initial_timestamp") options.max_initial_timestamp = std::numeric_limits<double>::infinity();
}

const Field* field_of(std::string_view key) {
  const auto* found = std::ranges::find(kFields, key, &Field::name);
  return found == kFields.end() ? nullptr : found;
}

}  // namespace

bool is_speech_key(std::string_view key) {
  const auto* field = field_of(key);
  return field != nullptr && !field->shared;
}

bool means_something_to_speech(std::string_view key) {
  return field_of(key) != nullptr || key == "seed" || key == "n";
}

SpeechOptions parse_speech_options(const Json& generate, const std::string& what, const SpeechOptions& base) {
  check_aliases(generate, what);
  SpeechOptions options = base;
  for (const auto& [key, value] : generate.items()) {
    const auto* field = field_of(key);
    if (field == nullptr) continue;
    if (value.is_null()) {
      turn_off(options, key);
    } else {
      field->set(options, {value, what + ": `" + key + "`"});
    }
  }
  return options;
}

Json without_speech_keys(const Json& generate) {
  Json rest = Json::object();
  for (const auto& [key, value] : generate.items()) {
    if (is_speech_key(key)) continue;
    // A list of temperatures is speech's alone.
    if (key == "temperature" && value.is_array()) continue;
    rest[key] = value;
  }
  return rest;
}

void set_language(SpeechOptions& options, const std::string& language, const std::string& what) {
  if (language.empty() || language == "auto") {
    options.language.clear();
    return;
  }
  options.language = language_code(language);
  if (options.language.empty())
    throw_bad_data(
        what + ": `language` is '" + visible(utf8_prefix(language, 40)) +
        "', and no language is called so; write its English name or its code, like 'german' or 'de'");
}

void set_task(SpeechOptions& options, const std::string& task, const std::string& what) {
  if (task.empty() || task == "transcribe") {
    options.task = SpeechTask::transcribe;
  } else if (task == "translate") {
    options.task = SpeechTask::translate;
  } else {
    throw_bad_data(what + ": `task` is '" + visible(utf8_prefix(task, 40)) +
                   "'; transcribe and translate are known");
  }
}

}  // namespace diffuse

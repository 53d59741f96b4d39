#include "text/generate_options.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "text/element.hpp"
#include "text/given.hpp"

namespace diffuse {
namespace {

constexpr std::size_t kMaxStops = 64;
constexpr std::int64_t kMostBeams = 64;
constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();
constexpr double kMostGuidance = 10'000;
constexpr double kMostBias = 1e30;
constexpr std::int64_t kMostTokens = 1 << 30;  // so that a prompt may be added

// What transformers samples with where it is told nothing else.
constexpr double kSampledTemperature = 1;
constexpr std::int64_t kSampledTopK = 50;

std::vector<std::string> read_stops(const Given& given) {
  std::vector<std::string> stops;
  const auto add = [&](const Json& value) {
    if (!value.is_string() || value.get_ref<const std::string&>().empty())
      given.wrong("a string that is not empty, or a list of such");
    stops.push_back(value.get<std::string>());
  };
  if (given.value.is_array()) {
    for (const auto& value : given.value) add(value);
  } else {
    add(given.value);
  }
  if (stops.size() > kMaxStops) given.wrong("at most 64 strings");
  return stops;
}

EarlyStopping read_early_stopping(const Given& given) {
  if (given.value == "never") return EarlyStopping::never;
  if (!given.value.is_boolean()) given.wrong("true, false or \"never\"");
  return given.value.get<bool>() ? EarlyStopping::yes : EarlyStopping::no;
}

MediaOutput read_output_type(const Given& given) {
  const auto word = given.value.is_string() ? given.value.get<std::string>() : std::string();
  if (word == "latent") return {.frames = false, .latent = true};
  if (word == "both") return {.frames = true, .latent = true};
  if (word != "np" && word != "pil" && word != "pt")
    given.wrong("\"latent\", \"both\", or \"np\", \"pil\" or \"pt\" for frames");
  return {};
}

struct Field {
  const char* name;
  void (*set)(GenerateOptions& options, const Given& given);
};

using Options = GenerateOptions;
constexpr std::array kFields = {
    Field{"max_new_tokens", [](Options& o, const Given& g) { o.max_new_tokens = g.integer(0, kMaxCount); }},
    Field{"temperature",
          [](Options& o, const Given& g) {
            o.sampling.temperature = g.number(0, 1000, false, "a number from 0 (greedy) to 1000");
            // A quotient that overflows would make every token but the likeliest impossible.
            if (o.sampling.temperature != 0 && o.sampling.temperature < 1e-6)
              g.wrong("0 (greedy) or at least 0.000001");
            o.temperature_given = true;
          }},
    Field{"top_k",
          [](Options& o, const Given& g) {
            o.sampling.top_k = std::max<std::int64_t>(g.integer(-1, kMaxCount), 0);
            o.top_k_given = true;
          }},
    Field{"top_p",
          [](Options& o, const Given& g) {
            o.sampling.top_p = g.number(0, 1, true, "a number above 0, at most 1 (off)");
          }},
    Field{"min_p",
          [](Options& o, const Given& g) {
            o.sampling.min_p = g.number(0, 1, false, "a number from 0 (off) to 1");
          }},
    Field{"repetition_penalty",
          [](Options& o, const Given& g) {
            o.sampling.repetition_penalty =
                g.number(0.01, 100, false, "a number from 0.01 to 100 (1 is off)");
          }},
    Field{"do_sample", [](Options& o, const Given& g) { o.do_sample = g.boolean(); }},
    Field{"seed",
          [](Options& o, const Given& g) {
            const bool fits = g.value.is_number_unsigned() ||
                              (g.value.is_number_integer() && g.value.get<std::int64_t>() >= 0);
            if (!fits) g.wrong("a whole number from 0 to 18446744073709551615");
            o.seed = g.value.get<std::uint64_t>();
          }},
    Field{"stop", [](Options& o, const Given& g) { o.stop = read_stops(g); }},
    Field{"ignore_eos", [](Options& o, const Given& g) { o.ignore_eos = g.boolean(); }},
    Field{"n", [](Options& o, const Given& g) { o.n = g.integer(1, 65536); }},
    Field{"logprobs",
          [](Options& o, const Given& g) {
            o.sampling.logprobs = static_cast<std::int32_t>(g.integer(0, 100));
          }},
    Field{"num_beams", [](Options& o, const Given& g) { o.num_beams = g.integer(1, kMostBeams); }},
    Field{"length_penalty",
          [](Options& o, const Given& g) {
            o.length_penalty = g.number(-100, 100, false, "a number from -100 to 100 (1 is usual)");
          }},
    Field{"early_stopping", [](Options& o, const Given& g) { o.early_stopping = read_early_stopping(g); }},
    Field{"min_length", [](Options& o, const Given& g) { o.min_length = g.integer(0, kMaxCount); }},
    Field{"min_new_tokens", [](Options& o, const Given& g) { o.min_new_tokens = g.integer(0, kMaxCount); }},
    Field{"no_repeat_ngram_size",
          [](Options& o, const Given& g) { o.no_repeat_ngram_size = g.integer(0, 65536); }},
    Field{"forced_bos_token_id",
          [](Options& o, const Given& g) {
            o.forced_bos_token_id = static_cast<std::int32_t>(g.integer(0, kMaxCount));
          }},
    Field{"num_inference_steps",
          [](Options& o, const Given& g) { o.num_inference_steps = g.integer(1, 100'000); }},
    Field{"guidance_scale",
          [](Options& o,
             const Given&
                 g) { o.guidance_scale = g.number(0, kMostGuidance, false, "a number from 0 to 10000"); }},
    Field{"height", [](Options& o, const Given& g) { o.height = g.integer(1, 65536); }},
    Field{"width", [](Options& o, const Given& g) { o.width = g.integer(1, 65536); }},
    Field{"num_frames", [](Options& o, const Given& g) { o.num_frames = g.integer(1, 1'000'000); }},
    Field{"num_videos_per_prompt",
          [](Options& o, const Given& g) { o.num_videos_per_prompt = g.integer(1, 1024); }},
    Field{"output_type", [](Options& o, const Given& g) { o.output_type = read_output_type(g); }},
    Field{"max_sequence_length",
          [](Options& o, const Given& g) { o.max_sequence_length = g.integer(1, 1'000'000); }},
};

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const auto replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[b.size()];
}

const Field& field_of(const std::string& key, const std::string& what) {
  const auto known =
      std::find_if(kFields.begin(), kFields.end(), [&](const Field& field) { return key == field.name; });
  if (known != kFields.end()) return *known;
  // A long key is no misspelling; its start says enough, and the distance costs a product of lengths.
  const auto shown = std::string_view(key).substr(0, 64);
  const auto nearest = std::min_element(kFields.begin(), kFields.end(), [&](const Field& a, const Field& b) {
    return edit_distance(shown, a.name) < edit_distance(shown, b.name);
  });
  throw_bad_data(what + ": the key " + in_quotes(key) + " is not known; the nearest one is '" +
                 nearest->name + "'");
}

std::vector<std::int32_t> read_ids(const Json& object, const char* key, const std::string& what) {
  std::vector<std::int32_t> ids;
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return ids;
  const auto where = what + ": '" + key + "'";
  if (found->is_array()) {
    for (const auto& id : *found) ids.push_back(token_id(id, where));
  } else {
    ids.push_back(token_id(*found, where));
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::optional<std::int32_t> read_id(const Json& object, const char* key, const std::string& what) {
  const auto ids = read_ids(object, key, what);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

std::optional<std::int64_t> read_count(const Json& object, const char* key, const std::string& what) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  return Given{*found, what + ": '" + key + "'"}.integer(0, kMaxCount);
}

template <typename Value>
std::optional<Value> read_with(const Json& object, const char* key, const std::string& what,
                               Value (*read)(const Given& given)) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  return read({*found, what + ": '" + key + "'"});
}

std::vector<std::vector<std::int32_t>> read_runs(const Json& object, const char* key,
                                                 const std::string& what) {
  std::vector<std::vector<std::int32_t>> runs;
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return runs;
  const auto where = what + ": '" + key + "'";
  if (!found->is_array()) throw_bad_data(where + " must be a list of lists of token ids");
  for (const auto& list : *found) {
    if (!list.is_array()) throw_bad_data(where + " must be a list of lists of token ids");
    auto& run = runs.emplace_back();
    for (const auto& id : list) run.push_back(token_id(id, where));
  }
  return runs;
}

// [[[ids], bias], …]
std::vector<TokenBias> read_biases(const Json& object, const char* key, const std::string& what) {
  std::vector<TokenBias> biases;
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return biases;
  const auto where = what + ": '" + key + "'";
  const std::string expected = " must be a list of pairs, each a list of token ids and a number";
  if (!found->is_array()) throw_bad_data(where + expected);
  for (const auto& pair : *found) {
    const bool fits = pair.is_array() && pair.size() == 2 && pair[0].is_array() && !pair[0].empty();
    if (!fits) throw_bad_data(where + expected);
    auto& made = biases.emplace_back();
    for (const auto& id : pair[0]) made.run.push_back(token_id(id, where));
    made.bias = static_cast<float>(Given{pair[1], where}.number(-kMostBias, kMostBias));
  }
  return biases;
}

// [start, factor]
LengthDecay read_decay(const Given& given) {
  if (!given.value.is_array() || given.value.size() != 2) given.wrong("a list of a start and a factor");
  return {.start = Given{given.value[0], given.name + ": the start"}.integer(0, kMostTokens),
          .factor = Given{given.value[1], given.name + ": the factor"}.number(0.01, 100)};
}

// Ids that no token has are passed over, as in transformers.
std::vector<std::int32_t> read_suppressed(const Json& object, const char* key, const std::string& what) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  if (!found->is_array()) throw_bad_data(what + ": '" + key + "' must be a list of token ids");
  auto kept = Json::array();
  for (const auto& id : *found) {
    if (!id.is_number_integer() || id.is_number_unsigned() || id.get<std::int64_t>() >= 0) kept.push_back(id);
  }
  return read_ids({{key, kept}}, key, what);
}

template <typename Value>
void fill(std::optional<Value>& value, const std::optional<Value>& from) {
  if (!value) value = from;
}
template <typename Value>
void fill(std::vector<Value>& value, const std::vector<Value>& from) {
  if (value.empty()) value = from;
}

void fill_ids(GenerationConfig& config, const GenerationConfig& from) {
  fill(config.eos_ids, from.eos_ids);
  fill(config.bos_id, from.bos_id);
  fill(config.pad_id, from.pad_id);
  fill(config.decoder_start_id, from.decoder_start_id);
}

void fill_missing(GenerationConfig& config, const GenerationConfig& from) {
  fill_ids(config, from);
  fill(config.forced_bos_id, from.forced_bos_id);
  fill(config.forced_eos_ids, from.forced_eos_ids);
  fill(config.min_length, from.min_length);
  fill(config.min_new_tokens, from.min_new_tokens);
  fill(config.no_repeat_ngram_size, from.no_repeat_ngram_size);
  fill(config.bad_words, from.bad_words);
  fill(config.encoder_no_repeat_ngram_size, from.encoder_no_repeat_ngram_size);
  fill(config.encoder_repetition_penalty, from.encoder_repetition_penalty);
  fill(config.sequence_bias, from.sequence_bias);
  fill(config.length_decay, from.length_decay);
  fill(config.suppressed, from.suppressed);
  fill(config.not_first, from.not_first);
  fill(config.guidance_scale, from.guidance_scale);
  fill(config.length_penalty, from.length_penalty);
  fill(config.early_stopping, from.early_stopping);
}

}  // namespace

GenerateOptions parse_generate(const Json& object, const std::string& what, const GenerateOptions& base) {
  auto options = base;
  if (object.is_null()) return options;
  if (!object.is_object()) throw_bad_data(what + " must be an object");
  for (const auto& [key, value] : object.items()) {
    const auto& field = field_of(key, what);
    if (!value.is_null()) field.set(options, Given{value, what + ": '" + key + "'"});
  }
  return options;
}

void settle_sampling(GenerateOptions& options, const std::string& what) {
  auto& sampling = options.sampling;
  if (!options.do_sample) return;
  if (options.temperature_given && *options.do_sample != (sampling.temperature > 0))
    throw_bad_data(what + ": 'do_sample' and 'temperature' contradict each other; leave one of them out");
  if (!*options.do_sample) return;
  if (!options.temperature_given) sampling.temperature = kSampledTemperature;
  if (!options.top_k_given) sampling.top_k = kSampledTopK;
}

void check_autoregressive(const GenerateOptions& options, const std::string& what) {
  if (options.num_beams == 1) return;
  const auto beside = [&](bool given, const char* key) {
    if (given)
      throw_bad_data(what + ": '" + key + "' has no meaning beside num_beams; leave one of them out");
  };
  beside(options.sampling.temperature > 0, "temperature");
  beside(options.sampling.logprobs >= 0, "logprobs");
  beside(!options.stop.empty(), "stop");
  if (options.n > options.num_beams)
    throw_bad_data(what + ": 'n' is more than num_beams, and a search has so many results at most");
}

GenerationConfig parse_generation_config(const Json& object, const std::string& what) {
  if (!object.is_object()) throw_bad_data(what + " must be an object");
  GenerationConfig config;
  config.eos_ids = read_ids(object, "eos_token_id", what);
  config.bos_id = read_id(object, "bos_token_id", what);
  config.pad_id = read_id(object, "pad_token_id", what);
  config.decoder_start_id = read_id(object, "decoder_start_token_id", what);
  config.forced_bos_id = read_id(object, "forced_bos_token_id", what);
  config.forced_eos_ids = read_ids(object, "forced_eos_token_id", what);
  config.min_length = read_count(object, "min_length", what);
  config.min_new_tokens = read_count(object, "min_new_tokens", what);
  config.no_repeat_ngram_size = read_count(object, "no_repeat_ngram_size", what);
  config.bad_words = read_runs(object, "bad_words_ids", what);
  config.encoder_no_repeat_ngram_size = read_count(object, "encoder_no_repeat_ngram_size", what);
  config.encoder_repetition_penalty = read_with<double>(
      object, "encoder_repetition_penalty", what,
      [](const Given& g) { return g.number(0.01, 100, false, "a number from 0.01 to 100 (1 is off)"); });
  config.sequence_bias = read_biases(object, "sequence_bias", what);
  config.length_decay = read_with<LengthDecay>(object, "exponential_decay_length_penalty", what, read_decay);
  config.suppressed = read_suppressed(object, "suppress_tokens", what);
  config.not_first = read_suppressed(object, "begin_suppress_tokens", what);
  config.length_penalty = read_with<double>(object, "length_penalty", what, [](const Given& g) {
    return g.number(-100, 100, false, "a number from -100 to 100");
  });
  config.early_stopping = read_with<EarlyStopping>(object, "early_stopping", what, read_early_stopping);
  config.guidance_scale = read_with<double>(object, "guidance_scale", what, [](const Given& g) {
    return g.number(0, kMostGuidance, false, "a number from 0 to 10000");
  });
  return config;
}

GenerationConfig read_generation_config(const std::filesystem::path& folder) {
  GenerationConfig config;
  const auto own = folder / "generation_config.json";
  const bool has_own = std::filesystem::exists(own);
  if (has_own) config = parse_generation_config(read_json(own), "'" + own.string() + "'");
  const auto path = folder / "config.json";
  if (!std::filesystem::exists(path)) return config;
  const auto what = "'" + path.string() + "'";
  const auto model = read_json(path);
  const auto add = has_own ? fill_ids : fill_missing;
  add(config, parse_generation_config(model, what));
  if (const auto text = model.find("text_config"); text != model.end() && text->is_object())
    add(config, parse_generation_config(*text, what + ": text_config"));
  // What old files of BART say in place of forced_bos_token_id.
  if (!has_own && model.value("force_bos_token_to_be_generated", Json()) == true)
    config.forced_bos_id = config.bos_id;
  return config;
}

}  // namespace diffuse

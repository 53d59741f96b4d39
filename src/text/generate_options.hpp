#pragma once
// What a job says about generating: the `generate` object of a job spec, its defaults and each request's own,
// and what a checkpoint's generation_config.json adds.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "text/sampling.hpp"
#include "text/text_beams.hpp"
#include "text/token_rules.hpp"

namespace diffuse {

inline constexpr std::int64_t kDefaultMaxNewTokens = 256;

// What a request for pictures gives back: diffusers' `output_type`, whose "latent" stops before the codec.
// Its words for frames ("pil", "np", "pt") mean frames here, and "both" is our own.
struct MediaOutput {
  bool frames = true;
  bool latent = false;
  bool operator==(const MediaOutput&) const = default;
};

struct GenerateOptions {
  std::int64_t max_new_tokens = kDefaultMaxNewTokens;
  SamplingParams sampling;        // temperature, top_k, top_p, min_p, repetition_penalty, logprobs
  std::optional<bool> do_sample;  // as transformers' users say it: see settle_sampling()
  bool temperature_given = false;
  bool top_k_given = false;
  std::optional<std::uint64_t> seed;  // none: the job draws one and records it
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::int64_t n = 1;  // samples a request
  std::int64_t num_beams = 1;
  // Of beams; nothing where the job does not say, and generation_config.json's holds.
  std::optional<double> length_penalty;
  std::optional<EarlyStopping> early_stopping;

  // Rules on tokens of a model that reads an encoder; nothing where the job does not say, and the
  // checkpoint's generation_config.json holds.
  std::optional<std::int64_t> min_length;      // tokens, the start counted, before the end may come
  std::optional<std::int64_t> min_new_tokens;  // the same, the start not counted
  std::optional<std::int64_t> no_repeat_ngram_size;
  std::optional<std::int32_t> forced_bos_token_id;  // the first generated token: a target language

  // Media only; nothing where the job does not say, and the model's own default holds.
  std::optional<std::int64_t> num_inference_steps;
  std::optional<double> guidance_scale;
  std::optional<std::int64_t> height;
  std::optional<std::int64_t> width;
  std::optional<std::int64_t> num_frames;
  std::optional<std::int64_t> num_videos_per_prompt;
  std::optional<MediaOutput> output_type;
  std::optional<std::int64_t> max_sequence_length;  // rows of text that the stack reads
};

// Reads a `generate` object over `base`: names that it does not give keep base's value, null counts as not
// given. A request's options are parse_generate(its own, what, the job's). Throws bad data, one line that
// begins with `what`, for an unknown key (naming the nearest known one), a wrong type or a value out of
// range.
GenerateOptions parse_generate(const Json& object, const std::string& what, const GenerateOptions& base = {});

// What transformers' `do_sample` means: true samples at temperature 1 from the 50 likeliest where the job
// gives neither number. False is greedy, as without it. Throws bad data beside a temperature that says
// otherwise.
void settle_sampling(GenerateOptions& options, const std::string& what);

// Throws bad data where options of an autoregressive run contradict one another.
void check_autoregressive(const GenerateOptions& options, const std::string& what);

// Behind `start` generated tokens, ends become likelier by `factor` to the power of how many more there are.
struct LengthDecay {
  std::int64_t start = 0;
  double factor = 1;
  bool operator==(const LengthDecay&) const = default;
};

// The token ids that a checkpoint says matter to generating.
struct GenerationConfig {
  std::vector<std::int32_t> eos_ids;  // sorted, without repeats
  std::optional<std::int32_t> bos_id;
  std::optional<std::int32_t> pad_id;

  std::optional<std::int32_t> decoder_start_id;  // what answers of a model that reads an encoder start with

  // Rules on the tokens of an answer, and the beams' numbers.
  std::optional<std::int32_t> forced_bos_id;
  std::vector<std::int32_t> forced_eos_ids;
  std::optional<std::int64_t> min_length;
  std::optional<std::int64_t> min_new_tokens;
  std::optional<std::int64_t> no_repeat_ngram_size;
  std::vector<std::vector<std::int32_t>> bad_words;
  std::optional<std::int64_t> encoder_no_repeat_ngram_size;
  std::optional<double> encoder_repetition_penalty;
  std::vector<TokenBias> sequence_bias;
  std::optional<LengthDecay> length_decay;  // exponential_decay_length_penalty
  std::vector<std::int32_t> suppressed;     // suppress_tokens
  std::vector<std::int32_t> not_first;      // begin_suppress_tokens
  std::optional<double> length_penalty;
  std::optional<EarlyStopping> early_stopping;

  // Of a model that makes media: what holds where a job says none.
  std::optional<double> guidance_scale;
};

// Reads the names above from a generation_config.json (or a config.json): eos_token_id (an id or a list),
// bos_token_id, bad_words_ids and so on. Nothing else is taken: greedy is the default here whatever
// do_sample, num_beams and temperature say there, and generation_notes() says so. Throws bad data where an id
// is not a number that an id can be.
GenerationConfig parse_generation_config(const Json& object, const std::string& what);

// The folder's generation_config.json; where an id is missing there, its config.json's (text_config too).
// What is no id comes from there only where the folder has no generation_config.json, as in transformers.
GenerationConfig read_generation_config(const std::filesystem::path& folder);

}  // namespace diffuse

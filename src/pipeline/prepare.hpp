#pragma once
// From a job to sequences: what rank 0 does before anything runs. A request that cannot be answered gets its
// reason here and takes no part; the others are not disturbed.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "job/job.hpp"
#include "job/result.hpp"
#include "pipeline/driver.hpp"
#include "text/chat_template.hpp"
#include "text/choice_rules.hpp"
#include "text/codebook_request.hpp"
#include "text/generate_options.hpp"
#include "text/speech_options.hpp"
#include "text/speech_tokens.hpp"
#include "text/speech_transcriber.hpp"
#include "text/stop.hpp"
#include "text/tokenizer.hpp"

namespace diffuse {

// What of a model folder concerns text. A folder without a tokenizer runs jobs of token ids and leaves the
// text empty.
struct TextSide {
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  GenerationConfig generation;
  Json generation_json;  // generation_config.json; null where there is none
  std::string asks_in;   // the file that says how to generate: that one, else config.json; and
  Json asks;             // what it holds

  static TextSide open(const std::filesystem::path& folder);
};

// A recording that is to be written down.
struct SpeechRequest {
  SpeechOptions options;
  SpeechText text;
  std::shared_ptr<const SpeechTokens> tokens;
  std::shared_ptr<const std::vector<float>> samples;  // at 16 kHz
  std::int64_t bins = 0;                              // of a frame of features
  std::int64_t memory_rows = 0;                       // of a window
  std::int64_t context = 0;                           // positions of the decoder

  // What a window and all its attempts take.
  SequenceNeed most() const;
};

struct PreparedRequest {
  std::string id;
  std::string problem;  // not empty: the request is bad, and this is why
  GenerateOptions options;
  std::uint64_t seed = 0;
  // Where the model reads an encoder: what the answer starts with; where it walks codebooks, an id of each.
  std::vector<std::int32_t> prompt;
  std::int64_t max_new_tokens = 0;  // cut to what the context has room for
  TokenRules rules;
  std::int32_t candidates = 0;                // of a row, where there are beams
  std::shared_ptr<const EncoderInput> input;  // what the encoder is given
  std::int64_t memory_rows = 0;
  std::shared_ptr<const SpeechRequest> speech;  // then there is no prompt
  std::optional<CodebookRequest> codes;         // then the answer is sound

  std::int64_t prompt_tokens() const;  // that a user gave
};

struct ModelLimits {
  std::int64_t vocab = 0;
  std::int64_t max_positions = 0;
  std::int64_t kv_positions = 0;  // that the key-value memory of every stage has room for
  const Encoder* encoder = nullptr;
  std::optional<CodebookShape> codebooks;      // where the answers are codes of sound
  std::vector<std::int64_t> cross_heads = {};  // of each layer's cross-attention
};
ModelLimits limits_of(const Recipe& recipe, std::int64_t kv_positions);  // which must outlive them

// Of a model that reads sound: throws bad data, naming `file`, where its generation_config.json names ids or
// heads that the model does not have.
void check_speech_config(const Json& generation_config, const Recipe& recipe, const std::string& file);

// Throws refused where the folder's model reads sound otherwise than this build computes its features: by its
// preprocessor_config.json (or the section feature_extractor of processor_config.json, which goes first), or
// by the frames that the encoder takes. A folder without these files is taken for what LogMel computes.
void check_features(const std::filesystem::path& folder, const Recipe& recipe);

// What the folder asks of generating that a run does not take from there, one sentence each.
std::vector<std::string> notes_on(const TextSide& text, const ModelLimits& limits);

// One a request, in job order. Seeds that the job does not give are derived from its bytes, so that the same
// job gives the same answers; `seeds` (of a journal) take precedence where not empty. Throws bad data where
// the job's own `generate` is wrong, or changes nothing for any of them.
std::vector<PreparedRequest> prepare(const Job& job, const TextSide& text, const ModelLimits& limits,
                                     const std::vector<std::uint64_t>& seeds = {});

// Of a request with num_beams > 1.
TextBeamOptions beam_options(const PreparedRequest& request, const GenerationConfig& generation);

// The sequence of one sample of a request, or of its beams.
Sequence make_sequence(const PreparedRequest& request, std::size_t index, std::int32_t sample);

}  // namespace diffuse

#pragma once
// The ids that mean something to a Whisper model, as its generation_config.json names them.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.hpp"

namespace diffuse {

struct LanguageToken {
  std::string code;  // "en"
  std::int32_t id = -1;
};

// A layer and one of its heads.
struct AlignmentHead {
  std::int64_t layer = 0;
  std::int64_t head = 0;
  bool operator==(const AlignmentHead&) const = default;
};

struct SpeechTokens {
  std::int32_t start = -1;       // <|startoftranscript|>
  std::int32_t end = -1;         // <|endoftext|>; every id from here on is special
  std::int32_t transcribe = -1;  // -1 in a model of one language, translate too
  std::int32_t translate = -1;
  std::int32_t previous = -1;   // <|startofprev|>
  std::int32_t no_speech = -1;  // <|nospeech|>, <|nocaptions|> in older ones
  std::int32_t no_timestamps = -1;
  std::int32_t first_timestamp = -1;                  // <|0.00|>; each id more is 0.02 s more
  std::vector<LanguageToken> languages;               // by id; empty in a model of one language
  std::vector<std::int32_t> suppress;                 // never chosen
  std::vector<std::int32_t> suppress_first;           // never chosen as the first token (a blank, the end)
  std::optional<std::int32_t> max_initial_timestamp;  // index of the latest first timestamp
  std::vector<AlignmentHead> alignment_heads;         // whose cross-attention follows the speech
  std::int64_t vocab = 0;                             // ids are below it

  bool multilingual() const { return !languages.empty(); }
  bool is_timestamp(std::int32_t id) const { return id >= first_timestamp; }
  // The id of a language's code; nothing where the model does not know it.
  std::optional<std::int32_t> language_id(std::string_view code) const;
  std::string_view language_of(std::int32_t id) const;  // empty where it is no language's id
};

// Reads generation_config.json. `what` names it in errors. Throws bad data where a value is no id, and where
// no_timestamps_token_id is missing (an old or a cut-down file: such a folder can still run given tokens).
// `vocab` bounds the ids.
SpeechTokens parse_speech_tokens(const Json& generation_config, std::int64_t vocab, const std::string& what);

// Throws bad data where generation_config.json's `alignment_heads` names a layer or a head that the decoder
// does not have. `heads` are those of each layer's cross-attention.
void check_alignment_heads(const Json& generation_config, std::span<const std::int64_t> heads,
                           const std::string& what);

}  // namespace diffuse

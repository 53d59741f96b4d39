#pragma once
// Text <-> token ids, as Hugging Face's libraries do it: from a tokenizer.json (BPE, byte-level or not, and
// Unigram), or from a sentencepiece model where a folder has no tokenizer.json.
//
// A Tokenizer is cheap to copy (copies share one immutable description) and may be used by many threads at
// once. An element whose type this build does not know refuses the folder and is named: ids are right or
// there are none.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.hpp"
#include "text/token_decoder.hpp"

namespace diffuse {

struct TokenizerParts;

class Tokenizer {
 public:
  // True where the folder holds a tokenizer.json or a sentencepiece model; one without runs jobs of token ids
  // only.
  static bool present(const std::filesystem::path& folder);

  // Reads tokenizer.json, or else a sentencepiece model (sentencepiece_folder.hpp), and tokenizer_config.json
  // where there is one (special tokens, add_bos_token, languages). Throws missing input without either, bad
  // data where a file contradicts itself, refused where it asks for an element that is not known.
  static Tokenizer load(const std::filesystem::path& folder);

  // The same from parsed files; `config` may be null. `what` names the tokenizer in errors.
  static Tokenizer from_json(const Json& tokenizer, const Json& config, const std::string& what);

  // Of parts that were read elsewhere; `config` as above.
  static Tokenizer from_parts(TokenizerParts parts, const Json& config, const std::string& what);

  // The ids of a text. Invalid UTF-8 is repaired first (see utf8.hpp). `add_special` lets the post-processor
  // add its tokens (bos); a templated chat has them already and is encoded without. Tokens written out in the
  // text
  // ("<|im_end|>") become their ids either way, as in Hugging Face's library. Throws refused where a split
  // pattern exceeds its matching limits on this text.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special) const;

  // The ids of a text that is to be translated into `language` ("fr", "fr_XX", "fra_Latn": as the tokenizer
  // writes it, or the part in front of the underscore), special tokens added. Some tokenizers name the
  // language in the text; for others the answer must begin with a token, `first`. An empty language leaves it
  // open. Throws bad data where the tokenizer has no such language, or none at all.
  struct Source {
    std::vector<std::int32_t> ids;
    std::optional<std::int32_t> first;
  };
  Source encode_source(std::string_view text, const std::string& language) const;

  // The text of ids, always valid UTF-8. Ids without a token (a padded vocabulary's last rows) give no text.
  // `skip_special` leaves special tokens out. Never cleans up spaces.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  // One more than the highest id that has a token.
  std::int32_t vocab_size() const;
  std::optional<std::int32_t> id_of(std::string_view token) const;
  // The token as the vocabulary writes it (byte-level letters), or nothing.
  std::optional<std::string> token_of(std::int32_t id) const;
  bool is_special(std::int32_t id) const;

  // Of tokenizer_config.json; nothing where it does not say.
  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;
  std::optional<std::int32_t> pad_id() const;
  // Name -> text of the special tokens that it names ("bos_token" -> "<s>"), as a chat template sees them.
  const std::vector<std::pair<std::string, std::string>>& special_tokens() const;

 private:
  friend class StreamDecoder;
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// Decodes ids as they come. The pieces that push() and finish() return, put together, are what decode() says
// of all the ids: a character is never cut, and bytes that never become one are U+FFFD.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special);

  // Takes an id and returns the text that is certain by now (often empty).
  std::string push(std::int32_t id);
  // Returns what was held back. Call once, at the end.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer::State> state_;
  bool skip_special_;
  TokenDecoder::Stream stream_;
};

}  // namespace diffuse

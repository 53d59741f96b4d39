#pragma once
// What a tokenizer is put together from, whichever files it came in.

#include <variant>

#include "core/json.hpp"
#include "text/bpe.hpp"
#include "text/normalizer.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/token_decoder.hpp"
#include "text/unigram.hpp"

namespace diffuse {

struct TokenizerParts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::variant<BpeModel, UnigramModel> model;
  TokenDecoder decoder;
  Json added_tokens;              // as a tokenizer.json lists them
  Json post_processor;            // its element
  bool language_in_text = false;  // a text may begin with ">>fr<<", which is a token by itself
};

}  // namespace diffuse

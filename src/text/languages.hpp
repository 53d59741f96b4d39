#pragma once
// How the tokenizers of translation models name languages: stated facts of each tokenizer class, which
// tokenizer_config.json names, for neither it nor tokenizer.json says them.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.hpp"

namespace diffuse {

struct LanguageRules {
  enum class Source {
    unnamed,
    in_front,  // the source language's token, the text, </s>
    behind,    // the text, </s>, the source language's token
  };
  Source source = Source::unnamed;
  std::string source_token;   // where it is named
  bool source_given = false;  // by tokenizer_config.json
  // The target language's token begins the answer; else it begins the text.
  bool begins_answer = true;
  std::string_view before;  // what a language's token has around its code
  std::string_view behind;

  // Nothing for a tokenizer class without languages. `config` is a tokenizer_config.json.
  static std::optional<LanguageRules> of(const Json& config);

  std::string token_of(std::string_view code) const;
};

// The class that a tokenizer_config.json names, without its "Fast"; empty where it names none.
std::string tokenizer_class(const Json& config);

// The codes of the languages whose tokens follow the pieces of a sentencepiece model of this class, in order;
// none for a class without.
std::vector<std::string_view> languages_behind_pieces(std::string_view tokenizer_class);

}  // namespace diffuse

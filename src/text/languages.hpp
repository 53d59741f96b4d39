#pragma once
// How a tokenizer of a translation model names languages: the stated facts of its class
// (recipe/tokenizer_facts.hpp) with what tokenizer_config.json says.

#include <optional>
#include <string>
#include <string_view>

#include "core/json.hpp"
#include "recipe/tokenizer_facts.hpp"

namespace diffuse {

struct LanguageRules {
  LanguageFacts facts;
  std::string source_token;   // where the source is named
  bool source_given = false;  // by tokenizer_config.json

  // Nothing for a tokenizer class without languages. `config` is a tokenizer_config.json.
  static std::optional<LanguageRules> of(const Json& config);

  std::string token_of(std::string_view code) const;
};

// The class that a tokenizer_config.json names, without its "Fast"; empty where it names none.
std::string tokenizer_class(const Json& config);

}  // namespace diffuse

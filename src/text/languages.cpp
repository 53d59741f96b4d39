#include "text/languages.hpp"

#include "text/element.hpp"

namespace diffuse {

std::optional<LanguageRules> LanguageRules::of(const Json& config) {
  const auto* tokenizer = find_tokenizer_facts(tokenizer_class(config));
  if (tokenizer == nullptr || !tokenizer->languages) return std::nullopt;
  LanguageRules rules;
  rules.facts = *tokenizer->languages;
  auto& facts = rules.facts;
  if (facts.legacy_source && bool_member(config, "legacy_behaviour", false, "tokenizer_config.json"))
    facts.source = *facts.legacy_source;
  if (facts.source == LanguageFacts::Source::unnamed) return rules;
  const auto given = string_member(config, "src_lang", "tokenizer_config.json");
  rules.source_given = given.has_value();
  rules.source_token = rules.token_of(given.value_or(std::string(facts.default_source)));
  return rules;
}

std::string LanguageRules::token_of(std::string_view code) const {
  return std::string(facts.before) + std::string(code) + std::string(facts.behind);
}

std::string tokenizer_class(const Json& config) {
  auto name = string_member(config, "tokenizer_class", "tokenizer_config.json").value_or("");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

}  // namespace diffuse

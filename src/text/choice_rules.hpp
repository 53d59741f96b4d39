#pragma once
// What restricts the last slice's choice of a token: one of these goes with each sequence, as numbers that
// travel with its prompt. Pure.

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "text/speech_rules.hpp"
#include "text/token_rules.hpp"

namespace diffuse {

// A transcript's: the rules, and of the tokens what they read.
struct SpeechChoice {
  SpeechRules rules;
  SpeechTokens tokens;
};
// One of these ids, in ascending order: a language.
struct OneOf {
  std::vector<std::int32_t> ids;
};
using ChoiceRules = std::variant<TokenRules, SpeechChoice, OneOf>;

std::vector<std::int32_t> pack_choice(const ChoiceRules& rules);
// Throws internal where the words are not what pack_choice made.
ChoiceRules unpack_choice(std::span<const std::int32_t> words);

// Makes impossible what the rules forbid behind `history`, of which the first `prompt` ids are the prompt's.
// `logits` is [vocab].
void apply_choice(const ChoiceRules& rules, std::span<const std::int32_t> history, std::int64_t prompt,
                  std::span<float> logits);

// Whether log-probabilities are taken among what the rules leave, as openai-whisper does; else they are the
// model's own, whatever the rules forbid, as in transformers.
bool counts_what_is_left(const ChoiceRules& rules);

}  // namespace diffuse

#pragma once
// What a Whisper decoder may say next: pure functions over a row of logits and the tokens chosen so far.
// Behaviour: openai-whisper's logit filters, which transformers' processors follow.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "text/speech_tokens.hpp"

namespace diffuse {

struct SpeechRules {
  bool timestamps = true;      // false: the prompt said <|notimestamps|>, and none is chosen by rule
  bool suppress_first = true;  // the tokens of `suppress_first` at the beginning
  std::optional<std::int32_t> max_initial_timestamp;  // index; nothing: no limit
  std::vector<std::int32_t> suppress;                 // never chosen
  double repetition_penalty = 1;     // 1: off; as in sampling.hpp, over prompt and chosen tokens
  std::int64_t no_repeat_ngram = 0;  // 0: off; no run of so many tokens comes twice
};

// Makes what the rules forbid -infinity. `chosen` are the tokens behind the prompt; `prompt` matters to the
// repetition limits alone. In this order: repetition penalty, repeated runs, first tokens, suppressed tokens,
// timestamps:
//   - <|notimestamps|> is never chosen;
//   - timestamps come in pairs: behind text and one timestamp follows a timestamp or the end; behind two,
//   text;
//   - they never go back, and a segment is longer than nothing;
//   - the first token is a timestamp of at most max_initial_timestamp;
//   - where all timestamps together are likelier than the likeliest other token, it is a timestamp.
// `logits` is [vocab].
void apply_rules(std::span<float> logits, std::span<const std::int32_t> prompt,
                 std::span<const std::int32_t> chosen, const SpeechTokens& tokens, const SpeechRules& rules);

struct LanguageGuess {
  std::int32_t id = -1;
  double probability = 0;   // among the languages alone
  std::vector<double> all;  // of tokens.languages, in their order
};

// The language of a window from the logits behind <|startoftranscript|> alone. [vocab]. Throws internal for a
// model without languages, or a row that is broken.
LanguageGuess detect_language(std::span<const float> logits, const SpeechTokens& tokens);

// softmax(logits)[id]: with <|nospeech|> and the logits at <|startoftranscript|>, the probability that
// nothing is said.
double token_probability(std::span<const float> logits, std::int32_t id);

}  // namespace diffuse

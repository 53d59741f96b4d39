#include "text/choice_rules.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "core/overloaded.hpp"
#include "text/packed_words.hpp"

namespace diffuse {
namespace {

std::vector<std::int32_t> pack_speech(const SpeechChoice& choice) {
  const auto& rules = choice.rules;
  std::vector<std::int32_t> words = {choice.tokens.end,
                                     choice.tokens.no_timestamps,
                                     choice.tokens.first_timestamp,
                                     rules.timestamps ? 1 : 0,
                                     rules.suppress_first ? 1 : 0,
                                     rules.max_initial_timestamp.value_or(-1),
                                     static_cast<std::int32_t>(rules.no_repeat_ngram)};
  put_double(words, rules.repetition_penalty);
  put_list(words, rules.suppress);
  put_list(words, choice.tokens.suppress_first);
  return words;
}

SpeechChoice unpack_speech(std::span<const std::int32_t> words) {
  PackedWords from(words);
  SpeechChoice choice;
  choice.tokens.end = from.one();
  choice.tokens.no_timestamps = from.one();
  choice.tokens.first_timestamp = from.one();
  choice.rules.timestamps = from.one() != 0;
  choice.rules.suppress_first = from.one() != 0;
  if (const auto latest = from.one(); latest >= 0) choice.rules.max_initial_timestamp = latest;
  choice.rules.no_repeat_ngram = from.one();
  choice.rules.repetition_penalty = from.real();
  choice.rules.suppress = from.list();
  choice.tokens.suppress_first = from.list();
  return choice;
}

void leave_only(std::span<const std::int32_t> ids, std::span<float> logits) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!std::ranges::binary_search(ids, static_cast<std::int32_t>(id)))
      logits[id] = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace

std::vector<std::int32_t> pack_choice(const ChoiceRules& rules) {
  auto words = std::visit(Overloaded{
                              [](const TokenRules& text) { return pack_rules(text); },
                              [](const SpeechChoice& speech) { return pack_speech(speech); },
                              [](const OneOf& one) {
                                std::vector<std::int32_t> list;
                                put_list(list, one.ids);
                                return list;
                              },
                          },
                          rules);
  words.insert(words.begin(), static_cast<std::int32_t>(rules.index()));
  return words;
}

ChoiceRules unpack_choice(std::span<const std::int32_t> words) {
  PackedWords from(words);
  switch (from.one()) {
    case 0:
      return unpack_rules(from.rest());
    case 1:
      return unpack_speech(from.rest());
    case 2:
      return OneOf{from.list()};
    default:
      throw_internal("rules of a kind that does not exist");
  }
}

void apply_choice(const ChoiceRules& rules, std::span<const std::int32_t> history, std::int64_t prompt,
                  std::span<float> logits) {
  std::visit(Overloaded{
                 [&](const TokenRules& text) { apply_rules(text, history, prompt, logits); },
                 [&](const SpeechChoice& speech) {
                   const auto count = static_cast<std::size_t>(prompt);
                   apply_rules(logits, history.first(count), history.subspan(count), speech.tokens,
                               speech.rules);
                 },
                 [&](const OneOf& one) { leave_only(one.ids, logits); },
             },
             rules);
}

bool counts_what_is_left(const ChoiceRules& rules) {
  return !std::holds_alternative<TokenRules>(rules);
}

}  // namespace diffuse

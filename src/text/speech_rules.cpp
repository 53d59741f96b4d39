#include "text/speech_rules.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/exact_math.hpp"
#include "text/sampling.hpp"

namespace diffuse {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void forbid(std::span<float> logits, std::span<const std::int32_t> ids) {
  for (const auto id : ids)
    if (id >= 0 && static_cast<std::size_t>(id) < logits.size())
      logits[static_cast<std::size_t>(id)] = kNever;
}

void forbid_range(std::span<float> logits, std::int64_t from, std::int64_t to) {
  const auto size = static_cast<std::int64_t>(logits.size());
  from = std::clamp<std::int64_t>(from, 0, size);
  to = std::clamp<std::int64_t>(to, from, size);
  std::fill(logits.begin() + from, logits.begin() + to, kNever);
}

// Forbids every token that would make the last `length` tokens a run that was there before.
void forbid_repeats(std::span<float> logits, std::span<const std::int32_t> prompt,
                    std::span<const std::int32_t> chosen, std::int64_t length) {
  std::vector<std::int32_t> ids(prompt.begin(), prompt.end());
  ids.insert(ids.end(), chosen.begin(), chosen.end());
  const auto run = static_cast<std::size_t>(length);
  if (ids.size() + 1 < run) return;
  const auto tail = std::span(ids).last(run - 1);
  for (std::size_t at = 0; at + run <= ids.size(); ++at)
    if (std::equal(tail.begin(), tail.end(), ids.begin() + static_cast<std::ptrdiff_t>(at)))
      forbid(logits, std::span(ids).subspan(at + run - 1, 1));
}

// Whether all timestamps together are likelier than the likeliest other token.
bool timestamps_win(std::span<const float> logits, std::int32_t first_timestamp) {
  const auto first = static_cast<std::size_t>(first_timestamp);
  const float highest = *std::ranges::max_element(logits);
  if (std::isinf(highest)) return false;  // greedy_token says what is wrong with such a row
  double sum = 0;
  for (const auto logit : logits.subspan(first))
    sum += exact::exp(static_cast<double>(logit) - static_cast<double>(highest));
  const float text = *std::ranges::max_element(logits.first(first));
  return sum > exact::exp(static_cast<double>(text) - static_cast<double>(highest));
}

void apply_timestamps(std::span<float> logits, std::span<const std::int32_t> chosen,
                      const SpeechTokens& tokens, const SpeechRules& rules) {
  const auto size = static_cast<std::int64_t>(logits.size());
  const std::int32_t first = tokens.first_timestamp;
  forbid(logits, std::array{tokens.no_timestamps});

  const std::size_t count = chosen.size();
  const bool last_is = count >= 1 && tokens.is_timestamp(chosen[count - 1]);
  const bool one_before_is = count < 2 || tokens.is_timestamp(chosen[count - 2]);
  if (last_is && one_before_is) forbid_range(logits, first, size);
  if (last_is && !one_before_is) forbid_range(logits, 0, tokens.end);

  std::int64_t earliest = first;
  for (const auto id : chosen)
    if (tokens.is_timestamp(id)) earliest = id + (last_is && !one_before_is ? 0 : 1);
  forbid_range(logits, first, earliest);

  if (chosen.empty()) {
    forbid_range(logits, 0, first);
    if (rules.max_initial_timestamp) forbid_range(logits, first + *rules.max_initial_timestamp + 1, size);
  }
  if (timestamps_win(logits, first)) forbid_range(logits, 0, first);
}

}  // namespace

void apply_rules(std::span<float> logits, std::span<const std::int32_t> prompt,
                 std::span<const std::int32_t> chosen, const SpeechTokens& tokens, const SpeechRules& rules) {
  if (rules.repetition_penalty != 1) {
    std::vector<std::int32_t> history(prompt.begin(), prompt.end());
    history.insert(history.end(), chosen.begin(), chosen.end());
    penalize_repeats(logits, history, rules.repetition_penalty);
  }
  if (rules.no_repeat_ngram > 0) forbid_repeats(logits, prompt, chosen, rules.no_repeat_ngram);
  if (rules.suppress_first && chosen.empty()) forbid(logits, tokens.suppress_first);
  forbid(logits, rules.suppress);
  if (rules.timestamps && static_cast<std::size_t>(tokens.first_timestamp) < logits.size())
    apply_timestamps(logits, chosen, tokens, rules);
}

LanguageGuess detect_language(std::span<const float> logits, const SpeechTokens& tokens) {
  if (!tokens.multilingual()) throw_internal("the language was to be found by a model without languages");
  std::vector<float> row;
  for (const auto& language : tokens.languages) {
    if (static_cast<std::size_t>(language.id) >= logits.size())
      throw_internal("a language's token lies outside the row of logits");
    row.push_back(logits[static_cast<std::size_t>(language.id)]);
  }
  LanguageGuess guess;
  const auto best = static_cast<std::size_t>(greedy_token(row));
  double sum = 0;
  for (const auto logit : row) {
    guess.all.push_back(exact::exp(static_cast<double>(logit) - static_cast<double>(row[best])));
    sum += guess.all.back();
  }
  for (auto& probability : guess.all) probability /= sum;
  guess.id = tokens.languages[best].id;
  guess.probability = guess.all[best];
  return guess;
}

double token_probability(std::span<const float> logits, std::int32_t id) {
  if (id < 0 || static_cast<std::size_t>(id) >= logits.size())
    throw_internal("the probability of an id outside the row was asked for");
  const auto highest = static_cast<double>(logits[static_cast<std::size_t>(greedy_token(logits))]);
  double sum = 0;
  for (const auto logit : logits) sum += exact::exp(static_cast<double>(logit) - highest);
  return exact::exp(static_cast<double>(logits[static_cast<std::size_t>(id)]) - highest) / sum;
}

}  // namespace diffuse

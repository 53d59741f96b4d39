#include "text/token_rules.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/exact_math.hpp"
#include "text/packed_words.hpp"

namespace diffuse {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

bool is_there(std::int32_t id, std::span<const float> logits) {
  return id >= 0 && static_cast<std::size_t>(id) < logits.size();
}

void forbid(std::int32_t id, std::span<float> logits) {
  if (is_there(id, logits)) logits[static_cast<std::size_t>(id)] = kImpossible;
}

void force(std::span<const std::int32_t> ids, std::span<float> logits) {
  std::ranges::fill(logits, kImpossible);
  for (const auto id : ids) {
    if (is_there(id, logits)) logits[static_cast<std::size_t>(id)] = 0;
  }
}

// What followed the last size - 1 tokens of `history` in `text`.
void forbid_repeats(std::size_t size, std::span<const std::int32_t> text,
                    std::span<const std::int32_t> history, std::span<float> logits) {
  if (history.size() + 1 < size) return;
  const auto tail = history.last(size - 1);
  for (std::size_t at = 0; at + size <= text.size(); ++at) {
    if (std::ranges::equal(text.subspan(at, size - 1), tail)) forbid(text[at + size - 1], logits);
  }
}

// Whether the last token of the run would end it.
bool may_end(std::span<const std::int32_t> run, std::span<const std::int32_t> history) {
  const auto before = run.first(run.size() - 1);
  return before.size() <= history.size() && std::ranges::equal(history.last(before.size()), before);
}

// The sum of what is added to a token comes first, and is added at once.
void add_biases(const std::vector<TokenBias>& biases, std::span<const std::int32_t> history,
                std::span<float> logits) {
  std::vector<float> sums(biases.empty() ? 0 : logits.size(), 0.0F);
  for (const auto& [run, bias] : biases) {
    if (is_there(run.back(), logits) && may_end(run, history))
      sums[static_cast<std::size_t>(run.back())] += bias;
  }
  for (std::size_t id = 0; id < sums.size(); ++id) logits[id] += sums[id];
}

// As a penalty on repetition by the inverse, over the source's tokens.
void favour_source(const TokenRules& rules, std::span<float> logits) {
  const auto inverse = static_cast<float>(1 / rules.source_penalty);
  auto ids = rules.source;
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const auto id : ids) {
    if (!is_there(id, logits)) continue;
    auto& logit = logits[static_cast<std::size_t>(id)];
    logit = logit < 0 ? logit * inverse : logit / inverse;
  }
}

void favour_the_end(const TokenRules& rules, std::int64_t length, std::span<float> logits) {
  const auto behind = static_cast<double>(length - rules.decay_start);
  const auto share = static_cast<float>(exact::pow(rules.decay_factor, behind) - 1);
  for (const auto id : rules.end_ids) {
    if (!is_there(id, logits)) continue;
    auto& logit = logits[static_cast<std::size_t>(id)];
    if (logit != kImpossible) logit += std::abs(logit) * share;
  }
}

}  // namespace

bool TokenRules::empty() const {
  return (least_tokens == 0 || end_ids.empty()) && forced_first < 0 && forced_last.empty() &&
         no_repeat == 0 && never.empty() && not_first.empty() && no_repeat_source == 0 && !changes_logits();
}

bool TokenRules::changes_logits() const {
  return source_penalty != 1 || !biases.empty() || decay_factor != 1;
}

std::vector<std::int32_t> pack_rules(const TokenRules& rules) {
  std::vector<std::int32_t> words = {static_cast<std::int32_t>(rules.least_tokens),
                                     rules.forced_first,
                                     static_cast<std::int32_t>(rules.most_tokens),
                                     rules.no_repeat,
                                     rules.no_repeat_source,
                                     static_cast<std::int32_t>(rules.decay_start)};
  put_double(words, rules.source_penalty);
  put_double(words, rules.decay_factor);
  put_list(words, rules.end_ids);
  put_list(words, rules.forced_last);
  put_list(words, rules.not_first);
  put_list(words, rules.source);
  words.push_back(static_cast<std::int32_t>(rules.never.size()));
  for (const auto& run : rules.never) put_list(words, run);
  words.push_back(static_cast<std::int32_t>(rules.biases.size()));
  for (const auto& [run, bias] : rules.biases) {
    put_list(words, run);
    put_double(words, static_cast<double>(bias));
  }
  return words;
}

TokenRules unpack_rules(std::span<const std::int32_t> words) {
  PackedWords from(words);
  TokenRules rules;
  rules.least_tokens = from.one();
  rules.forced_first = from.one();
  rules.most_tokens = from.one();
  rules.no_repeat = from.one();
  rules.no_repeat_source = from.one();
  rules.decay_start = from.one();
  rules.source_penalty = from.real();
  rules.decay_factor = from.real();
  rules.end_ids = from.list();
  rules.forced_last = from.list();
  rules.not_first = from.list();
  rules.source = from.list();
  for (auto left = from.one(); left > 0; --left) rules.never.push_back(from.list());
  for (auto left = from.one(); left > 0; --left) {
    auto& bias = rules.biases.emplace_back();
    bias.run = from.list();
    if (bias.run.empty()) throw_internal("rules on tokens have a bias of nothing");
    bias.bias = static_cast<float>(from.real());
  }
  return rules;
}

void apply_rules(const TokenRules& rules, std::span<const std::int32_t> history, std::int64_t prompt,
                 std::span<float> logits) {
  const auto length = static_cast<std::int64_t>(history.size());
  if (rules.forced_first >= 0 && length == prompt) return force(std::span(&rules.forced_first, 1), logits);
  if (!rules.forced_last.empty() && length + 1 == rules.most_tokens) return force(rules.forced_last, logits);
  add_biases(rules.biases, history, logits);
  if (rules.source_penalty != 1) favour_source(rules, logits);
  if (rules.no_repeat > 0)
    forbid_repeats(static_cast<std::size_t>(rules.no_repeat), history, history, logits);
  if (rules.no_repeat_source > 0)
    forbid_repeats(static_cast<std::size_t>(rules.no_repeat_source), rules.source, history, logits);
  for (const auto& run : rules.never) {
    if (!run.empty() && may_end(run, history)) forbid(run.back(), logits);
  }
  if (length < rules.least_tokens) {
    for (const auto id : rules.end_ids) forbid(id, logits);
  }
  if (rules.decay_factor != 1 && length > rules.decay_start) favour_the_end(rules, length, logits);
  if (length == prompt + (rules.forced_first >= 0 ? 1 : 0)) {
    for (const auto id : rules.not_first) forbid(id, logits);
  }
}

}  // namespace diffuse

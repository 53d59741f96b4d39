#include "text/token_rules.hpp"

#include <algorithm>
#include <limits>

#include "text/packed_words.hpp"

namespace diffuse {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

void forbid(std::int32_t id, std::span<float> logits) {
  if (id >= 0 && static_cast<std::size_t>(id) < logits.size())
    logits[static_cast<std::size_t>(id)] = kImpossible;
}

void force(std::span<const std::int32_t> ids, std::span<float> logits) {
  std::ranges::fill(logits, kImpossible);
  for (const auto id : ids) {
    if (id >= 0 && static_cast<std::size_t>(id) < logits.size()) logits[static_cast<std::size_t>(id)] = 0;
  }
}

// What followed the last size - 1 tokens before.
void forbid_repeats(std::size_t size, std::span<const std::int32_t> history, std::span<float> logits) {
  if (history.size() + 1 < size) return;
  const auto tail = history.last(size - 1);
  for (std::size_t at = 0; at + size <= history.size(); ++at) {
    if (std::ranges::equal(history.subspan(at, size - 1), tail)) forbid(history[at + size - 1], logits);
  }
}

void forbid_run(std::span<const std::int32_t> run, std::span<const std::int32_t> history,
                std::span<float> logits) {
  const auto before = run.first(run.size() - 1);
  if (before.size() > history.size()) return;
  if (std::ranges::equal(history.last(before.size()), before)) forbid(run.back(), logits);
}

}  // namespace

bool TokenRules::empty() const {
  return (least_tokens == 0 || end_ids.empty()) && forced_first < 0 && forced_last.empty() &&
         no_repeat == 0 && never.empty();
}

std::vector<std::int32_t> pack_rules(const TokenRules& rules) {
  std::vector<std::int32_t> words = {static_cast<std::int32_t>(rules.least_tokens), rules.forced_first,
                                     static_cast<std::int32_t>(rules.most_tokens), rules.no_repeat};
  put_list(words, rules.end_ids);
  put_list(words, rules.forced_last);
  words.push_back(static_cast<std::int32_t>(rules.never.size()));
  for (const auto& run : rules.never) put_list(words, run);
  return words;
}

TokenRules unpack_rules(std::span<const std::int32_t> words) {
  PackedWords from(words);
  TokenRules rules;
  rules.least_tokens = from.one();
  rules.forced_first = from.one();
  rules.most_tokens = from.one();
  rules.no_repeat = from.one();
  rules.end_ids = from.list();
  rules.forced_last = from.list();
  for (auto left = from.one(); left > 0; --left) rules.never.push_back(from.list());
  return rules;
}

void apply_rules(const TokenRules& rules, std::span<const std::int32_t> history, std::int64_t prompt,
                 std::span<float> logits) {
  const auto length = static_cast<std::int64_t>(history.size());
  if (rules.forced_first >= 0 && length == prompt) return force(std::span(&rules.forced_first, 1), logits);
  if (!rules.forced_last.empty() && length + 1 == rules.most_tokens) return force(rules.forced_last, logits);
  if (rules.no_repeat > 0) forbid_repeats(static_cast<std::size_t>(rules.no_repeat), history, logits);
  for (const auto& run : rules.never) {
    if (!run.empty()) forbid_run(run, history, logits);
  }
  if (length < rules.least_tokens) {
    for (const auto id : rules.end_ids) forbid(id, logits);
  }
}

}  // namespace diffuse

#include "text/token_rules.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace diffuse {
namespace {

using Ids = std::vector<std::int32_t>;

// The ids that are still possible behind `history`, of 10.
Ids possible(const TokenRules& rules, const Ids& history, std::int64_t prompt = 1) {
  std::vector<float> logits(10, 1.0F);
  apply_rules(rules, history, prompt, logits);
  Ids left;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (std::isfinite(logits[id])) left.push_back(static_cast<std::int32_t>(id));
  }
  return left;
}

const Ids kAll = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

Ids without(const Ids& gone) {
  Ids left;
  for (const auto id : kAll) {
    if (std::find(gone.begin(), gone.end(), id) == gone.end()) left.push_back(id);
  }
  return left;
}

TEST(TokenRules, WithoutAnyEverythingMayCome) {
  EXPECT_TRUE(TokenRules{}.empty());
  EXPECT_EQ(possible({}, {3, 3, 3}), kAll);
}

TEST(TokenRules, TheEndWaitsForTheLeastLength) {
  TokenRules rules;
  rules.end_ids = {1, 4};
  rules.least_tokens = 3;
  EXPECT_FALSE(rules.empty());
  EXPECT_EQ(possible(rules, {0, 5}), without({1, 4}));
  EXPECT_EQ(possible(rules, {0, 5, 6}), kAll);
}

TEST(TokenRules, TheFirstAndTheLastTokenAreForced) {
  TokenRules rules;
  rules.forced_first = 7;
  rules.forced_last = {2, 3};
  rules.most_tokens = 4;
  EXPECT_EQ(possible(rules, {0}), (Ids{7}));
  EXPECT_EQ(possible(rules, {0, 7}), kAll);
  EXPECT_EQ(possible(rules, {0, 7, 5}), (Ids{2, 3}));
  EXPECT_EQ(possible(rules, {0, 9}, 2), (Ids{7}));  // a prompt of two
}

TEST(TokenRules, NoRunComesTwice) {
  TokenRules rules;
  rules.no_repeat = 2;
  EXPECT_EQ(possible(rules, {5, 6, 5}), without({6}));
  EXPECT_EQ(possible(rules, {5, 6, 5, 7, 5}), without({6, 7}));
  rules.no_repeat = 3;
  EXPECT_EQ(possible(rules, {5, 6, 7, 5, 6}), without({7}));
  EXPECT_EQ(possible(rules, {5, 6}), kAll);
  rules.no_repeat = 1;
  EXPECT_EQ(possible(rules, {5, 6}), without({5, 6}));
}

TEST(TokenRules, BadWordsNeverCome) {
  TokenRules rules;
  rules.never = {{8}, {3, 4}, {1, 2, 9}, {700}};
  EXPECT_EQ(possible(rules, {0}), without({8}));
  EXPECT_EQ(possible(rules, {0, 3}), without({8, 4}));
  EXPECT_EQ(possible(rules, {0, 1, 2}), without({8, 9}));
}

// Beside a row and values that transformers 5.24's processors gave.
const std::vector<float> kRow = {1.0F, -2.0F, 0.5F, 3.0F, -0.25F, 2.0F, -1.5F, 0.75F, 4.0F, -3.0F};
const Ids kHistory = {0, 5, 6, 5};
const Ids kSource = {5, 6, 7, 7, 1};

void expect_row(const TokenRules& rules, const std::vector<std::pair<std::size_t, float>>& changed,
                const Ids& history = kHistory, std::int64_t prompt = 1) {
  EXPECT_FALSE(rules.empty());
  auto expected = kRow;
  for (const auto& [id, value] : changed) expected[id] = value;
  auto row = kRow;
  apply_rules(rules, history, prompt, row);
  for (std::size_t id = 0; id < row.size(); ++id) EXPECT_FLOAT_EQ(row[id], expected[id]) << id;
}

TEST(TokenRules, BiasesAreAddedToWhatWouldEndARun) {
  TokenRules rules;
  rules.biases = {{{3}, 1.5F}, {{5, 4}, -0.3F}, {{6, 5, 4}, 0.7F}, {{9, 4}, 5.0F}, {{700}, 1.0F}};
  EXPECT_TRUE(rules.changes_logits());
  expect_row(rules, {{3, 4.5F}, {4, 0.149999976F}});
}

TEST(TokenRules, WhatTheSourceHasIsFavoured) {
  TokenRules rules;
  rules.source = kSource;
  rules.source_penalty = 1.3;
  EXPECT_TRUE(rules.changes_logits());
  expect_row(rules, {{1, -1.53846157F}, {5, 2.5999999F}, {6, -1.15384614F}, {7, 0.974999964F}});
}

TEST(TokenRules, NoRunOfTheSourceComes) {
  TokenRules rules;
  rules.source = kSource;
  rules.no_repeat_source = 2;
  EXPECT_FALSE(rules.changes_logits());
  EXPECT_EQ(possible(rules, kHistory), without({6}));
  rules.no_repeat_source = 3;
  EXPECT_EQ(possible(rules, {0, 5, 6}), without({7}));
  EXPECT_EQ(possible(rules, {0}), kAll);
}

TEST(TokenRules, TheEndBecomesLikelier) {
  TokenRules rules;
  rules.end_ids = {1, 4};
  rules.decay_factor = 1.2;
  rules.decay_start = 2;
  EXPECT_TRUE(rules.changes_logits());
  expect_row(rules, {{1, -1.12F}, {4, -0.14F}});
  expect_row(rules, {}, {0, 5});  // not yet
  rules.least_tokens = 9;         // and what is impossible stays so
  EXPECT_EQ(possible(rules, kHistory), without({1, 4}));
}

TEST(TokenRules, SomeAreNeverFirst) {
  TokenRules rules;
  rules.not_first = {2, 9};
  EXPECT_FALSE(rules.empty());
  EXPECT_EQ(possible(rules, {0, 4}, 2), without({2, 9}));
  EXPECT_EQ(possible(rules, {0, 4, 4}, 2), kAll);
  rules.forced_first = 7;  // then the first is the one behind
  EXPECT_EQ(possible(rules, {0}), (Ids{7}));
  EXPECT_EQ(possible(rules, {0, 7}), without({2, 9}));
}

TEST(TokenRules, TravelAsNumbers) {
  TokenRules rules;
  rules.end_ids = {1, 4};
  rules.least_tokens = 3;
  rules.forced_first = 7;
  rules.forced_last = {2};
  rules.most_tokens = 44;
  rules.no_repeat = 5;
  rules.never = {{8}, {3, 4}};
  rules.not_first = {6};
  rules.source = {9, 9, 2};
  rules.no_repeat_source = 3;
  rules.source_penalty = 1.25;
  rules.biases = {{{1}, -0.1F}, {{2, 3}, 4.0F}};
  rules.decay_factor = 1.01;
  rules.decay_start = 77;
  const auto words = pack_rules(rules);
  EXPECT_EQ(unpack_rules(words), rules);
  for (std::size_t count = 0; count < words.size(); ++count)
    EXPECT_ANY_THROW(unpack_rules(std::span(words).first(count))) << count;
}

}  // namespace
}  // namespace diffuse

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

TEST(TokenRules, TravelAsNumbers) {
  TokenRules rules;
  rules.end_ids = {1, 4};
  rules.least_tokens = 3;
  rules.forced_first = 7;
  rules.forced_last = {2};
  rules.most_tokens = 44;
  rules.no_repeat = 5;
  rules.never = {{8}, {3, 4}};
  const auto words = pack_rules(rules);
  EXPECT_EQ(unpack_rules(words), rules);
  for (std::size_t count = 0; count < words.size(); ++count)
    EXPECT_ANY_THROW(unpack_rules(std::span(words).first(count))) << count;
}

}  // namespace
}  // namespace diffuse

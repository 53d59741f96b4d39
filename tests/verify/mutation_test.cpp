// The comparer against mutations whose one difference is known: nothing is missed, nothing else is named.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/verify/synthetic.hpp"

namespace diffuse::synthetic {

void PrintTo(Mutation mutation, std::ostream* out) {
  *out << name_of(mutation);
}

namespace {

constexpr std::uint64_t kSeeds = 200;

// The same place seen from the other side.
What reversed(What what) {
  if (what == What::missing_request) return What::extra_request;
  if (what == What::extra_request) return What::missing_request;
  return what;
}

TEST(VerifyEqual, IsIdenticalAndCountsEverything) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const auto result = make_result(seed);
    const auto comparison = compare(result, make_result(seed));
    EXPECT_TRUE(comparison.identical()) << verdict(comparison);
    EXPECT_EQ(comparison.compared, size_of(result));
    EXPECT_EQ(comparison.notes,
              std::vector<std::string>{"1 request(s) are bad in both results, each with the same message"});
  }
}

class VerifyMutation : public testing::TestWithParam<Mutation> {};

TEST_P(VerifyMutation, IsNamedExactly) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const auto original = make_result(seed);
    const auto mutated = mutate(original, GetParam(), seed);
    const auto comparison = compare(original, mutated.result);
    ASSERT_EQ(comparison.differences.size(), 1U) << verdict(comparison);
    auto found = comparison.differences.front();
    EXPECT_FALSE(found.whole.empty());
    EXPECT_FALSE(found.split.empty());
    EXPECT_NE(found.whole, found.split);
    if (mutated.expected.whole.empty()) found.whole.clear();
    if (mutated.expected.split.empty()) found.split.clear();
    EXPECT_EQ(found, mutated.expected) << sentence(found);
  }
}

TEST_P(VerifyMutation, IsFoundFromTheOtherSideToo) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const auto original = make_result(seed);
    const auto mutated = mutate(original, GetParam(), seed);
    const auto there = compare(original, mutated.result).differences;
    const auto back = compare(mutated.result, original).differences;
    ASSERT_EQ(there.size(), 1U);
    ASSERT_EQ(back.size(), 1U);
    EXPECT_EQ(back[0].what, reversed(there[0].what));
    EXPECT_EQ(back[0].sample, there[0].sample);
    EXPECT_EQ(back[0].position, there[0].position);
    EXPECT_EQ(back[0].layer, there[0].layer);
    EXPECT_EQ(back[0].count, there[0].count);
    EXPECT_EQ(back[0].whole, there[0].split);
    EXPECT_EQ(back[0].split, there[0].whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, VerifyMutation, testing::ValuesIn(all_mutations()),
                         [](const auto& test) { return name_of(test.param); });

TEST(VerifyDigest, EveryBitOfEveryCellIsFound) {
  const auto original = make_result(11);
  auto changed = original;
  auto& trace = changed.requests[0].samples[0].trace;
  for (std::int64_t layer = 0; layer < trace.layers; ++layer) {
    for (std::int64_t position = 0; position < trace.positions; ++position) {
      auto& digest = trace.digests[static_cast<std::size_t>(layer * trace.positions + position)];
      for (int bit = 0; bit < 64; ++bit) {
        digest ^= std::uint64_t{1} << bit;
        const auto found = compare(original, changed).differences;
        digest ^= std::uint64_t{1} << bit;
        ASSERT_EQ(found.size(), 1U);
        ASSERT_EQ(found[0].request, original.requests[0].id);
        ASSERT_EQ(found[0].sample, 0);
        ASSERT_EQ(found[0].position, position);
        ASSERT_EQ(found[0].layer, layer);
        ASSERT_EQ(found[0].count, 1U);
      }
    }
  }
}

// A fault as it spreads in a causal stack: to higher layers at its position and after it and, once the last
// layer of a generated position is struck, through the token to the front of the next.
TEST(VerifyDigest, TheOriginOfASpreadingFaultIsNamed) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    const auto original = make_result(seed);
    auto changed = original;
    auto& request = changed.requests[0];
    auto& sample = request.samples[0];
    auto& trace = sample.trace;
    const auto position = dice.between(0, trace.positions - 1);
    const auto layer = dice.between(0, trace.layers - 1);
    std::uint64_t struck = 0;
    const auto strike = [&](std::int64_t l, std::int64_t p) {
      trace.digests[static_cast<std::size_t>(l * trace.positions + p)] += 1;
      ++struck;
    };
    strike(layer, position);
    const auto feedback = std::max(position + 1, request.prompt_tokens);
    for (std::int64_t p = position; p < trace.positions; ++p) {
      const auto from = p >= feedback ? 0 : layer + 1;
      for (auto l = from; l < trace.layers; ++l) strike(l, p);
    }
    const auto token = feedback - request.prompt_tokens;  // the first that the fault reaches
    for (auto t = token; t < static_cast<std::int64_t>(sample.tokens.size()); ++t)
      sample.tokens[static_cast<std::size_t>(t)] ^= 1;

    const auto found = compare(original, changed).differences;
    ASSERT_GE(found.size(), 1U);
    EXPECT_EQ(found[0].what, What::digest);
    EXPECT_EQ(found[0].position, position);
    EXPECT_EQ(found[0].layer, layer);
    EXPECT_EQ(found[0].count, struck);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[1].what, What::tokens);
    EXPECT_EQ(found[1].position, token);
  }
}

}  // namespace
}  // namespace diffuse::synthetic

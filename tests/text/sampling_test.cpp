#include "text/sampling.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "support.hpp"

namespace diffuse {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> row(size);
  for (auto& logit : row) logit = normal(random);
  return row;
}

std::int32_t sample(const std::vector<float>& row, const SamplingParams& params, const SampleKey& key,
                    const std::vector<std::int32_t>& history = {}) {
  SamplingScratch scratch;
  return sample_token(row, params, history, key, scratch).id;
}

// How often each id comes over many positions.
std::map<std::int32_t, int> counts(const std::vector<float>& row, const SamplingParams& params, int draws) {
  std::map<std::int32_t, int> seen;
  for (int i = 0; i < draws; ++i)
    ++seen[sample(row, params, {.seed = 5, .position = static_cast<std::uint32_t>(i)})];
  return seen;
}

TEST(Greedy, TakesTheLowestOfEqualIds) {
  EXPECT_EQ(greedy_token(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(greedy_token(std::vector<float>{-kInfinity, -5, -kInfinity}), 1);
  EXPECT_EQ(greedy_token(std::vector<float>{-0.0F, 0.0F}), 0);
}

TEST(Greedy, NeverMakesATokenOfABrokenRow) {
  const float nan = std::nanf("");
  for (const auto& row : std::vector<std::vector<float>>{
           {1, nan, 2}, {nan}, {3, 2, nan}, {kInfinity, 1}, {-kInfinity, -kInfinity}, {}})
    error_of(ExitCode::internal, [&] { greedy_token(row); });
  error_of(ExitCode::internal, [&] { sample({1, nan}, {.temperature = 1}, {}); });
}

// Known answers of Random123's philox4x32-10.
TEST(Uniform, IsPhilox) {
  const auto expected = [](std::uint64_t first, std::uint64_t second) {
    return static_cast<double>(((first << 32) | second) >> 11) * 0x1p-53;
  };
  EXPECT_EQ(uniform_of({}), expected(0x6627e8d5, 0xe169c58d));
  EXPECT_EQ(uniform_of({.seed = ~0ULL, .request = ~0ULL, .sample = ~0U, .position = ~0U}),
            expected(0x408f276d, 0x41c83b0e));
  EXPECT_EQ(uniform_of({.seed = 0x299f31d0a4093822,
                        .request = 0x0370734413198a2e,
                        .sample = 0x85a308d3,
                        .position = 0x243f6a88}),
            expected(0xd16cfe09, 0x94fdcceb));
}

TEST(Sampling, DependsOnItsKeyAlone) {
  const auto row = random_row(1000, 1);
  const SamplingParams params{.temperature = 1};
  const SampleKey key{.seed = 1, .request = 2, .sample = 3, .position = 4};
  const auto id = sample(row, params, key);
  SamplingScratch used;
  for (std::uint32_t i = 0; i < 20; ++i)
    sample_token(random_row(3000, i), {.temperature = 2, .top_k = 5}, {}, {.seed = i}, used);
  EXPECT_EQ(sample_token(row, params, {}, key, used).id, id);
  int others = 0;
  for (std::uint32_t i = 1; i <= 10; ++i) {
    others += sample(row, params, {key.seed + i, key.request, key.sample, key.position}) != id;
    others += sample(row, params, {key.seed, key.request + i, key.sample, key.position}) != id;
    others += sample(row, params, {key.seed, key.request, key.sample + i, key.position}) != id;
    others += sample(row, params, {key.seed, key.request, key.sample, key.position + i}) != id;
  }
  EXPECT_GT(others, 30);
}

TEST(Sampling, FollowsTheDistribution) {
  const std::vector<float> row = {std::log(0.5F), std::log(0.25F), std::log(0.125F), std::log(0.125F)};
  const auto seen = counts(row, {.temperature = 1}, 40'000);
  EXPECT_NEAR(seen.at(0) / 40'000.0, 0.5, 0.01);
  EXPECT_NEAR(seen.at(1) / 40'000.0, 0.25, 0.01);
  EXPECT_NEAR(seen.at(3) / 40'000.0, 0.125, 0.01);
  const auto cold = counts(row, {.temperature = 0.5}, 40'000);
  EXPECT_NEAR(cold.at(0) / 40'000.0, 0.25 / (0.25 + 0.0625 + 2 * 0.015625), 0.01);
}

TEST(Sampling, TopKKeepsTheHighestWithTheLowestIds) {
  const std::vector<float> row = {1, 2, 2, 2, 0};
  for (const auto& [id, count] : counts(row, {.temperature = 1, .top_k = 2}, 500))
    EXPECT_TRUE(id == 1 || id == 2) << id;
  for (const auto& [id, count] : counts(row, {.temperature = 1, .top_k = 1}, 100)) EXPECT_EQ(id, 1);
  EXPECT_EQ(counts(row, {.temperature = 1, .top_k = 50}, 2000).size(), 5U);
}

TEST(Sampling, TopPKeepsTheTokenThatCrosses) {
  const std::vector<float> row = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  EXPECT_EQ(counts(row, {.temperature = 1, .top_p = 0.4}, 300).size(), 1U);
  EXPECT_EQ(counts(row, {.temperature = 1, .top_p = 0.6}, 300).size(), 2U);
  EXPECT_EQ(counts(row, {.temperature = 1, .top_p = 0.9}, 300).size(), 3U);
  EXPECT_EQ(counts(row, {.temperature = 1, .top_p = 1e-9}, 300).size(), 1U);
}

TEST(Sampling, MinPCutsAtAShareOfTheLikeliest) {
  const std::vector<float> row = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  EXPECT_EQ(counts(row, {.temperature = 1, .min_p = 0.7}, 300).size(), 1U);
  EXPECT_EQ(counts(row, {.temperature = 1, .min_p = 0.5}, 300).size(), 2U);
  EXPECT_EQ(counts(row, {.temperature = 1, .min_p = 1}, 300).size(), 1U);
}

TEST(Sampling, PenaltyMeetsEachIdOfTheHistoryOnce) {
  const std::vector<float> row = {3, 2.5F, -1, -1.2F};
  const SamplingParams params{.repetition_penalty = 1.3};
  EXPECT_EQ(sample(row, params, {}), 0);
  EXPECT_EQ(sample(row, params, {}, {0, 0, 0}), 1);
  EXPECT_EQ(sample({3, 2}, params, {}, {0, 0, 0}), 0);  // 3/1.3 > 2 > 3/1.3/1.3
  EXPECT_EQ(sample(row, params, {}, {0, 1}), 0);        // 3/1.3 > 2.5/1.3
  EXPECT_EQ(sample({-1, -1.2F}, params, {}, {0, 99, -5}), 1);
}

TEST(Sampling, NeverDrawsWhatCannotBe) {
  std::vector<float> row(200, -kInfinity);
  row[17] = 0;
  row[90] = -1;
  for (const auto& [id, count] : counts(row, {.temperature = 5}, 300))
    EXPECT_TRUE(id == 17 || id == 90) << id;
}

// A slow copy of the rule: sort everything, then walk.
std::int32_t plainly(const std::vector<float>& row, const SamplingParams& params, const SampleKey& key) {
  std::vector<std::int32_t> order(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  const auto logit = [&](std::int32_t id) { return static_cast<double>(row[static_cast<std::size_t>(id)]); };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logit(a) > logit(b); });
  if (params.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(params.top_k)));
  const double highest = logit(order.front());
  const auto weight = [&](std::int32_t id) { return std::exp((logit(id) - highest) / params.temperature); };
  double total = 0;
  for (const auto id : order) total += weight(id);
  double sum = 0;
  std::size_t kept = 0;
  while (kept < order.size() && sum < params.top_p * total && weight(order[kept]) >= params.min_p)
    sum += weight(order[kept++]);
  double passed = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    passed += weight(order[i]);
    if (passed > uniform_of(key) * sum) return order[i];
  }
  return order[kept - 1];
}

TEST(Sampling, SortsNoMoreThanItMustAndSaysTheSame) {
  const auto row = random_row(5000, 3);
  int equal = 0;
  int all = 0;
  for (const auto& params :
       std::vector<SamplingParams>{{.temperature = 3},
                                   {.temperature = 1, .top_k = 40},
                                   {.temperature = 1.5, .top_p = 0.95},
                                   {.temperature = 2, .min_p = 0.01},
                                   {.temperature = 1, .top_k = 3000, .top_p = 0.999, .min_p = 1e-4}}) {
    for (std::uint32_t position = 0; position < 200; ++position, ++all)
      equal += sample(row, params, {.seed = 9, .position = position}) ==
               plainly(row, params, {.seed = 9, .position = position});
  }
  EXPECT_EQ(equal, all);
}

TEST(Logprobs, AreOfTheModelsOwnDistribution) {
  const std::vector<float> row = {std::log(0.5F), std::log(0.125F), std::log(0.25F), std::log(0.125F)};
  SamplingScratch scratch;
  const std::vector<std::int32_t> history = {0};
  const auto sampled =
      sample_token(row, {.temperature = 0.3, .repetition_penalty = 1.5, .logprobs = 3}, history, {}, scratch);
  EXPECT_NEAR(sampled.logprob, row[static_cast<std::size_t>(sampled.id)], 1e-6);
  ASSERT_EQ(sampled.top.size(), 3U);
  EXPECT_EQ(sampled.top[0].id, 0);
  EXPECT_EQ(sampled.top[1].id, 2);
  EXPECT_EQ(sampled.top[2].id, 1);
  EXPECT_NEAR(sampled.top[1].logprob, std::log(0.25F), 1e-6);
  EXPECT_EQ(top_logprobs(row, 99, scratch).size(), 4U);
  EXPECT_TRUE(sample_token(row, {}, {}, {}, scratch).top.empty());
  error_of(ExitCode::internal, [&] { token_logprob(row, 4); });
}

}  // namespace
}  // namespace diffuse

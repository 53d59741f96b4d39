#include "schedule/balance.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <random>
#include <stdexcept>

namespace diffuse {
namespace {

using Slices = std::vector<std::pair<int, int>>;

// The best that any cut into exactly `slices` parts can do, by trying all of them.
double brute_force(const std::vector<double>& cost, double front, double back, int slices) {
  const int layers = static_cast<int>(cost.size());
  double best = std::numeric_limits<double>::infinity();
  for (unsigned mask = 0; mask < 1U << (layers - 1); ++mask) {
    if (__builtin_popcount(mask) != slices - 1) continue;
    double largest = 0;
    double stage = front;
    for (int i = 0; i < layers; ++i) {
      stage += cost[static_cast<std::size_t>(i)];
      const bool last = i + 1 == layers;
      if (!last && (mask >> i & 1U) == 0) continue;
      largest = std::max(largest, stage + (last ? back : 0));
      stage = 0;
    }
    best = std::min(best, largest);
  }
  return best;
}

TEST(Balance, EqualsBruteForce) {
  std::mt19937 random(1);
  for (int round = 0; round < 600; ++round) {
    const int layers = 1 + static_cast<int>(random() % 11);
    const int ranks = 1 + static_cast<int>(random() % 8);
    std::vector<double> cost;
    for (int i = 0; i < layers; ++i) cost.push_back(static_cast<double>(random() % 20));
    const double front = static_cast<double>(random() % 40);
    const double back = static_cast<double>(random() % 40);

    const auto slices = balance(cost, front, back, ranks);

    const int used = std::min(layers, ranks);
    ASSERT_EQ(slices.size(), static_cast<std::size_t>(used));
    int next = 0;
    for (const auto& [first, last] : slices) {
      EXPECT_EQ(first, next);
      EXPECT_LT(first, last);
      next = last;
    }
    EXPECT_EQ(next, layers);
    EXPECT_DOUBLE_EQ(largest_stage_cost(cost, front, back, slices), brute_force(cost, front, back, used));
    EXPECT_EQ(slices, balance(cost, front, back, ranks));
  }
}

TEST(Balance, HeadThatWeighsAsNineLayersMovesLayersForward) {
  const std::vector<double> layers(24, 1.0);
  EXPECT_EQ(balance(layers, 0, 9, 3), (Slices{{0, 11}, {11, 22}, {22, 24}}));
  EXPECT_EQ(balance(layers, 0, 9, 2), (Slices{{0, 17}, {17, 24}}));
}

TEST(Balance, OfEqualBottlenecksTakesTheEvenest) {
  const std::vector<double> layers(10, 1.0);
  EXPECT_EQ(balance(layers, 0, 0, 4), (Slices{{0, 3}, {3, 6}, {6, 8}, {8, 10}}));
}

TEST(Balance, RanksBeyondTheLayersGetNone) {
  EXPECT_EQ(balance(std::vector<double>{1, 1}, 5, 5, 7), (Slices{{0, 1}, {1, 2}}));
  EXPECT_EQ(balance(std::vector<double>{}, 1, 1, 3), Slices{});
  EXPECT_EQ(balance(std::vector<double>(3, 0.0), 0, 0, 2), (Slices{{0, 2}, {2, 3}}));
}

TEST(Balance, RefusesNonsense) {
  EXPECT_THROW(balance(std::vector<double>{1}, 0, 0, 0), std::runtime_error);
  EXPECT_THROW(balance(std::vector<double>{-1}, 0, 0, 1), std::runtime_error);
  EXPECT_THROW(balance(std::vector<double>{1}, std::numeric_limits<double>::quiet_NaN(), 0, 1),
               std::runtime_error);
}

}  // namespace
}  // namespace diffuse

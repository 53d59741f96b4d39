#include "text/exact_math.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

namespace diffuse {
namespace {

TEST(ExactMath, StaysCloseToTheTruth) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponents(-700, 700);
  std::uniform_real_distribution<double> logs(-300, 300);
  for (int i = 0; i < 200'000; ++i) {
    const double x = exponents(random);
    const auto truth = static_cast<double>(std::exp(static_cast<long double>(x)));
    ASSERT_NEAR(exact_exp(x) / truth, 1, 1e-15) << x;
    const double y = std::pow(10.0, logs(random));
    const auto log_truth = static_cast<double>(std::log(static_cast<long double>(y)));
    ASSERT_NEAR(exact_log(y), log_truth, 1e-16 + 4e-16 * std::fabs(log_truth)) << y;
  }
}

TEST(ExactMath, HoldsAtTheEnds) {
  EXPECT_EQ(exact_exp(0), 1);
  EXPECT_EQ(exact_exp(-709), 0);
  EXPECT_EQ(exact_exp(-INFINITY), 0);
  EXPECT_TRUE(std::isinf(exact_exp(710)));
  EXPECT_TRUE(std::isfinite(exact_exp(709)));
  EXPECT_EQ(exact_log(1), 0);
}

// Pins the bits: another compiler, machine or flag that changes them changes what a seed draws.
TEST(ExactMath, KeepsItsBits) {
  std::uint64_t mixed = 0;
  for (int i = 1; i <= 20'000; ++i) {
    mixed = mixed * 0x100000001B3ULL ^ std::bit_cast<std::uint64_t>(exact_exp(-i * 0.0353));
    mixed = mixed * 0x100000001B3ULL ^ std::bit_cast<std::uint64_t>(exact_log(i * 0.731));
  }
  EXPECT_EQ(mixed, 5193627758979920288ULL);
}

}  // namespace
}  // namespace diffuse

#include "core/exact_math.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace diffuse {
namespace {

double relative(double found, double expected) {
  return std::abs(found - expected) / std::max(std::abs(expected), 1e-300);
}

TEST(ExactMath, AgreesWithLibmToFifteenDigits) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> wide(-700, 700);
  std::uniform_real_distribution<double> angle(-1e5, 1e5);
  std::uniform_real_distribution<double> exponent(-300, 300);
  for (int i = 0; i < 20000; ++i) {
    const double x = wide(random);
    EXPECT_LT(relative(exact::exp(x), std::exp(x)), 2e-15) << x;
    const double a = angle(random);
    EXPECT_NEAR(exact::sin(a), std::sin(a), 1e-14) << a;
    EXPECT_NEAR(exact::cos(a), std::cos(a), 1e-14) << a;
    const double y = std::pow(10.0, exponent(random));
    EXPECT_NEAR(exact::log(y), std::log(y), 4e-16 * std::max(1.0, std::abs(std::log(y))) * 2) << y;
  }
}

TEST(ExactMath, KnowsTheEdges) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(exact::exp(0), 1);
  EXPECT_EQ(exact::exp(infinity), infinity);
  EXPECT_EQ(exact::exp(-infinity), 0);
  EXPECT_EQ(exact::exp(-1000), 0);
  EXPECT_TRUE(std::isnan(exact::exp(std::nan(""))));
  EXPECT_EQ(exact::log(1), 0);
  EXPECT_EQ(exact::log(0), -infinity);
  EXPECT_EQ(exact::log(infinity), infinity);
  EXPECT_TRUE(std::isnan(exact::log(-1)));
  EXPECT_NEAR(exact::log(5e-324), std::log(5e-324), 1e-12);
  EXPECT_EQ(exact::sin(0), 0);
  EXPECT_EQ(exact::cos(0), 1);
  EXPECT_LT(relative(exact::pow(10000, -0.4375), std::pow(10000, -0.4375)), 1e-14);
}

// The promise is bits, not digits: recorded once, and the same on every machine that this is run on.
TEST(ExactMath, GivesTheRecordedBits) {
  EXPECT_EQ(std::bit_cast<std::uint64_t>(exact::exp(1.0)),
            std::bit_cast<std::uint64_t>(0x1.5bf0a8b14576ap+1));
  EXPECT_EQ(std::bit_cast<std::uint64_t>(exact::log(10.0)),
            std::bit_cast<std::uint64_t>(0x1.26bb1bbb55516p+1));
}

// Pins the bits: another compiler, machine or flag that changes them changes what a seed draws.
TEST(ExactMath, KeepsItsBitsOverWholeRanges) {
  std::uint64_t mixed = 0;
  for (int i = 1; i <= 20'000; ++i) {
    mixed = mixed * 0x100000001B3ULL ^ std::bit_cast<std::uint64_t>(exact::exp(-i * 0.0353));
    mixed = mixed * 0x100000001B3ULL ^ std::bit_cast<std::uint64_t>(exact::log(i * 0.731));
  }
  EXPECT_EQ(mixed, 5193627758979920288ULL);
}

}  // namespace
}  // namespace diffuse

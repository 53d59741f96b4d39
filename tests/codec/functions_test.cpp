#include "codec/functions.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace diffuse::codec {
namespace {

std::vector<float> samples() {
  std::vector<float> values = {0, -0.0F, 1e-30F, -1e-30F, 1e-7F, -1e-7F, 90, -86.9F, -90, -1e30F, 1e30F};
  for (int i = -4000; i <= 4000; ++i) values.push_back(static_cast<float>(i) * 0.00731F);
  return values;
}

TEST(Elu, IsExpMinusOneBelowZero) {
  const auto from = samples();
  std::vector<float> to(from.size());
  elu(from, to.data());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const double exact =
        from[i] > 0 ? static_cast<double>(from[i]) : std::expm1(static_cast<double>(from[i]));
    const double room = std::min(1e-7, 3e-7 * std::abs(exact) + 1e-37);
    EXPECT_NEAR(static_cast<double>(to[i]), exact, from[i] > 0 ? 0 : room) << from[i];
  }
}

TEST(Elu, IsTheSameOfOneElementAndOfMany) {
  const auto from = samples();
  std::vector<float> to(from.size());
  elu(from, to.data());
  for (std::size_t i = 0; i < from.size(); ++i) {
    float alone = 0;
    elu({&from[i], 1}, &alone);
    EXPECT_EQ(alone, to[i]);
  }
}

TEST(Elu, KeepsNaN) {
  const std::vector<float> from = {std::numeric_limits<float>::quiet_NaN()};
  float to = 0;
  elu(from, &to);
  EXPECT_TRUE(std::isnan(to));
}

TEST(LstmCells, FollowTheFormula) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::size_t width = 257;
  std::vector<float> gates(4 * width);
  std::vector<float> cell(width);
  for (std::size_t i = 0; i < gates.size(); ++i) gates[i] = std::sin(static_cast<float>(i)) * 9;
  for (std::size_t i = 0; i < width; ++i) cell[i] = std::cos(static_cast<float>(i)) * 2;
  gates[0] = 200;
  gates[1] = -200;
  const auto before = cell;
  std::vector<float> out(width);
  lstm_cells(gates, cell, out.data());
  for (std::size_t i = 0; i < width; ++i) {
    const auto gate = [&](std::size_t which) { return static_cast<double>(gates[which * width + i]); };
    const double next =
        sigmoid(gate(1)) * static_cast<double>(before[i]) + sigmoid(gate(0)) * std::tanh(gate(2));
    EXPECT_NEAR(static_cast<double>(cell[i]), next, 5e-7) << i;
    EXPECT_NEAR(static_cast<double>(out[i]), sigmoid(gate(3)) * std::tanh(next), 5e-7) << i;
  }
}

}  // namespace
}  // namespace diffuse::codec

#pragma once
// What the kernels' tests share: every SIMD target of this machine.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/targets.hpp"

namespace diffuse::kernels::test {

class EveryTarget : public ::testing::TestWithParam<SimdTarget> {
 protected:
  const KernelTable& kernels() const { return kernels_for(GetParam()); }
};

inline std::vector<float> normal_values(std::size_t count, unsigned seed, float size = 1.0F) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, size);
  std::vector<float> values(count);
  for (auto& value : values) value = normal(engine);
  return values;
}

}  // namespace diffuse::kernels::test

#define DIFFUSE_EVERY_TARGET(suite)                                          \
  INSTANTIATE_TEST_SUITE_P(                                                  \
      , suite, ::testing::ValuesIn(::diffuse::kernels::available_targets()), \
      [](const auto& each) { return std::string(::diffuse::kernels::name_of(each.param)); })

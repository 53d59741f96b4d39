// The numbers of torch.randn for a seed.

#include "sampler/torch_randn.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arrays.hpp"

namespace diffuse {
namespace {

const std::filesystem::path kData = DIFFUSE_TEST_DATA;

TEST(TorchRandn, DrawsWhatTorchDraws) {
  const test::Arrays golden(kData / "sampler/golden.safetensors");
  int arrays = 0;
  std::size_t all = 0;
  std::size_t others = 0;  // whose bits are not torch's
  for (const auto& [name, entry] : golden.entries().items()) {
    if (!name.starts_with("randn.")) continue;
    const auto dot = name.find('.', 6);
    const auto seed = std::stoull(name.substr(6, dot - 6));
    const auto expected = golden.floats(name).values;
    const auto found = torch_randn(seed, expected.size());
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      // Near the zeros of sine and cosine torch's vector form is off by a unit of one, not of the result.
      const double unit = std::max(std::ldexp(1.0, std::ilogb(expected[i]) - 23), 0x1p-23);
      const double off = std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i])) / unit;
      ++all;
      others += off > 0 ? 1 : 0;
      ASSERT_LE(off, 2) << name << " at " << i << ": " << found[i] << " and not " << expected[i];
    }
    ++arrays;
  }
  EXPECT_EQ(arrays, 55);
  EXPECT_LT(others * 5, all) << others << " of " << all;
}

// The start latents of the recorded runs, of seeds that are known.
TEST(TorchRandn, IsTheStartOfTheRunsOfWan) {
  for (const auto& [name, seed] : {std::pair{"wan", 2}, std::pair{"wan-quiet", 2}, std::pair{"demo", 1}}) {
    const auto expected =
        test::Arrays(kData / "refinement" / name / "golden.safetensors").floats("start").values;
    const auto found = torch_randn(static_cast<std::uint64_t>(seed), expected.size());
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-6) << name << " at " << i;
  }
}

}  // namespace
}  // namespace diffuse

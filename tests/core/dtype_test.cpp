#include "core/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace diffuse {
namespace {

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(f32_to_bf16(0x1.01p+0F), 0x3f80);    // a tie, down to even
  EXPECT_EQ(f32_to_bf16(0x1.03p+0F), 0x3f82);    // a tie, up to even
  EXPECT_EQ(f32_to_bf16(0x1.0101p+0F), 0x3f81);  // just above a tie
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001U)))));
}

TEST(DType, EveryBf16SurvivesTheWayThereAndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float wide = bf16_to_f32(static_cast<std::uint16_t>(bits));
    if (std::isnan(wide)) continue;
    EXPECT_EQ(f32_to_bf16(wide), bits);
  }
}

TEST(DType, F16WidensExactly) {
  EXPECT_EQ(f16_to_f32(0x3c00), 1.0F);
  EXPECT_EQ(f16_to_f32(0xc000), -2.0F);
  EXPECT_EQ(f16_to_f32(0x0001), 0x1p-24F);
  EXPECT_EQ(f16_to_f32(0x03ff), 0x1.ff8p-15F);
  EXPECT_EQ(f16_to_f32(0x7bff), 65504.0F);
  EXPECT_EQ(f16_to_f32(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(f16_to_f32(0x7e00)));
  EXPECT_TRUE(std::signbit(f16_to_f32(0x8000)));
}

}  // namespace
}  // namespace diffuse

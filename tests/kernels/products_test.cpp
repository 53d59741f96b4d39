// The products themselves: exact sums, and one order of operations whatever the block of rows.

#include "harness.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/dtype.hpp"
#include "kernels/layout.hpp"

namespace diffuse::kernels::test {
namespace {

struct Panels {
  Panels(std::int64_t depth_in, unsigned seed)
      : depth(depth_in),
        padded(round_up(depth_in, kDepthStep)),
        values(normal_values(static_cast<std::size_t>(kPanel * depth_in), seed)),
        wide(static_cast<std::size_t>(panel_bytes(depth_in, false)) / 4),
        narrow(static_cast<std::size_t>(panel_bytes(depth_in, true)) / 2) {
    std::vector<std::uint16_t> bits;
    for (auto& value : values) {
      bits.push_back(f32_to_bf16(value));
      value = bf16_to_f32(bits.back());
    }
    pack_panel_f32(values.data(), kPanel, depth, 0, wide.data());
    pack_panel_bf16(bits.data(), kPanel, depth, 0, narrow.data());
  }
  std::int64_t depth;
  std::int64_t padded;
  std::vector<float> values;
  std::vector<float> wide;
  std::vector<std::uint16_t> narrow;
};

using Products = EveryTarget;
DIFFUSE_EVERY_TARGET(Products);

// f32 and bf16 panels of the same values are the same chain, so the same bits.
TEST_P(Products, OfBf16AndF32PanelsHaveTheSameBits) {
  for (const std::int64_t depth : {1, 2, 31, 64, 101, 1024}) {
    const Panels panels(depth, 1);
    const auto x = normal_values(static_cast<std::size_t>(13 * depth), 2);
    std::vector<float> a(13 * kPanel);
    std::vector<float> b(13 * kPanel);
    kernels().matmul_f32({.x = x.data(),
                          .x_stride = depth,
                          .rows = 13,
                          .end = depth,
                          .w = panels.wide.data(),
                          .acc = a.data()});
    kernels().matmul_bf16({.x = x.data(),
                           .x_stride = depth,
                           .rows = 13,
                           .end = depth,
                           .w = panels.narrow.data(),
                           .acc = b.data()});
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << depth;
  }
}

// Predicted to the bit: one chain of multiply-adds in ascending k.
TEST_P(Products, AreOneChainInAscendingOrder) {
  const bool fused = GetParam() != SimdTarget::baseline;
  const std::int64_t depth = 333;
  const Panels panels(depth, 3);
  const auto x = normal_values(static_cast<std::size_t>(7 * depth), 4);
  std::vector<float> acc(7 * kPanel);
  kernels().matmul_f32({.x = x.data(),
                        .x_stride = depth,
                        .rows = 7,
                        .end = depth,
                        .w = panels.wide.data(),
                        .acc = acc.data()});
  for (std::size_t r = 0; r < 7; ++r) {
    for (std::size_t n = 0; n < kPanel; ++n) {
      float sum = 0;
      for (std::size_t k = 0; k < static_cast<std::size_t>(depth); ++k) {
        const float a = x[r * static_cast<std::size_t>(depth) + k];
        const float b = panels.values[n * static_cast<std::size_t>(depth) + k];
        if (fused) {
          sum = std::fma(a, b, sum);
        } else {
          const float product = a * b;
          sum += product;
        }
      }
      ASSERT_EQ(std::bit_cast<std::uint32_t>(sum), std::bit_cast<std::uint32_t>(acc[r * kPanel + n]))
          << r << " " << n;
    }
  }
}

TEST_P(Products, NativeRowsHaveTheSameBitsInEveryBlock) {
  if (!kernels().native_bf16) GTEST_SKIP() << "no native product of bf16 in this target";
  for (const std::int64_t depth : {1, 32, 33, 896}) {
    const Panels panels(depth, 5);
    const std::int64_t stride = panels.padded + 32;
    const auto x = normal_values(static_cast<std::size_t>(100 * depth), 6);
    std::vector<std::uint16_t> narrow(static_cast<std::size_t>(100 * stride));
    for (std::int64_t r = 0; r < 100; ++r)
      kernels().narrow_bf16(x.data() + r * depth, narrow.data() + r * stride, depth, panels.padded);
    std::vector<float> alone(100 * kPanel);
    for (std::int64_t r = 0; r < 100; ++r) {
      kernels().matmul_native({.x = narrow.data() + r * stride,
                               .x_stride = stride,
                               .rows = 1,
                               .end = panels.padded,
                               .w = panels.narrow.data(),
                               .acc = alone.data() + r * kPanel});
    }
    for (const std::int64_t block : {2, 5, 6, 7, 15, 16, 17, 31, 32, 33, 48, 100}) {
      std::vector<float> acc(100 * kPanel);
      for (std::int64_t r = 0; r < 100; r += block) {
        kernels().matmul_native({.x = narrow.data() + r * stride,
                                 .x_stride = stride,
                                 .rows = std::min(block, 100 - r),
                                 .end = panels.padded,
                                 .w = panels.narrow.data(),
                                 .acc = acc.data() + r * kPanel});
      }
      ASSERT_EQ(std::memcmp(acc.data(), alone.data(), acc.size() * sizeof(float)), 0)
          << block << " rows, depth " << depth;
    }
    for (std::size_t r = 0; r < 100; ++r) {
      for (std::size_t n = 0; n < kPanel; n += 9) {
        double sum = 0;
        double size = 0;
        for (std::size_t k = 0; k < static_cast<std::size_t>(depth); ++k) {
          const double product =
              double{bf16_to_f32(f32_to_bf16(x[r * static_cast<std::size_t>(depth) + k]))} *
              panels.values[n * static_cast<std::size_t>(depth) + k];
          sum += product;
          size += std::abs(product);
        }
        ASSERT_NEAR(alone[r * kPanel + n], sum, 1e-6 * size);
      }
    }
  }
}

}  // namespace
}  // namespace diffuse::kernels::test

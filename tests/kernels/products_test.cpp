// The products themselves: exact sums, and one order of operations whatever the block of rows.

#include "harness.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "core/dtype.hpp"
#include "kernels/layout.hpp"

namespace diffuse::kernels::test {
namespace {

struct Panels {
  Panels(std::int64_t depth_in, unsigned seed)
      : depth(depth_in),
        padded(round_up(depth_in, kDepthStep)),
        values(normal_values(static_cast<std::size_t>(kPanel * depth_in), seed)),
        wide(static_cast<std::size_t>(panel_bytes(depth_in, PanelFormat::f32)) / 4),
        narrow(static_cast<std::size_t>(panel_bytes(depth_in, PanelFormat::bf16)) / 2) {
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
                          .depth = depth,
                          .w = panels.wide.data(),
                          .acc = a.data()});
    kernels().matmul_bf16({.x = x.data(),
                           .x_stride = depth,
                           .rows = 13,
                           .depth = depth,
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
                        .depth = depth,
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
                               .depth = panels.padded,
                               .w = panels.narrow.data(),
                               .acc = alone.data() + r * kPanel});
    }
    for (const std::int64_t block : {2, 5, 6, 7, 15, 16, 17, 31, 32, 33, 48, 100}) {
      std::vector<float> acc(100 * kPanel);
      for (std::int64_t r = 0; r < 100; r += block) {
        kernels().matmul_native({.x = narrow.data() + r * stride,
                                 .x_stride = stride,
                                 .rows = std::min(block, 100 - r),
                                 .depth = panels.padded,
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

// A panel's weights with a share of exponents that are too rare for a number, coded.
struct CodedWeights {
  CodedWeights(std::int64_t depth, std::int64_t every, unsigned seed)
      : padded(round_up(depth, kDepthStep)),
        bits(static_cast<std::size_t>(padded * kPanel)),
        coded(static_cast<std::size_t>(panel_bytes(depth, PanelFormat::coded))) {
    const auto values = normal_values(static_cast<std::size_t>(depth * kPanel), seed);
    std::vector<std::uint16_t> rows;
    for (const float value : values) rows.push_back(f32_to_bf16(value));
    std::uint16_t exponent = 0;
    for (std::size_t i = 0; every > 0 && i < rows.size(); i += static_cast<std::size_t>(every)) {
      exponent = static_cast<std::uint16_t>((exponent + 5) % 255);
      rows[i] = static_cast<std::uint16_t>((rows[i] & 0x807fU) | exponent % 120U << 7);
    }
    pack_panel_bf16(rows.data(), kPanel, depth, 0, bits.data());
    escaped.resize(static_cast<std::size_t>(padded / 2));
    escaped.resize(static_cast<std::size_t>(code_panel(bits.data(), depth, coded.data(), escaped.data())));
    for (const auto pair : escaped) {
      const auto from = bits.begin() + std::int64_t{pair} * 2 * kPanel;
      escaped_weights.insert(escaped_weights.end(), from, from + 2 * kPanel);
    }
  }
  CodedPanel panel() const {
    return {coded.data(), escaped.data(), static_cast<std::int64_t>(escaped.size()), escaped_weights.data()};
  }
  std::int64_t padded;
  std::vector<std::uint16_t> bits;
  std::vector<std::byte> coded;
  std::vector<std::uint32_t> escaped;
  std::vector<std::uint16_t> escaped_weights;
};

// Whatever part of the inputs is asked for, escaped pairs and all.
TEST_P(Products, CodedWeightsExpandToThemselves) {
  if (kernels().expand_coded == nullptr) GTEST_SKIP() << "no coded weights in this target";
  for (const std::int64_t every : {0, 4001, 97}) {
    const CodedWeights weights(896, every, 7);
    EXPECT_TRUE(every == 0 || !weights.escaped.empty());
    for (const auto& [begin, end] : {std::pair{0, 896}, {0, 32}, {32, 64}, {480, 896}}) {
      const auto count = static_cast<std::size_t>((end - begin) * kPanel);
      std::vector<std::uint16_t> space(count + 32);
      void* at = space.data();
      std::size_t room = space.size() * 2;
      auto* to = static_cast<std::uint16_t*>(std::align(64, count * 2, at, room));
      kernels().expand_coded(weights.panel(), begin, end, to);
      EXPECT_EQ(std::memcmp(to, weights.bits.data() + begin * kPanel, count * 2), 0) << begin << " " << every;
    }
  }
}

// For every number of rows that the kernel is for, in one walk and in pieces.
TEST_P(Products, OfCodedWeightsHaveTheBitsOfStoredOnes) {
  if (kernels().matmul_coded == nullptr) GTEST_SKIP() << "no coded weights in this target";
  for (const std::int64_t every : {0, 4001, 97}) {
    const CodedWeights weights(480, every, 8);
    const std::int64_t stride = weights.padded + 32;
    const std::int64_t most = kernels().coded_rows + 20;
    const auto values = normal_values(static_cast<std::size_t>(most * stride), 9);
    std::vector<std::uint16_t> x;
    for (const float value : values) x.push_back(f32_to_bf16(value));
    for (std::int64_t rows = 1; rows <= most; ++rows) {
      std::vector<float> stored(static_cast<std::size_t>(rows * kPanel));
      PanelProduct product{.x = x.data(),
                           .x_stride = stride,
                           .rows = rows,
                           .depth = weights.padded,
                           .w = weights.bits.data(),
                           .acc = stored.data()};
      kernels().matmul_native(product);
      std::vector<float> coded(stored.size());
      product.w = nullptr;
      product.acc = coded.data();
      kernels().matmul_coded(product, weights.panel(), 0);
      ASSERT_EQ(std::memcmp(coded.data(), stored.data(), coded.size() * sizeof(float)), 0) << rows;
      std::vector<float> pieces(stored.size());
      product.acc = pieces.data();
      for (std::int64_t begin = 0; begin < weights.padded; begin += 96) {
        product.x = x.data() + begin;
        product.depth = std::min<std::int64_t>(96, weights.padded - begin);
        product.add = begin > 0;
        kernels().matmul_coded(product, weights.panel(), begin);
      }
      ASSERT_EQ(std::memcmp(pieces.data(), stored.data(), coded.size() * sizeof(float)), 0) << rows;
    }
  }
}

// All 65,536, the numbers that are none and the infinite ones too.
TEST_P(Products, F16ExpandsToTheSameNumbers) {
  std::vector<std::uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), std::uint16_t{0});
  std::vector<float> wide(halves.size());
  kernels().expand_f16(halves.data(), wide.data(), static_cast<std::int64_t>(halves.size()));
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float expected = f16_to_f32(halves[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide[i])) << i;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected)) << i;
    }
  }
}

}  // namespace
}  // namespace diffuse::kernels::test

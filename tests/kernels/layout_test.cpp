#include "kernels/layout.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/dtype.hpp"

namespace diffuse::kernels {
namespace {

TEST(Layout, PanelsGiveBackTheirRows) {
  constexpr std::int64_t kDepth = 131;
  std::vector<float> wide;
  std::vector<std::uint16_t> narrow;
  for (std::int64_t i = 0; i < 5 * kDepth; ++i) {
    wide.push_back(static_cast<float>(i % 251) - 100);
    narrow.push_back(f32_to_bf16(wide.back()));
  }
  std::vector<float> panel(static_cast<std::size_t>(panel_bytes(kDepth, PanelFormat::f32)) / 4);
  std::vector<std::uint16_t> narrow_panel(static_cast<std::size_t>(panel_bytes(kDepth, PanelFormat::bf16)) /
                                          2);
  pack_panel_f32(wide.data(), 5, kDepth, 59, panel.data());
  pack_panel_bf16(narrow.data(), 5, kDepth, 59, narrow_panel.data());
  std::vector<float> row(kDepth);
  for (std::int64_t r = 0; r < 5; ++r) {
    unpack_row_f32(panel.data(), 59 + r, kDepth, 2, row.data());
    for (std::int64_t k = 0; k < kDepth; ++k)
      EXPECT_EQ(row[static_cast<std::size_t>(k)], 2 * wide[static_cast<std::size_t>(r * kDepth + k)]);
    unpack_row_bf16(narrow_panel.data(), 59 + r, kDepth, 2, row.data());
    for (std::int64_t k = 0; k < kDepth; ++k)
      EXPECT_EQ(row[static_cast<std::size_t>(k)], 2 * wide[static_cast<std::size_t>(r * kDepth + k)]);
  }
  // Nothing was written for the other outputs, nor behind the depth.
  std::int64_t filled = 0;
  for (const auto value : narrow_panel) filled += value != 0;
  std::int64_t expected = 0;
  for (const auto value : narrow) expected += value != 0;
  EXPECT_EQ(filled, expected);
}

TEST(Layout, CodedPanelsGiveBackTheirRows) {
  constexpr std::int64_t kDepth = 131;
  std::vector<std::uint16_t> weights;  // exponents of 100 to 119, twenty for sixteen numbers
  for (std::uint16_t i = 0; i < 5 * kDepth; ++i)
    weights.push_back(
        static_cast<std::uint16_t>((i % 7 == 0 ? 0x8000U : 0U) | (100U + i / 19 % 20) << 7 | i % 128));
  std::vector<std::uint16_t> panel(static_cast<std::size_t>(panel_bytes(kDepth, PanelFormat::bf16)) / 2);
  pack_panel_bf16(weights.data(), 5, kDepth, 59, panel.data());
  std::vector<std::byte> coded(static_cast<std::size_t>(panel_bytes(kDepth, PanelFormat::coded)));
  std::vector<std::uint32_t> escaped(80);
  const auto count = code_panel(panel.data(), kDepth, coded.data(), escaped.data());
  EXPECT_GT(count, 0);
  EXPECT_LT(count, 66);
  std::vector<std::uint16_t> kept;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto from = panel.begin() + std::int64_t{escaped[static_cast<std::size_t>(i)]} * 2 * kPanel;
    kept.insert(kept.end(), from, from + 2 * kPanel);
  }
  const CodedPanel view{coded.data(), escaped.data(), count, kept.data()};
  std::vector<float> row(kDepth);
  for (std::int64_t lane = 0; lane < kPanel; ++lane) {
    unpack_row_coded(view, lane, kDepth, 2, row.data());
    for (std::int64_t k = 0; k < kDepth; ++k) {
      const float expected =
          lane < 59 ? 0 : 2 * bf16_to_f32(weights[static_cast<std::size_t>((lane - 59) * kDepth + k)]);
      EXPECT_EQ(row[static_cast<std::size_t>(k)], expected) << lane << " " << k;
    }
  }
}

TEST(Layout, EscapedPairsAreFoundByTheirInputs) {
  const std::vector<std::uint32_t> pairs{3, 4, 17};
  const CodedPanel view{nullptr, pairs.data(), 3, nullptr};
  EXPECT_EQ(first_escaped(view, 0), 0);
  EXPECT_EQ(first_escaped(view, 6), 0);
  EXPECT_EQ(first_escaped(view, 8), 1);
  EXPECT_EQ(first_escaped(view, 10), 2);
  EXPECT_EQ(first_escaped(view, 34), 2);
  EXPECT_EQ(first_escaped(view, 36), 3);
}

TEST(Layout, PagesHoldKeysByDimensionAndValuesByPosition) {
  for (const bool bf16 : {false, true}) {
    const PageLayout layout{.head_dim = 5, .value_dim = 18, .bf16 = bf16};
    EXPECT_EQ(layout.value_stride(), 32);
    std::vector<std::byte> page(static_cast<std::size_t>(layout.head_bytes()));
    const std::vector<float> k{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    std::vector<float> v;
    for (int i = 0; i < 36; ++i) v.push_back(static_cast<float>(100 + i));
    write_page(layout, page.data(), 61, 2, k.data(), 5, v.data(), 18);
    const auto key = [&](std::int64_t d, std::int64_t slot) {
      if (!bf16) return reinterpret_cast<const float*>(page.data())[d * kTile + slot];
      return bf16_to_f32(
          reinterpret_cast<const std::uint16_t*>(page.data())[(d / 2 * kTile + slot) * 2 + d % 2]);
    };
    const auto value = [&](std::int64_t slot, std::int64_t d) {
      const std::byte* values = page.data() + layout.key_bytes();
      if (!bf16) return reinterpret_cast<const float*>(values)[slot * 32 + d];
      return bf16_to_f32(reinterpret_cast<const std::uint16_t*>(values)[(slot / 2 * 32 + d) * 2 + slot % 2]);
    };
    for (std::int64_t d = 0; d < 5; ++d) {
      EXPECT_EQ(key(d, 60), 0);
      EXPECT_EQ(key(d, 61), static_cast<float>(1 + d));
      EXPECT_EQ(key(d, 62), static_cast<float>(6 + d));
    }
    for (std::int64_t d = 0; d < 18; ++d) {
      EXPECT_EQ(value(61, d), static_cast<float>(100 + d));
      EXPECT_EQ(value(62, d), static_cast<float>(118 + d));
      EXPECT_EQ(value(63, d), 0);
    }
  }
}

}  // namespace
}  // namespace diffuse::kernels

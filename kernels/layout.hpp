#pragma once
// Where things lie: weights in panels, keys and values in pages. Only copies here, no arithmetic.

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.hpp"

namespace diffuse::kernels {

// Bytes of one panel of `depth` inputs.
constexpr std::int64_t panel_bytes(std::int64_t depth, bool bf16) {
  return bf16 ? round_up(depth, kDepthStep) * kPanel * 2 : depth * kPanel * 4;
}

// Writes `rows` <= kPanel rows of w [rows, depth] into the outputs [first, first + rows) of a zeroed panel.
void pack_panel_bf16(const std::uint16_t* w, std::int64_t rows, std::int64_t depth, std::int64_t first,
                     std::uint16_t* panel);
void pack_panel_f32(const float* w, std::int64_t rows, std::int64_t depth, std::int64_t first, float* panel);

// Row `lane` of a panel, times scale.
void unpack_row_bf16(const std::uint16_t* panel, std::int64_t lane, std::int64_t depth, float scale,
                     float* out);
void unpack_row_f32(const float* panel, std::int64_t lane, std::int64_t depth, float scale, float* out);

// One head's part of a page: keys, then values.
struct PageLayout {
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  bool bf16 = false;

  constexpr std::int64_t value_stride() const { return round_up(value_dim, kValueStep); }
  constexpr std::int64_t key_bytes() const {
    return bf16 ? round_up(head_dim, 2) * kTile * 2 : head_dim * kTile * 4;
  }
  constexpr std::int64_t head_bytes() const { return key_bytes() + value_stride() * kTile * (bf16 ? 2 : 4); }
};

// Writes the rows k [rows, head_dim] and v [rows, value_dim] of one head to the positions [slot, slot + rows)
// of a page, rounded to bf16 where the page is.
void write_page(const PageLayout& layout, std::byte* page_head, std::int64_t slot, std::int64_t rows,
                const float* k, std::int64_t k_stride, const float* v, std::int64_t v_stride);

}  // namespace diffuse::kernels

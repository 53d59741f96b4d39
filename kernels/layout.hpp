#pragma once
// Where things lie: weights in panels, keys and values in pages. Only copies here, no arithmetic.

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.hpp"

namespace diffuse::kernels {

// Of the outputs of a panel, inputs [0, depth) lie one behind the other:
//   f32, f16  [depth, kPanel]
//   bf16      [padded / 2, kPanel, 2], padded = round_up(depth, kDepthStep)
//   coded     the same weights as bf16, none changed, in 12 bits each: trained weights of a panel have nearly
//             all their exponents among few values. 64 bytes of header, the sixteen most frequent exponents;
//             then for each pair of inputs a line of 64 bytes of signs and mantissas of the outputs [0, 32),
//             one of [32, 64), and one of the exponents' numbers. Pairs of inputs with another exponent are
//             escaped: kept beside the panel as they are.
enum class PanelFormat : std::uint8_t { f32, f16, bf16, coded };

inline constexpr std::int64_t kCodedHeader = 64;
inline constexpr std::int64_t kCodedPair = 192;
inline constexpr std::int64_t kBf16Pair = kPanel * 4;

// Bytes of a number of inputs, a multiple of two in the formats of pairs.
constexpr std::int64_t input_bytes(PanelFormat format, std::int64_t inputs) {
  switch (format) {
    case PanelFormat::f32:
      return inputs * kPanel * 4;
    case PanelFormat::f16:
    case PanelFormat::bf16:
      return inputs * kPanel * 2;
    case PanelFormat::coded:
      return inputs / 2 * kCodedPair;
  }
  return 0;
}
// Bytes of one panel of `depth` inputs.
constexpr std::int64_t panel_bytes(std::int64_t depth, PanelFormat format) {
  const std::int64_t padded = round_up(depth, kDepthStep);
  switch (format) {
    case PanelFormat::f32:
    case PanelFormat::f16:
      return input_bytes(format, depth);
    case PanelFormat::bf16:
      return input_bytes(format, padded);
    case PanelFormat::coded:
      return kCodedHeader + input_bytes(format, padded);
  }
  return 0;
}

// Writes `rows` <= kPanel rows of w [rows, depth] into the outputs [first, first + rows) of a zeroed panel.
void pack_panel_bf16(const std::uint16_t* w, std::int64_t rows, std::int64_t depth, std::int64_t first,
                     std::uint16_t* panel);
void pack_panel_f16(const std::uint16_t* w, std::int64_t rows, std::int64_t depth, std::int64_t first,
                    std::uint16_t* panel);
void pack_panel_f32(const float* w, std::int64_t rows, std::int64_t depth, std::int64_t first, float* panel);

// Codes a bf16 panel of `depth` inputs; returns how many pairs of inputs were escaped, and which, ascending,
// in `escaped` (with room for all pairs).
std::int64_t code_panel(const std::uint16_t* panel, std::int64_t depth, std::byte* coded,
                        std::uint32_t* escaped);

// The first of a panel's escaped pairs that does not lie before input `begin`. Not inline, like all that the
// SIMD targets share: the linker must not take one target's code for all.
std::int64_t first_escaped(const CodedPanel& w, std::int64_t begin);
// The escaped pairs of the inputs [begin, end) to their places in bf16 [(end - begin) / 2, kPanel, 2].
void copy_escaped(const CodedPanel& w, std::int64_t begin, std::int64_t end, std::uint16_t* to);

// Row `lane` of a panel, times scale.
void unpack_row_bf16(const std::uint16_t* panel, std::int64_t lane, std::int64_t depth, float scale,
                     float* out);
void unpack_row_coded(const CodedPanel& w, std::int64_t lane, std::int64_t depth, float scale, float* out);
void unpack_row_f16(const std::uint16_t* panel, std::int64_t lane, std::int64_t depth, float scale,
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

#include "kernels/layout.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "core/dtype.hpp"

namespace diffuse::kernels {

void pack_panel_bf16(const std::uint16_t* w, std::int64_t rows, std::int64_t depth, std::int64_t first,
                     std::uint16_t* panel) {
  // Blocks of inputs keep the written part of the panel in the nearest cache while rows are walked.
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t k0 = 0; k0 < depth; k0 += kBlock) {
    const std::int64_t k1 = k0 + kBlock < depth ? k0 + kBlock : depth;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::uint16_t* from = w + row * depth;
      std::uint16_t* to = panel + (first + row) * 2;
      std::int64_t k = k0;
      for (; k + 1 < k1; k += 2) std::memcpy(to + k * kPanel, from + k, 4);
      if (k < k1) to[k * kPanel] = from[k];
    }
  }
}

namespace {

// Row by row into [depth, kPanel].
template <class Element>
void pack_by_input(const Element* w, std::int64_t rows, std::int64_t depth, std::int64_t first,
                   Element* panel) {
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t k0 = 0; k0 < depth; k0 += kBlock) {
    const std::int64_t k1 = k0 + kBlock < depth ? k0 + kBlock : depth;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t k = k0; k < k1; ++k) panel[k * kPanel + first + row] = w[row * depth + k];
    }
  }
}

}  // namespace

void pack_panel_f16(const std::uint16_t* w, std::int64_t rows, std::int64_t depth, std::int64_t first,
                    std::uint16_t* panel) {
  pack_by_input(w, rows, depth, first, panel);
}

void pack_panel_f32(const float* w, std::int64_t rows, std::int64_t depth, std::int64_t first, float* panel) {
  pack_by_input(w, rows, depth, first, panel);
}

namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kVector = 32;          // weights of 16 outputs, in pairs
constexpr std::uint16_t kKept = 0x807f;       // sign and mantissa
constexpr std::int64_t kNumbers = 2 * kLine;  // of a pair's bytes, where the exponents' numbers begin

std::uint8_t exponent_of(std::uint16_t weight) {
  return static_cast<std::uint8_t>(weight >> 7);
}

// The sixteen most frequent exponents of a panel; at equal counts the lower one.
void choose_exponents(const std::uint16_t* panel, std::int64_t weights, std::uint8_t (&chosen)[16]) {
  std::int64_t counts[256] = {};
  for (std::int64_t i = 0; i < weights; ++i) ++counts[exponent_of(panel[i])];
  for (auto& exponent : chosen) {
    const auto* most = std::max_element(std::begin(counts), std::end(counts));
    exponent = static_cast<std::uint8_t>(most - counts);
    counts[exponent] = -1;
  }
}

constexpr std::uint8_t kNoNumber = 16;

// One pair of inputs; false where an exponent has no number.
bool code_pair(const std::uint16_t* weights, const std::uint8_t (&number)[256], std::byte* to) {
  std::uint16_t kept[2][kVector] = {};
  std::uint16_t numbers[kVector] = {};
  unsigned unknown = 0;
  for (std::int64_t vector = 0; vector < 4; ++vector) {
    for (std::int64_t lane = 0; lane < kVector; ++lane) {
      const std::uint16_t weight = weights[vector * kVector + lane];
      const unsigned code = number[exponent_of(weight)];
      unknown |= code;
      const unsigned rest = weight & kKept;
      // The second vector of a line lies in the bits that the first leaves, its bytes exchanged.
      const unsigned placed = vector % 2 == 0 ? rest : (rest << 8 | rest >> 8);
      kept[vector / 2][lane] = static_cast<std::uint16_t>(kept[vector / 2][lane] | placed);
      numbers[lane] = static_cast<std::uint16_t>(numbers[lane] | (code & 15U) << (4 * vector));
    }
  }
  std::memcpy(to, kept, sizeof kept);
  std::memcpy(to + kNumbers, numbers, sizeof numbers);
  return (unknown & kNoNumber) == 0;
}

}  // namespace

std::int64_t code_panel(const std::uint16_t* panel, std::int64_t depth, std::byte* coded,
                        std::uint32_t* escaped) {
  const std::int64_t pairs = round_up(depth, kDepthStep) / 2;
  std::uint8_t chosen[16];
  choose_exponents(panel, pairs * 2 * kPanel, chosen);
  std::uint8_t number[256];
  std::fill(std::begin(number), std::end(number), kNoNumber);
  for (std::size_t i = 0; i < 16; ++i) number[chosen[i]] = static_cast<std::uint8_t>(i);
  std::memset(coded, 0, kCodedHeader);
  std::memcpy(coded, chosen, sizeof chosen);
  std::int64_t count = 0;
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    if (!code_pair(panel + pair * 2 * kPanel, number, coded + kCodedHeader + pair * kCodedPair))
      escaped[count++] = static_cast<std::uint32_t>(pair);
  }
  return count;
}

std::int64_t first_escaped(const CodedPanel& w, std::int64_t begin) {
  const auto* end = w.escaped + w.escaped_count;
  return std::lower_bound(w.escaped, end, begin,
                          [](std::uint32_t pair, std::int64_t k) { return 2 * std::int64_t{pair} < k; }) -
         w.escaped;
}

void copy_escaped(const CodedPanel& w, std::int64_t begin, std::int64_t end, std::uint16_t* to) {
  for (std::int64_t i = first_escaped(w, begin); i < w.escaped_count; ++i) {
    const std::int64_t k = 2 * std::int64_t{w.escaped[i]};
    if (k >= end) return;
    std::memcpy(to + (k - begin) * kPanel, w.escaped_weights + i * 2 * kPanel, kBf16Pair);
  }
}

void unpack_row_coded(const CodedPanel& w, std::int64_t lane, std::int64_t depth, float scale, float* out) {
  const std::int64_t vector = lane / 16;
  for (std::int64_t k = 0; k < depth; ++k) {
    const std::byte* pair = w.panel + kCodedHeader + k / 2 * kCodedPair;
    const std::int64_t place = (lane % 16 * 2 + k % 2) * 2;
    std::uint16_t kept = 0;
    std::uint16_t numbers = 0;
    std::memcpy(&kept, pair + vector / 2 * kLine + place, sizeof kept);
    std::memcpy(&numbers, pair + kNumbers + place, sizeof numbers);
    if (vector % 2 != 0) kept = static_cast<std::uint16_t>(kept << 8 | kept >> 8);
    const auto exponent = std::to_integer<unsigned>(w.panel[numbers >> (4 * vector) & 15U]);
    out[k] = scale * bf16_to_f32(static_cast<std::uint16_t>((kept & kKept) | exponent << 7));
  }
  for (std::int64_t i = 0; i < w.escaped_count; ++i) {
    const std::int64_t k = 2 * std::int64_t{w.escaped[i]};
    if (k >= depth) return;
    unpack_row_bf16(w.escaped_weights + i * 2 * kPanel, lane, std::min<std::int64_t>(2, depth - k), scale,
                    out + k);
  }
}

void unpack_row_f16(const std::uint16_t* panel, std::int64_t lane, std::int64_t depth, float scale,
                    float* out) {
  for (std::int64_t k = 0; k < depth; ++k) out[k] = scale * f16_to_f32(panel[k * kPanel + lane]);
}

void unpack_row_bf16(const std::uint16_t* panel, std::int64_t lane, std::int64_t depth, float scale,
                     float* out) {
  for (std::int64_t k = 0; k < depth; ++k)
    out[k] = scale * bf16_to_f32(panel[(k / 2 * kPanel + lane) * 2 + k % 2]);
}

void unpack_row_f32(const float* panel, std::int64_t lane, std::int64_t depth, float scale, float* out) {
  for (std::int64_t k = 0; k < depth; ++k) out[k] = scale * panel[k * kPanel + lane];
}

void write_page(const PageLayout& layout, std::byte* page_head, std::int64_t slot, std::int64_t rows,
                const float* k, std::int64_t k_stride, const float* v, std::int64_t v_stride) {
  if (layout.bf16) {
    auto* keys = reinterpret_cast<std::uint16_t*>(page_head);
    auto* values = reinterpret_cast<std::uint16_t*>(page_head + layout.key_bytes());
    for (std::int64_t d = 0; d < layout.head_dim; ++d) {
      std::uint16_t* to = keys + (d / 2 * kTile + slot) * 2 + d % 2;
      for (std::int64_t row = 0; row < rows; ++row) to[row * 2] = f32_to_bf16(k[row * k_stride + d]);
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      std::uint16_t* to = values + (slot + row) / 2 * layout.value_stride() * 2 + (slot + row) % 2;
      for (std::int64_t d = 0; d < layout.value_dim; ++d) to[d * 2] = f32_to_bf16(v[row * v_stride + d]);
    }
    return;
  }
  auto* keys = reinterpret_cast<float*>(page_head);
  auto* values = reinterpret_cast<float*>(page_head + layout.key_bytes());
  for (std::int64_t d = 0; d < layout.head_dim; ++d) {
    float* to = keys + d * kTile + slot;
    for (std::int64_t row = 0; row < rows; ++row) to[row] = k[row * k_stride + d];
  }
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(values + (slot + row) * layout.value_stride(), v + row * v_stride,
                static_cast<std::size_t>(layout.value_dim) * sizeof(float));
}

}  // namespace diffuse::kernels

#include "kernels/layout.hpp"

#include <cstring>

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

void pack_panel_f32(const float* w, std::int64_t rows, std::int64_t depth, std::int64_t first, float* panel) {
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t k0 = 0; k0 < depth; k0 += kBlock) {
    const std::int64_t k1 = k0 + kBlock < depth ? k0 + kBlock : depth;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t k = k0; k < k1; ++k) panel[k * kPanel + first + row] = w[row * depth + k];
    }
  }
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

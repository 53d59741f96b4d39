// The product of bf16 by bf16 with AVX512_BF16's dot instruction: each output is one chain over pairs of k.

#include <immintrin.h>

#include "kernels/kernels.hpp"

namespace diffuse::kernels {

void matmul_avx512_bf16(const PanelProduct& args);

namespace {

constexpr int kVectors = 4;  // of 16 outputs: one panel

template <int kRows>
void rows_of(const std::uint16_t* x, std::int64_t stride, const std::uint16_t* w, std::int64_t begin,
             std::int64_t end, float* acc, const std::byte* fetch, std::int64_t fetch_step) {
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = begin > 0 ? _mm512_loadu_ps(acc + r * kPanel + v * 16) : _mm512_setzero_ps();
  }
  for (std::int64_t k = begin; k < end; k += 2) {
    __builtin_prefetch(fetch, 0, 2);
    __builtin_prefetch(fetch + 64, 0, 2);
    fetch += fetch_step;
    __m512bh columns[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      columns[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(w + k * kPanel + v * 32));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      int pair = 0;
      __builtin_memcpy(&pair, x + r * stride + k, sizeof pair);
      const auto value = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], value, columns[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(acc + r * kPanel + v * 16, sums[r][v]);
  }
}

}  // namespace

void matmul_avx512_bf16(const PanelProduct& args) {
  const auto* w = static_cast<const std::uint16_t*>(args.w);
  const auto* x = static_cast<const std::uint16_t*>(args.x);
  float* acc = args.acc;
  std::int64_t left = args.rows;
  const std::int64_t all_blocks = (args.rows + 5) / 6;
  for (std::int64_t blocks = all_blocks; blocks > 0; --blocks) {
    // As in product-inl.hpp: a single block fetches its own weights ahead, several what comes next.
    const bool single = args.next == nullptr || all_blocks == 1;
    const std::byte* fetch = single
                                 ? static_cast<const std::byte*>(args.w) + args.begin * kPanel * 2 + 4096
                                 : args.next + args.next_bytes / all_blocks / 64 * 64 * (all_blocks - blocks);
    const std::int64_t step = single ? 256 : 128;
    const std::int64_t count = (left + blocks - 1) / blocks;
    switch (count) {
      case 1:
        rows_of<1>(x, args.x_stride, w, args.begin, args.end, acc, fetch, step);
        break;
      case 2:
        rows_of<2>(x, args.x_stride, w, args.begin, args.end, acc, fetch, step);
        break;
      case 3:
        rows_of<3>(x, args.x_stride, w, args.begin, args.end, acc, fetch, step);
        break;
      case 4:
        rows_of<4>(x, args.x_stride, w, args.begin, args.end, acc, fetch, step);
        break;
      case 5:
        rows_of<5>(x, args.x_stride, w, args.begin, args.end, acc, fetch, step);
        break;
      default:
        rows_of<6>(x, args.x_stride, w, args.begin, args.end, acc, fetch, step);
    }
    left -= count;
    x += count * args.x_stride;
    acc += count * kPanel;
  }
}

}  // namespace diffuse::kernels

// The product of bf16 by bf16 with AVX512_BF16's dot instruction: each output is one chain over pairs of k.

#include <immintrin.h>

#include <algorithm>

#include "kernels/kernels.hpp"

namespace diffuse::kernels {

void matmul_avx512_bf16(const PanelProduct& args);

namespace {

constexpr std::int64_t kLine = 64;
constexpr int kLanes = 16;

// Few rows walk all columns of a panel at once, for memory sets their pace. More rows walk parts of the
// columns one after the other: so each load of weights serves more rows, and all of them pass while the next
// panel is on its way. The lines of that one are best asked for at an even pace, no faster than memory gives
// them: a slim part where the rows are few makes the walk last.
constexpr std::int64_t kFewRows = 6;
constexpr std::int64_t kSlimRows = 11;  // parts of one vector up to here, else of two
constexpr std::int64_t kBlockRows = 12;

// Lines of weights that come next, asked for at an even pace: `lines` a pair of k.
struct Fetch {
  const std::byte* at = nullptr;
  std::int64_t step = 0;
};

template <int kLines>
inline void prefetch(Fetch& fetch) {
#pragma GCC unroll 4
  for (int line = 0; line < kLines; ++line) __builtin_prefetch(fetch.at + line * kLine, 0, 3);
  fetch.at += fetch.step;
}

// kRows rows by kVectors vectors of outputs; w and acc begin at the first of these.
template <int kRows, int kVectors, int kLines>
void block(const std::uint16_t* x, std::int64_t stride, const std::uint16_t* w, std::int64_t begin,
           std::int64_t end, float* acc, Fetch fetch) {
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = begin > 0 ? _mm512_loadu_ps(acc + r * kPanel + v * kLanes) : _mm512_setzero_ps();
  }
  for (std::int64_t k = begin; k < end; k += 2) {
    prefetch<kLines>(fetch);
    __m512bh columns[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      columns[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(w + k * kPanel + v * 2 * kLanes));
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      int pair = 0;
      __builtin_memcpy(&pair, x + r * stride + k, sizeof pair);
      const auto value = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], value, columns[v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(acc + r * kPanel + v * kLanes, sums[r][v]);
  }
}

using Block = void (*)(const std::uint16_t*, std::int64_t, const std::uint16_t*, std::int64_t, std::int64_t,
                       float*, Fetch);
constexpr Block kFew[] = {block<1, 4, 2>, block<2, 4, 2>, block<3, 4, 2>,
                          block<4, 4, 2>, block<5, 4, 2>, block<6, 4, 2>};
constexpr Block kSlim[] = {block<7, 1, 1>, block<8, 1, 1>, block<9, 1, 1>, block<10, 1, 1>, block<11, 1, 1>};
constexpr Block kWide[] = {block<6, 2, 1>,  block<7, 2, 1>,  block<8, 2, 1>, block<9, 2, 1>,
                           block<10, 2, 1>, block<11, 2, 1>, block<12, 2, 1>};
constexpr std::int64_t kFewestWide = 6;  // what equal blocks of more than kBlockRows rows have at least

void few_rows(const PanelProduct& args) {
  // The weights come from memory as they are used: some lines ahead are asked for, the processor adds the
  // others.
  constexpr std::int64_t kAhead = 4096;
  const auto* ahead = static_cast<const std::byte*>(args.w) + args.begin * kPanel * 2 + kAhead;
  kFew[args.rows - 1](static_cast<const std::uint16_t*>(args.x), args.x_stride,
                      static_cast<const std::uint16_t*>(args.w), args.begin, args.end, args.acc,
                      {ahead, 4 * kLine});
}

// All columns of some rows, in parts of kVectors vectors; returns where the next walk's fetching begins.
template <int kVectors>
const std::byte* walk_parts(Block run, const PanelProduct& args, std::int64_t row, const std::byte* next,
                            std::int64_t lines, std::int64_t share) {
  const auto* x = static_cast<const std::uint16_t*>(args.x) + row * args.x_stride;
  const auto* w = static_cast<const std::uint16_t*>(args.w);
  for (std::int64_t column = 0; column < kPanel; column += kVectors * kLanes) {
    run(x, args.x_stride, w + 2 * column, args.begin, args.end, args.acc + row * kPanel + column,
        {next, lines * kLine});
    next += share;
  }
  return next;
}

void many_rows(const PanelProduct& args) {
  const auto* next = args.next != nullptr ? args.next : static_cast<const std::byte*>(args.w);
  const auto share_of = [&](std::int64_t walks) { return args.next_bytes / walks / kLine * kLine; };
  if (args.rows <= kSlimRows) {
    constexpr std::int64_t kWalks = kPanel / kLanes;
    walk_parts<1>(kSlim[args.rows - kFewRows - 1], args, 0, next, 1, share_of(kWalks));
    return;
  }
  // Two walks of two parts at the least, so that they fetch the whole of what comes next.
  const std::int64_t blocks = std::max<std::int64_t>(2, (args.rows + kBlockRows - 1) / kBlockRows);
  const std::int64_t share = share_of(blocks * kPanel / (2 * kLanes));
  std::int64_t row = 0;
  for (std::int64_t left = blocks; left > 0; --left) {
    const std::int64_t count = (args.rows - row + left - 1) / left;
    next = walk_parts<2>(kWide[count - kFewestWide], args, row, next, 1, share);
    row += count;
  }
}

}  // namespace

void matmul_avx512_bf16(const PanelProduct& args) {
  (args.rows <= kFewRows ? few_rows : many_rows)(args);
}

}  // namespace diffuse::kernels

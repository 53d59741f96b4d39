// The product of bf16 by bf16 with AVX512_BF16's dot instruction: each output is one chain over pairs of k.

#include <immintrin.h>

#include <algorithm>
#include <type_traits>

#include "kernels/simd/coded_avx512-inl.hpp"

namespace diffuse::kernels {

void matmul_avx512_bf16(const PanelProduct& args);
void matmul_coded_avx512_bf16(const PanelProduct& args, const CodedPanel& panel, std::int64_t begin);

namespace {

// Few rows walk all columns of a panel at once, for memory sets their pace. More rows walk parts of the
// columns one after the other: so each load of weights serves more rows, and all of them pass while the next
// panel is on its way. The lines of that one are best asked for at an even pace, no faster than memory gives
// them: a slim part where the rows are few makes the walk last.
constexpr std::int64_t kFewRows = 6;
constexpr std::int64_t kSlimRows = 11;  // of stored weights: parts of one vector up to here, else of two
constexpr std::int64_t kBlockRows = 12;

// Lines of weights that come next, asked for at an even pace: `lines` a pair of k.
struct Fetch {
  const std::byte* at = nullptr;
  std::int64_t step = 0;
};

template <int kLines>
inline void prefetch(Fetch& fetch) {
#pragma GCC unroll 4
  for (int line = 0; line < kLines; ++line) __builtin_prefetch(fetch.at + line * kLine, 0, 2);
  fetch.at += fetch.step;
}

// Pairs of inputs of a part of a panel's outputs, of weights as they are; `at` begins at its first vector.
struct Stored {
  const std::byte* at;

  static constexpr std::int64_t kPairBytes = kBf16Pair;
  template <int kVectors>
  void load(__m512i (&columns)[kVectors]) const {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) columns[v] = _mm512_loadu_si512(at + v * kLine);
  }
  void part(std::int64_t first_vector) {
    at += first_vector * kLine;
  }
};

// kRows rows by kVectors vectors of outputs; acc begins at the first of these.
template <int kRows, int kVectors>
struct Block {
  __m512 sums[kRows][kVectors];

  void begin(const float* acc, bool add) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = add ? _mm512_loadu_ps(acc + r * kPanel + v * kLanes) : _mm512_setzero_ps();
    }
  }
  void store(float* acc) const {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(acc + r * kPanel + v * kLanes, sums[r][v]);
    }
  }
  void step(const std::uint16_t* x, std::int64_t stride, const __m512i (&columns)[kVectors]) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      int pair = 0;
      __builtin_memcpy(&pair, x + r * stride, sizeof pair);
      const auto value = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], reinterpret_cast<__m512bh>(columns[v]), value);
    }
  }
};

// What a walk over the inputs of a part of a panel works on.
template <class Weights>
struct Walk {
  const std::uint16_t* x;  // [rows, depth]
  std::int64_t stride;
  Weights weights;
  const CodedPanel* panel;  // of coded weights: for its escaped pairs, from `begin` on
  std::int64_t begin;
  std::int64_t column;  // the part's first output
  std::int64_t depth;
  bool add;
  float* acc;
  Fetch fetch;
};

template <class Weights, int kRows, int kVectors, int kLines>
void walk_block(const Walk<Weights>& walk) {
  Block<kRows, kVectors> block;
  block.begin(walk.acc, walk.add);
  Fetch fetch = walk.fetch;
  Weights weights = walk.weights;
  const std::int64_t stride = walk.stride;
  const std::uint16_t* x = walk.x;
  const std::uint16_t* const end = x + walk.depth;
  const CodedPanel* const panel = walk.panel;
  std::int64_t escaped = panel == nullptr ? 0 : first_escaped(*panel, walk.begin);
  __m512i columns[kVectors];
  for (;;) {
    const std::uint16_t* stop = end;
    if (panel != nullptr && escaped < panel->escaped_count)
      stop = std::min(stop, walk.x + (2 * std::int64_t{panel->escaped[escaped]} - walk.begin));
    for (; x != stop; x += 2) {
      prefetch<kLines>(fetch);
      weights.load(columns);
      weights.at += Weights::kPairBytes;
      block.step(x, stride, columns);
    }
    if (x == end) break;
    const auto* kept = panel->escaped_weights + escaped * 2 * kPanel + 2 * walk.column;
    Stored{reinterpret_cast<const std::byte*>(kept)}.load(columns);
    weights.at += Weights::kPairBytes;
    block.step(x, stride, columns);
    x += 2;
    ++escaped;
  }
  block.store(walk.acc);
}

template <class Weights>
using Run = void (*)(const Walk<Weights>&);

template <class Weights>
constexpr Run<Weights> kFew[] = {walk_block<Weights, 1, 4, 2>, walk_block<Weights, 2, 4, 2>,
                                 walk_block<Weights, 3, 4, 2>, walk_block<Weights, 4, 4, 2>,
                                 walk_block<Weights, 5, 4, 2>, walk_block<Weights, 6, 4, 2>};
constexpr Run<Stored> kSlim[] = {walk_block<Stored, 7, 1, 1>, walk_block<Stored, 8, 1, 1>,
                                 walk_block<Stored, 9, 1, 1>, walk_block<Stored, 10, 1, 1>,
                                 walk_block<Stored, 11, 1, 1>};
template <class Weights, int kLines>
constexpr Run<Weights> kWide[] = {walk_block<Weights, 6, 2, kLines>,  walk_block<Weights, 7, 2, kLines>,
                                  walk_block<Weights, 8, 2, kLines>,  walk_block<Weights, 9, 2, kLines>,
                                  walk_block<Weights, 10, 2, kLines>, walk_block<Weights, 11, 2, kLines>,
                                  walk_block<Weights, 12, 2, kLines>};
constexpr std::int64_t kFewestWide = 6;  // what equal blocks of more than kBlockRows rows have at least

template <class Weights>
void few_rows(const PanelProduct& args, Walk<Weights> walk) {
  // The weights come from memory as they are used: some lines ahead are asked for, the processor adds the
  // others.
  constexpr std::int64_t kAhead = 4096;
  walk.fetch = {walk.weights.at + kAhead, Weights::kPairBytes};
  kFew<Weights>[args.rows - 1](walk);
}

// All columns of some rows, in parts of kVectors vectors; returns where the next walk's fetching begins.
template <int kVectors, class Weights>
const std::byte* walk_parts(Run<Weights> run, const PanelProduct& args, Walk<Weights> walk, std::int64_t row,
                            const std::byte* next, std::int64_t step, std::int64_t share) {
  const Weights all = walk.weights;
  walk.x += row * args.x_stride;
  for (std::int64_t column = 0; column < kPanel; column += kVectors * kLanes) {
    walk.weights = all;
    walk.weights.part(column / kLanes);
    walk.column = column;
    walk.acc = args.acc + row * kPanel + column;
    walk.fetch = {next, step};
    run(walk);
    next += share;
  }
  return next;
}

template <class Weights>
void many_rows(const PanelProduct& args, const Walk<Weights>& walk) {
  constexpr std::int64_t kParts = kPanel / (2 * kLanes);
  const auto* next = args.next != nullptr ? args.next : walk.weights.at;
  const auto share_of = [&](std::int64_t walks) { return args.next_bytes / walks / kLine * kLine; };
  if constexpr (std::is_same_v<Weights, Stored>) {
    if (args.rows <= kSlimRows) {
      walk_parts<1>(kSlim[args.rows - kFewRows - 1], args, walk, 0, next, kLine, share_of(kPanel / kLanes));
      return;
    }
  } else if (args.rows <= kBlockRows) {
    walk_parts<2>(kWide<Weights, 2>[args.rows - kFewestWide], args, walk, 0, next, kCodedPair / kParts,
                  share_of(kParts));
    return;
  }
  // Two walks of two parts at the least, so that they fetch the whole of what comes next.
  const std::int64_t blocks = std::max<std::int64_t>(2, (args.rows + kBlockRows - 1) / kBlockRows);
  const std::int64_t share = share_of(blocks * kParts);
  std::int64_t row = 0;
  for (std::int64_t left = blocks; left > 0; --left) {
    const std::int64_t count = (args.rows - row + left - 1) / left;
    next = walk_parts<2>(kWide<Weights, 1>[count - kFewestWide], args, walk, row, next, kLine, share);
    row += count;
  }
}

template <class Weights>
void matmul(const PanelProduct& args, const Weights& weights, const CodedPanel* panel, std::int64_t begin) {
  const Walk<Weights> walk{.x = static_cast<const std::uint16_t*>(args.x),
                           .stride = args.x_stride,
                           .weights = weights,
                           .panel = panel,
                           .begin = begin,
                           .column = 0,
                           .depth = args.depth,
                           .add = args.add,
                           .acc = args.acc,
                           .fetch = {}};
  if (args.rows <= kFewRows) {
    few_rows(args, walk);
  } else {
    many_rows(args, walk);
  }
}

}  // namespace

void matmul_avx512_bf16(const PanelProduct& args) {
  matmul(args, Stored{static_cast<const std::byte*>(args.w)}, nullptr, 0);
}

void matmul_coded_avx512_bf16(const PanelProduct& args, const CodedPanel& panel, std::int64_t begin) {
  matmul(args, Coded{panel, begin}, &panel, begin);
}

}  // namespace diffuse::kernels

#pragma once
// The one inner product of these kernels: rows of f32 against columns that lie side by side in memory, for
// weights in panels and for keys and values in pages. Every output is one chain of multiply-adds in ascending
// k, whatever block of rows and columns it is computed in.

#include "kernels/simd/vectors-inl.hpp"

namespace diffuse::kernels::HWY_NAMESPACE {

// Elements of both types: f32 as [k][columns]; bf16 in pairs of k, [k / 2][columns][2], read as one 32-bit
// word a pair.
struct F32Columns {
  const float* data;
  std::int64_t width;
  const std::byte* at(std::int64_t k) const { return reinterpret_cast<const std::byte*>(data + k * width); }
};
struct Bf16Columns {
  const std::uint32_t* data;
  std::int64_t width;
  const std::byte* at(std::int64_t k) const {
    return reinterpret_cast<const std::byte*>(data + k / 2 * width);
  }
};

// Fetches memory into the second cache, two lines at a time, beside other work. Without anything to fetch it
// stays on one line that is at hand.
struct Fetch {
  const std::byte* at;
  std::int64_t step;

  HWY_INLINE void two_lines() {
    __builtin_prefetch(at, 0, 2);
    __builtin_prefetch(at + 64, 0, 2);
    at += step;
  }
};

template <int kRows, int kVectors>
struct Block {
  VF acc[kRows][kVectors];

  HWY_INLINE void clear() {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(kF32);
    }
  }
  HWY_INLINE void load(const float* from, std::int64_t stride) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::LoadU(kF32, from + r * stride + v * kLanes);
    }
  }
  HWY_INLINE void store(float* to, std::int64_t stride) const {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[r][v], kF32, to + r * stride + v * kLanes);
    }
  }
  HWY_INLINE void step(const float* x, std::int64_t x_stride, const VF (&w)[kVectors]) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const VF value = set(x[r * x_stride]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(value, w[v], acc[r][v]);
    }
  }

  HWY_INLINE void run(const float* x, std::int64_t x_stride, F32Columns w, std::int64_t begin,
                      std::int64_t end, Fetch& fetch) {
    for (std::int64_t k = begin; k < end; ++k) {
      fetch.two_lines();
      VF columns[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) columns[v] = hn::LoadU(kF32, w.data + k * w.width + v * kLanes);
      step(x + k, x_stride, columns);
    }
  }

  HWY_INLINE void even(const float* x, std::int64_t x_stride, const std::uint32_t* pairs) {
    VF columns[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      columns[v] = hn::BitCast(kF32, hn::ShiftLeft<16>(hn::LoadU(kU32, pairs + v * kLanes)));
    step(x, x_stride, columns);
  }
  HWY_INLINE void odd(const float* x, std::int64_t x_stride, const std::uint32_t* pairs) {
    VF columns[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      columns[v] =
          hn::BitCast(kF32, hn::And(hn::LoadU(kU32, pairs + v * kLanes), hn::Set(kU32, 0xffff0000U)));
    step(x, x_stride, columns);
  }
  HWY_INLINE void run(const float* x, std::int64_t x_stride, Bf16Columns w, std::int64_t begin,
                      std::int64_t end, Fetch& fetch) {
    std::int64_t k = begin;
    if (k < end && k % 2 != 0) {
      odd(x + k, x_stride, w.data + k / 2 * w.width);
      ++k;
    }
    for (; k + 1 < end; k += 2) {
      fetch.two_lines();
      const std::uint32_t* pairs = w.data + k / 2 * w.width;
      even(x + k, x_stride, pairs);
      odd(x + k + 1, x_stride, pairs);
    }
    if (k < end) even(x + k, x_stride, w.data + k / 2 * w.width);
  }
};

// As many accumulators as the registers hold beside one vector of columns each; few rows take more columns.
constexpr int kBlockRows = 6;
constexpr int kBlockVectors = kLanes == 16 ? 4 : 2;
constexpr int block_vectors(int rows) {
  return kLanes == 16 || rows > 2 ? kBlockVectors : 8 / rows;
}
// Where a block is narrower than a panel, more than one row walks the panel several times.
constexpr std::int64_t kPassRows = kBlockVectors * kLanes == kPanel ? kBlockRows : 1;

// acc[r, c] (+)= sum over k in [begin, end) of x[r, k] w[k, c] for kRows rows and `cols` columns (a multiple
// of kLanes).
template <int kRows, int kVectors, bool kLoad, class Columns>
HWY_INLINE void product_columns(const float* x, std::int64_t x_stride, Columns w, std::int64_t begin,
                                std::int64_t end, float* acc, std::int64_t acc_stride, std::int64_t& col,
                                std::int64_t cols, Fetch& fetch) {
  for (; col + kVectors * kLanes <= cols; col += kVectors * kLanes) {
    Block<kRows, kVectors> block;
    if constexpr (kLoad) {
      block.load(acc + col, acc_stride);
    } else {
      block.clear();
    }
    block.run(x, x_stride, Columns{w.data + col, w.width}, begin, end, fetch);
    fetch.step = 0;  // further columns of the same rows have nothing more to fetch
    block.store(acc + col, acc_stride);
  }
}

template <int kRows, bool kLoad, class Columns>
void product_rows(const float* x, std::int64_t x_stride, Columns w, std::int64_t begin, std::int64_t end,
                  float* acc, std::int64_t acc_stride, std::int64_t cols, Fetch fetch) {
  constexpr int kVectors = block_vectors(kRows);
  std::int64_t col = 0;
  product_columns<kRows, kVectors, kLoad>(x, x_stride, w, begin, end, acc, acc_stride, col, cols, fetch);
  product_columns<kRows, 1, kLoad>(x, x_stride, w, begin, end, acc, acc_stride, col, cols, fetch);
}

// The same for any number of rows: blocks as equal as can be, so that none is left with a single row.
template <bool kLoad, class Columns>
HWY_INLINE void product(const float* x, std::int64_t x_stride, std::int64_t rows, Columns w,
                        std::int64_t begin, std::int64_t end, float* acc, std::int64_t acc_stride,
                        std::int64_t cols, const std::byte* next = nullptr, std::int64_t next_bytes = 0) {
  std::int64_t row = 0;
  const std::int64_t all_blocks = (rows + kBlockRows - 1) / kBlockRows;
  for (std::int64_t blocks = all_blocks; blocks > 0; --blocks) {
    // A single block reads the weights as they come from memory, and asks for some lines ahead (the processor
    // adds the others); the work of several blocks hides the fetching of what comes next.
    constexpr std::int64_t kAhead = 4096;
    Fetch fetch{w.at(begin) + kAhead, 256};
    if (next != nullptr) fetch = {next + next_bytes / all_blocks / 64 * 64 * (all_blocks - blocks), 128};
    const std::int64_t count = (rows - row + blocks - 1) / blocks;
    const float* from = x + row * x_stride;
    float* to = acc + row * acc_stride;
    switch (count) {
      case 1:
        product_rows<1, kLoad>(from, x_stride, w, begin, end, to, acc_stride, cols, fetch);
        break;
      case 2:
        product_rows<2, kLoad>(from, x_stride, w, begin, end, to, acc_stride, cols, fetch);
        break;
      case 3:
        product_rows<3, kLoad>(from, x_stride, w, begin, end, to, acc_stride, cols, fetch);
        break;
      case 4:
        product_rows<4, kLoad>(from, x_stride, w, begin, end, to, acc_stride, cols, fetch);
        break;
      case 5:
        product_rows<5, kLoad>(from, x_stride, w, begin, end, to, acc_stride, cols, fetch);
        break;
      default:
        product_rows<6, kLoad>(from, x_stride, w, begin, end, to, acc_stride, cols, fetch);
    }
    row += count;
  }
}

}  // namespace diffuse::kernels::HWY_NAMESPACE

#pragma once
// Four elements at a time: what the kernels over rows have in common. A row's columns are cut into quads; a
// quad is read and written as one 16-byte (or 8-byte) word where it is whole and the rows are aligned for it,
// element by element otherwise. Which of the two never changes a bit. Loops over a quad run to 4 with a
// condition inside, so that it stays in registers.

#include <cstdint>

#include "kernels/cuda/launches.hpp"
#include "kernels/cuda/math.hpp"
#include "kernels/cuda/team.hpp"

namespace diffuse::kernels::cuda {

struct alignas(16) Quad {
  float v[4];
};
struct alignas(8) HalfQuad {
  std::uint16_t v[4];
};

inline bool aligned(const void* data, std::int64_t stride, std::int64_t element) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(4 * element) == 0 &&
         stride % 4 == 0;
}

__device__ inline Quad load_quad(const float* from, int count, bool wide) {
  if (wide && count == 4) return *reinterpret_cast<const Quad*>(from);
  Quad quad{};
  DIFFUSE_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (i < count) quad.v[i] = from[i];
  }
  return quad;
}
__device__ inline void store_quad(float* to, const Quad& quad, int count, bool wide) {
  if (wide && count == 4) {
    *reinterpret_cast<Quad*>(to) = quad;
    return;
  }
  DIFFUSE_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (i < count) to[i] = quad.v[i];
  }
}
__device__ inline HalfQuad load_half_quad(const std::uint16_t* from, int count, bool wide) {
  if (wide && count == 4) return *reinterpret_cast<const HalfQuad*>(from);
  HalfQuad quad{};
  DIFFUSE_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (i < count) quad.v[i] = from[i];
  }
  return quad;
}
__device__ inline void store_half_quad(std::uint16_t* to, const HalfQuad& quad, int count, bool wide) {
  if (wide && count == 4) {
    *reinterpret_cast<HalfQuad*>(to) = quad;
    return;
  }
  DIFFUSE_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (i < count) to[i] = quad.v[i];
  }
}
__device__ inline HalfQuad narrowed(const Quad& quad) {
  HalfQuad half;
  DIFFUSE_UNROLL
  for (int i = 0; i < 4; ++i) half.v[i] = f32_to_bf16(quad.v[i]);
  return half;
}

// Rows of f32 as a body reads or writes them.
struct InQuads {
  InQuads() = default;
  explicit InQuads(const RowsIn& rows)
      : data(rows.data), stride(rows.stride), wide(aligned(rows.data, rows.stride, 4)) {}
  __device__ Quad load(std::int64_t row, std::int64_t col, int count) const {
    return load_quad(data + row * stride + col, count, wide);
  }
  const float* data = nullptr;
  std::int64_t stride = 0;
  bool wide = false;
};
struct OutQuads {
  OutQuads() = default;
  explicit OutQuads(const RowsOut& rows)
      : data(rows.data), stride(rows.stride), wide(aligned(rows.data, rows.stride, 4)) {}
  __device__ Quad load(std::int64_t row, std::int64_t col, int count) const {
    return load_quad(data + row * stride + col, count, wide);
  }
  __device__ void store(std::int64_t row, std::int64_t col, const Quad& quad, int count) const {
    store_quad(data + row * stride + col, quad, count, wide);
  }
  float* data = nullptr;
  std::int64_t stride = 0;
  bool wide = false;
};

// Rows of a stored type.
struct StoredQuads {
  StoredQuads(const void* data_in, Element type_in, std::int64_t stride_in)
      : data(data_in),
        stride(stride_in),
        type(type_in),
        wide(aligned(data_in, stride_in, type_in == Element::f32 ? 4 : 2)) {}
  __device__ Quad load(std::int64_t row, std::int64_t col, int count) const {
    const std::int64_t at = row * stride + col;
    if (type == Element::f32) return load_quad(static_cast<const float*>(data) + at, count, wide);
    const HalfQuad half = load_half_quad(static_cast<const std::uint16_t*>(data) + at, count, wide);
    Quad quad;
    DIFFUSE_UNROLL
    for (int i = 0; i < 4; ++i)
      quad.v[i] = type == Element::bf16 ? bf16_to_f32(half.v[i]) : f16_to_f32(half.v[i]);
    return quad;
  }
  const void* data;
  std::int64_t stride;
  Element type;
  bool wide;
};

// Items of `rows` rows of `per_row` items each are cut into blocks of kBlockItems: one a thread on a GPU, so
// that one row of decode spreads over many blocks and many rows fill the card.
inline constexpr int kBlockItems = 256;

inline Grid item_blocks(std::int64_t rows, std::int64_t per_row) {
  return {(rows * per_row + kBlockItems - 1) / kBlockItems, 1, 1};
}

// body(row, item in the row) for the items of the team's block. per_row < 2^31; an item is 32 bits.
template <class Team, class Body>
__device__ void each_item(Team& team, std::int64_t rows, std::int64_t per_row, const Body& body) {
  const std::int64_t first = team.block_x() * kBlockItems;
  const auto width = static_cast<std::uint32_t>(per_row);
  std::int64_t first_row = 0;
  std::uint32_t first_item = 0;
  // A GPU divides 32 bits several times as fast, and these kernels do little else than wait for memory.
  if (first <= 0xffffffff) {
    first_row = static_cast<std::uint32_t>(first) / width;
    first_item = static_cast<std::uint32_t>(first) % width;
  } else {
    first_row = first / per_row;
    first_item = static_cast<std::uint32_t>(first % per_row);
  }
  for (int i = team.rank(); i < kBlockItems; i += team.size()) {
    const std::uint32_t item = first_item + static_cast<std::uint32_t>(i);
    const std::int64_t row = first_row + item / width;
    if (row >= rows) return;
    body(row, item % width);
  }
}

constexpr std::int64_t quads_of(std::int64_t cols) {
  return (cols + 3) / 4;
}

// body(row, col, count): the quad of `count` elements at col.
template <class Team, class Body>
__device__ void each_quad(Team& team, std::int64_t rows, std::int64_t cols, const Body& body) {
  each_item(team, rows, quads_of(cols), [&](std::int64_t row, std::uint32_t quad) {
    const std::int64_t col = std::int64_t{4} * quad;
    const std::int64_t left = cols - col;
    body(row, col, static_cast<int>(left < 4 ? left : 4));
  });
}

// Queues a body whose blocks are item_blocks(rows, per_row).
template <class Body>
cudaError_t launch_items(cudaStream_t stream, std::int64_t rows, std::int64_t per_row, const Body& body) {
  if (rows <= 0 || per_row <= 0) return cudaSuccess;
  const Grid grid = item_blocks(rows, per_row);
  if (per_row > 0x7fffffff || grid.x > 0x7fffffff) return cudaErrorInvalidValue;
  return launch(stream, grid, 0, body);
}
template <class Body>
cudaError_t launch_quads(cudaStream_t stream, std::int64_t rows, std::int64_t cols, const Body& body) {
  return launch_items(stream, rows, quads_of(cols), body);
}

}  // namespace diffuse::kernels::cuda

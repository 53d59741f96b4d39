#pragma once
// What the plan and the bodies of attention agree on: which keys a row reaches, and the scratch of a block.

#include <cstdint>

#include "kernels/cuda/attention_plan.hpp"

namespace diffuse::kernels::cuda {

// Most query vectors of a block over few rows; smaller powers of two are there too.
inline constexpr std::int64_t kMostRowQueries = 16;
// Query vectors of a tile, as scratch allows.
inline constexpr std::int64_t kTileQueries = 32;
inline constexpr std::int64_t kSmallTileQueries = 16;

// The keys [begin, end) of a sequence.
struct Reach {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

constexpr Reach reach_of(const AttentionSpan& span, std::int32_t row, bool causal, std::int64_t window) {
  if (!causal) return {0, span.keys};
  const std::int32_t position = span.first_position + row;
  const std::int64_t lowest = window > 0 ? position - window + 1 : 0;
  return {static_cast<std::int32_t>(lowest > 0 ? lowest : 0), position + 1};
}

// Scratch of a block, in this order; places count floats. Rows of queries and scores have four floats more
// than they need, so that rows side by side begin in other banks.
struct ScratchLayout {
  std::int64_t query_stride = 0;
  std::int64_t score_stride = 0;
  std::int64_t value_stride = 0;
  std::int64_t q = 0;       // [queries, query_stride]
  std::int64_t scores = 0;  // [queries, score_stride]
  std::int64_t values = 0;  // [sums, queries, value_stride]; before, the lanes of reductions
  std::int64_t lists = 0;   // [kLists, queries]
  std::int64_t tiles = 0;   // buffers of tile_bytes for keys and values on their way
  std::int64_t tile_bytes = 0;
  std::int64_t bytes = 0;  // of all

  static constexpr std::int64_t kLanes = 32;
  static constexpr std::int64_t kLists = 8;
};

constexpr std::int64_t larger(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

// sums: sets of value sums that are kept at once.
constexpr ScratchLayout scratch_layout(const PageShape& shape, std::int64_t queries, std::int64_t sums,
                                       std::int64_t buffers, std::int64_t tile_bytes) {
  ScratchLayout layout;
  layout.query_stride = shape.key_chunks() * shape.chunk() + 4;
  layout.score_stride = kPartKeys + 4;
  layout.value_stride = shape.value_stride();
  layout.q = 0;
  layout.scores = layout.q + queries * layout.query_stride;
  layout.values = layout.scores + queries * layout.score_stride;
  layout.lists = layout.values + queries * larger(sums * layout.value_stride, ScratchLayout::kLanes);
  layout.tiles = layout.lists + queries * ScratchLayout::kLists;
  layout.tile_bytes = tile_bytes;
  layout.bytes = layout.tiles * 4 + buffers * tile_bytes;
  return layout;
}

// A block over few rows; staged: with room for the values of a part.
constexpr ScratchLayout row_scratch(const PageShape& shape, std::int64_t queries, bool staged) {
  return scratch_layout(shape, queries, kPartPages, staged ? kPartPages : 0, shape.value_bytes());
}
// A block over a tile, with the keys or values of a page at hand and of the next one.
constexpr ScratchLayout tile_scratch(const PageShape& shape, std::int64_t queries) {
  return scratch_layout(shape, queries, 1, 2, larger(shape.key_bytes(), shape.value_bytes()));
}

}  // namespace diffuse::kernels::cuda

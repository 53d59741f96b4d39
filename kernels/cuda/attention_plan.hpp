#pragma once
// How the rows of a batch are cut into blocks of attention; pure host code. The cut decides speed alone:
// every query vector has one order of operations (launches.hpp), whatever block computes it.

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/pages.hpp"

namespace diffuse::kernels::cuda {

// Pages of a part: what is merged as one. Part of the order of operations, never tuned to a machine.
inline constexpr std::int64_t kPartPages = 4;
inline constexpr std::int64_t kPartKeys = kPartPages * kTile;

// Consecutive rows of a batch that belong to one sequence. Page of its position p:
// pages[first_page + p / kTile].
struct AttentionSpan {
  std::int32_t first_row = 0;  // in the batch
  std::int32_t rows = 0;
  std::int32_t first_position = 0;  // of first_row, in the sequence
  std::int32_t keys = 0;            // that the sequence holds: reach of every row where not causal
  std::int32_t first_page = 0;
  std::int32_t slot = 0;  // the plan's: of first_row among the rows that are cut into parts
};

// A row whose parts are merged: those of its slot in [first_part, first_part + parts).
struct AttentionMerge {
  std::int32_t row = 0;  // in the batch
  std::int32_t slot = 0;
  std::int32_t first_part = 0;
  std::int32_t parts = 0;
};

// What the launches need to know of a plan on the host.
struct AttentionCounts {
  std::int32_t row_tasks = 0;    // tasks of few query vectors: keys are read once, straight from their pages
  std::int32_t row_queries = 0;  // query vectors that such a block holds
  bool row_staged = false;       // values are fetched to scratch while keys are worked on
  std::int32_t row_chunks = 1;   // blocks that share a task's query vectors
  std::int32_t row_parts = 1;    // blocks a task; 1 with every context in one part: nothing to merge
  std::int32_t tile_tasks = 0;   // tasks of many: a block's tile of keys and values is shared
  std::int32_t tile_queries = 0;
  std::int32_t tile_chunks = 1;
  std::int32_t tile_parts = 1;   // 1: a block walks all parts of its rows
  std::int32_t merges = 0;       // rows to merge
  std::int32_t merge_parts = 1;  // parts a slot has room for in the workspace
  std::int64_t workspace_floats = 0;

  auto operator<=>(const AttentionCounts&) const = default;
};

struct AttentionPlan {
  AttentionCounts counts;
  std::vector<AttentionSpan> tasks;  // [counts.row_tasks + counts.tile_tasks], rows first
  std::vector<AttentionMerge> merges;
};

struct AttentionLimits {
  // Shared memory that a block of this device may ask for (cudaDevAttrMaxSharedMemoryPerBlockOptin).
  std::int64_t scratch_bytes = 0;
  // Blocks that fill the device: fewer tiles than these are cut into parts too. 0: tiles are never cut.
  std::int64_t blocks = 0;
  // Floats that cutting tiles may use; tiles that would need more are not cut.
  std::int64_t workspace_floats = std::int64_t{1} << 24;
  // Blocks a row task at least: a recorded graph keeps its number of blocks while contexts grow, so there are
  // more than these contexts need; blocks without keys return at once.
  std::int64_t row_parts = 1;
};

// Spans may come in any order; their slots are ignored. Throws std::invalid_argument where not even one query
// vector fits in the scratch (a head of many thousand elements).
AttentionPlan plan_attention(std::span<const AttentionSpan> spans, const PageShape& shape, std::int64_t heads,
                             bool causal, std::int64_t window, const AttentionLimits& limits);

}  // namespace diffuse::kernels::cuda

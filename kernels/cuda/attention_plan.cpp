#include "kernels/cuda/attention_plan.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/cuda/attention_layout.hpp"

namespace diffuse::kernels::cuda {
namespace {

struct Shape {
  PageShape pages;
  std::int64_t group;  // query heads of a key-value head
  bool causal;
  std::int64_t window;
};

std::int32_t part_of(std::int64_t key) {
  return static_cast<std::int32_t>(key / kPartKeys);
}

// Parts [first, last] that some row of a span reaches.
struct Parts {
  std::int32_t first;
  std::int32_t last;
  std::int32_t count() const { return last - first + 1; }
};

Parts parts_of(const AttentionSpan& span, const Shape& shape) {
  const Reach first = reach_of(span, 0, shape.causal, shape.window);
  const Reach last = reach_of(span, span.rows - 1, shape.causal, shape.window);
  return {part_of(first.begin), part_of(last.end - 1)};
}

std::int32_t most_parts(std::span<const AttentionSpan> spans, const Shape& shape) {
  std::int32_t most = 1;
  for (const auto& span : spans) most = std::max(most, parts_of(span, shape).count());
  return most;
}

// A span cut into spans of at most `rows` rows.
void cut(const AttentionSpan& span, std::int64_t rows, std::vector<AttentionSpan>& out) {
  for (std::int64_t done = 0; done < span.rows; done += rows) {
    AttentionSpan piece = span;
    piece.first_row = static_cast<std::int32_t>(span.first_row + done);
    piece.first_position = static_cast<std::int32_t>(span.first_position + done);
    piece.rows = static_cast<std::int32_t>(std::min(rows, span.rows - done));
    out.push_back(piece);
  }
}

// 0: not even the small tile fits.
std::int64_t tile_queries_in(const PageShape& pages, std::int64_t scratch_bytes) {
  for (const std::int64_t queries : {kTileQueries, kSmallTileQueries}) {
    if (tile_scratch(pages, queries).bytes <= scratch_bytes) return queries;
  }
  return 0;
}

std::int64_t row_queries_in(const PageShape& pages, std::int64_t wanted, std::int64_t scratch_bytes) {
  std::int64_t queries = 1;
  while (queries < wanted && queries < kMostRowQueries) queries *= 2;
  while (queries > 1 && row_scratch(pages, queries, false).bytes > scratch_bytes) queries /= 2;
  if (row_scratch(pages, queries, false).bytes > scratch_bytes)
    throw std::invalid_argument("attention over heads of " + std::to_string(pages.head_dim) + " keys and " +
                                std::to_string(pages.value_dim) +
                                " values does not fit in a block's shared memory");
  return queries;
}

class Planner {
 public:
  Planner(const Shape& shape, std::int64_t heads, const AttentionLimits& limits)
      : shape_(shape), heads_(heads), limits_(limits) {}

  AttentionPlan make(std::span<const AttentionSpan> spans) {
    const std::int64_t tile = tile_queries_in(shape_.pages, limits_.scratch_bytes);
    for (const auto& span : spans) {
      if (span.rows == 1 || tile == 0) {
        cut(span, std::max<std::int64_t>(1, kMostRowQueries / shape_.group), rows_);
      } else {
        cut(span, std::max<std::int64_t>(1, tile / shape_.group), tiles_);
      }
    }
    plan_rows();
    plan_tiles(tile);
    auto& counts = plan_.counts;
    plan_.tasks = std::move(rows_);
    plan_.tasks.insert(plan_.tasks.end(), tiles_.begin(), tiles_.end());
    counts.merges = static_cast<std::int32_t>(plan_.merges.size());
    counts.workspace_floats = workspace(counts.merges, counts.merge_parts);
    return std::move(plan_);
  }

 private:
  std::int64_t workspace(std::int64_t slots, std::int64_t parts) const {
    return slots * heads_ * parts * (round_up(shape_.pages.value_dim, 4) + 2);
  }

  std::int64_t most_queries(const std::vector<AttentionSpan>& tasks) const {
    std::int64_t most = 1;
    for (const auto& task : tasks) most = std::max(most, task.rows * shape_.group);
    return most;
  }

  void plan_rows() {
    if (rows_.empty()) return;
    auto& counts = plan_.counts;
    const std::int64_t queries = most_queries(rows_);
    const std::int64_t held = row_queries_in(shape_.pages, queries, limits_.scratch_bytes);
    counts.row_tasks = static_cast<std::int32_t>(rows_.size());
    counts.row_queries = static_cast<std::int32_t>(held);
    // Two blocks on a multiprocessor, so that one computes while the other waits.
    counts.row_staged = 2 * row_scratch(shape_.pages, held, true).bytes <= limits_.scratch_bytes;
    counts.row_chunks = static_cast<std::int32_t>((queries + held - 1) / held);
    counts.row_parts = std::max(most_parts(rows_, shape_), static_cast<std::int32_t>(limits_.row_parts));
    if (counts.row_parts > 1) merge(rows_, counts.row_parts);
  }

  void plan_tiles(std::int64_t tile) {
    if (tiles_.empty()) return;
    auto& counts = plan_.counts;
    counts.tile_tasks = static_cast<std::int32_t>(tiles_.size());
    counts.tile_queries = static_cast<std::int32_t>(tile);
    counts.tile_chunks = static_cast<std::int32_t>((most_queries(tiles_) + tile - 1) / tile);
    // The longest first, so that no long one is left for the end.
    std::stable_sort(tiles_.begin(), tiles_.end(), [&](const AttentionSpan& a, const AttentionSpan& b) {
      return parts_of(a, shape_).count() > parts_of(b, shape_).count();
    });
    const std::int64_t blocks = counts.tile_tasks * (heads_ / shape_.group) * counts.tile_chunks;
    std::int64_t rows = 0;
    for (const auto& task : tiles_) rows += task.rows;
    const std::int32_t parts = most_parts(tiles_, shape_);
    if (parts == 1 || blocks >= limits_.blocks || workspace(rows, parts) > limits_.workspace_floats) return;
    counts.tile_parts = parts;
    merge(tiles_, parts);
  }

  // Gives the tasks' rows their slots.
  void merge(std::vector<AttentionSpan>& tasks, std::int32_t parts) {
    for (auto& task : tasks) {
      task.slot = static_cast<std::int32_t>(plan_.merges.size());
      const std::int32_t base = parts_of(task, shape_).first;
      for (std::int32_t row = 0; row < task.rows; ++row) {
        const Reach reach = reach_of(task, row, shape_.causal, shape_.window);
        const std::int32_t first = part_of(reach.begin);
        plan_.merges.push_back(
            {task.first_row + row, task.slot + row, first - base, part_of(reach.end - 1) - first + 1});
      }
    }
    plan_.counts.merge_parts = std::max(plan_.counts.merge_parts, parts);
  }

  Shape shape_;
  std::int64_t heads_;
  AttentionLimits limits_;
  std::vector<AttentionSpan> rows_;
  std::vector<AttentionSpan> tiles_;
  AttentionPlan plan_;
};

}  // namespace

AttentionPlan plan_attention(std::span<const AttentionSpan> spans, const PageShape& shape, std::int64_t heads,
                             bool causal, std::int64_t window, const AttentionLimits& limits) {
  return Planner({shape, heads / shape.kv_heads, causal, window}, heads, limits).make(spans);
}

}  // namespace diffuse::kernels::cuda

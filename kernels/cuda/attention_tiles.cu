// Attention of many query vectors: prefill. A block holds a tile of query vectors of one key-value head and
// walks the pages in their reach, part after part; each page's keys, then its values, are staged in shared
// memory once for all of them, the next one on its way while one is worked on. What was gathered before a
// part waits in the output rows themselves, so that scratch holds only the part at hand and two blocks fit on
// a multiprocessor. Threads compute small tiles in registers: 4 queries by 4 (or 2) keys, and 4 queries by 4
// dimensions.

#include "kernels/cuda/attention_body.hpp"

namespace diffuse::kernels::cuda {
namespace {

// What is staged next: the keys or the values of a page.
struct Step {
  std::int64_t page;
  bool values;
};

// Pages [first, last].
struct Walk {
  std::int64_t first;
  std::int64_t last;

  // All keys of a part, then all its values, then the next part.
  __device__ Step after(const Step& step) const {
    const std::int64_t part = step.page / kPartPages * kPartPages;
    const std::int64_t end = part + kPartPages - 1 < last ? part + kPartPages - 1 : last;
    if (step.page < end) return {step.page + 1, step.values};
    if (!step.values) return {part > first ? part : first, true};
    return {end + 1, false};
  }
};

template <class Page, int kQueries>
struct TilesBody {
  static constexpr int kTeam = 128;
  static constexpr int kRows = 4;             // queries of a thread's small tile
  static constexpr int kKeys = kQueries / 8;  // keys of it, so that all threads have one
  static constexpr int kKeyStep = kPageKeys / kKeys;
  static constexpr int kRowBlocks = kQueries / kRows;
  AttentionLaunch launch;

  template <class Team>
  __device__ void stage(Team& team, const BlockQueries& queries, const Step& step, std::byte* to) const {
    const PageShape& shape = launch.args.shape;
    const std::byte* from =
        page_of(launch.args, queries, step.page) + (step.values ? shape.key_bytes() : std::int64_t{0});
    const std::int64_t bytes = step.values ? shape.value_bytes() : shape.key_bytes();
    for (std::int64_t at = std::int64_t{16} * team.rank(); at < bytes; at += std::int64_t{16} * team.size())
      team.copy16(to + at, from + at);
  }

  template <class Team>
  __device__ void score_page(Team& team, int count, std::int64_t page, const std::byte* keys,
                             const BlockScratch& scratch) const {
    const auto chunks = static_cast<int>(launch.args.shape.key_chunks());
    const int first = static_cast<int>(page % kPartPages) * kPageKeys;
    for (int item = team.rank(); item < kRowBlocks * kKeyStep; item += team.size()) {
      const int key = item % kKeyStep;
      const int query = item / kKeyStep * kRows;
      if (query >= count) return;
      float products[kRows][kKeys];
      multiply_keys<Page, kRows, kKeys>(scratch.q + query * scratch.query_stride, scratch.query_stride, keys,
                                        key, kKeyStep, chunks, products);
      DIFFUSE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        DIFFUSE_UNROLL
        for (int j = 0; j < kKeys; ++j) {
          const int at = key + j * kKeyStep;
          scratch.scores[(query + i) * scratch.score_stride + first + at] =
              score_of(launch.args, scratch, query + i, products[i][j], page * kPageKeys + at);
        }
      }
    }
  }

  template <class Team>
  __device__ void clear_sums(Team& team, const BlockScratch& scratch) const {
    for (int item = team.rank(); item < kQueries * scratch.value_stride; item += team.size())
      scratch.values[item] = 0;
  }

  template <class Team>
  __device__ void add_page(Team& team, int count, std::int64_t page, const std::byte* values,
                           const BlockScratch& scratch) const {
    const int quads = scratch.value_stride / 4;
    const int first = static_cast<int>(page % kPartPages) * kPageKeys;
    for (int item = team.rank(); item < kRowBlocks * quads; item += team.size()) {
      const int col = item % quads * 4;
      const int query = item / quads * kRows;
      if (query >= count) return;
      Reach reaches[kRows];
      DIFFUSE_UNROLL
      for (int i = 0; i < kRows; ++i) reaches[i] = reach_in_page(scratch, query + i, page);
      Quad sums[kRows];
      multiply_values<Page, kRows>(scratch.scores + query * scratch.score_stride + first,
                                   scratch.score_stride, values, scratch.value_stride, col, reaches, sums);
      DIFFUSE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        if (!any(reaches[i])) continue;
        float* to = scratch.values + (query + i) * scratch.value_stride + col;
        store_quad(to, sum_of(load_quad(to, 4, true), sums[i]), 4, true);
      }
    }
  }

  __device__ void merge_quad(const BlockQueries& queries, int query, int col, std::int64_t part,
                             const BlockScratch& scratch) const {
    const Attention& args = launch.args;
    Quad sum = load_quad(scratch.values + query * scratch.value_stride + col, 4, true);
    if (launch.parts > 1) {
      const std::int64_t slot = queries.span.slot + queries.row(query);
      const std::int64_t base = reach_of(queries.span, 0, args.causal, args.window).begin / kPartSize;
      const std::int64_t index = launch.state_index(slot, queries.head(query), part - base);
      store_state(launch, index, col, sum, scratch, query);
      return;
    }
    float* out = out_at(args, queries, query, col);
    const int count = values_in(args, col);
    float total = scratch.total[query];
    if (scratch.begin[query] / kPartSize != part) {
      const Shares shares = shares_of(scratch.all_largest[query], scratch.largest[query]);
      sum = merged(load_quad(out, count, launch.out_wide), sum, shares);
      total = merged(scratch.all_total[query], total, shares);
    }
    if ((scratch.end[query] - 1) / kPartSize == part) sum = quotient(sum, total);
    store_quad(out, sum, count, launch.out_wide);
  }

  // Adds the part to what was gathered before; queries that reach nothing of it keep what they have.
  template <class Team>
  __device__ void merge_part(Team& team, const BlockQueries& queries, std::int64_t part,
                             const BlockScratch& scratch) const {
    const auto quads = static_cast<int>(quads_of(launch.args.shape.value_dim));
    const auto reached = [&](int query) {
      return scratch.begin[query] < (part + 1) * kPartSize && scratch.end[query] > part * kPartSize;
    };
    for (int item = team.rank(); item < queries.count * quads; item += team.size()) {
      const int query = item / quads;
      if (reached(query)) merge_quad(queries, query, item % quads * 4, part, scratch);
    }
    team.sync();
    for (int query = team.rank(); query < queries.count; query += team.size()) {
      if (!reached(query)) continue;
      const float here = scratch.largest[query];
      const float before = scratch.all_largest[query];
      if (scratch.begin[query] / kPartSize == part) {
        scratch.all_largest[query] = here;
        scratch.all_total[query] = scratch.total[query];
      } else {
        scratch.all_largest[query] = here > before ? here : before;
        scratch.all_total[query] =
            merged(scratch.all_total[query], scratch.total[query], shares_of(before, here));
      }
    }
  }

  template <class Team>
  __device__ void run_step(Team& team, const BlockQueries& queries, const Step& step, const Step& next,
                           const std::byte* tile, const BlockScratch& scratch) const {
    const std::int64_t part = step.page / kPartPages;
    if (!step.values) {
      score_page(team, queries.count, step.page, tile, scratch);
      if (!next.values) return;
      team.sync();
      weigh_part(team, kQueries, part * kPartSize, scratch);
      clear_sums(team, scratch);
    } else {
      add_page(team, queries.count, step.page, tile, scratch);
      if (next.values) return;
      team.sync();
      merge_part(team, queries, part, scratch);
    }
  }

  __device__ Walk walk_of(const Reach& reach, std::int64_t part) const {
    Walk walk{reach.begin / kPageKeys, (reach.end - 1) / kPageKeys};
    if (launch.parts > 1) {
      walk.first = walk.first > part * kPartPages ? walk.first : part * kPartPages;
      walk.last = walk.last < (part + 1) * kPartPages - 1 ? walk.last : (part + 1) * kPartPages - 1;
    }
    return walk;
  }

  template <class Team>
  __device__ void operator()(Team& team) const {
    const Attention& args = launch.args;
    const BlockQueries queries = queries_of(team, launch, kQueries);
    if (queries.count == 0) return;
    const std::int64_t base = reach_of(queries.span, 0, args.causal, args.window).begin / kPartSize;
    const Walk walk = walk_of(block_reach(queries, args), base + team.block_x() % launch.parts);
    if (walk.first > walk.last) return;

    const BlockScratch scratch(team.scratch(), launch.layout, kQueries);
    load_queries<Page>(team, args, queries, kQueries, scratch);
    std::byte* tile = scratch.tiles;
    std::byte* other = scratch.tiles + launch.layout.tile_bytes;
    Step step{walk.first, false};
    stage(team, queries, step, tile);
    team.commit_copies();
    while (step.page <= walk.last) {
      const Step next = walk.after(step);
      if (next.page <= walk.last) stage(team, queries, next, other);
      team.commit_copies();
      team.template wait_copies<1>();
      team.sync();
      run_step(team, queries, step, next, tile, scratch);
      team.sync();
      std::byte* const done = tile;
      tile = other;
      other = done;
      step = next;
    }
  }
};

template <class Page, int kQueries>
cudaError_t launch_tiles(cudaStream_t stream, const AttentionLaunch& launch_args) {
  const Attention& args = launch_args.args;
  const Grid grid{args.counts.tile_tasks * launch_args.parts, args.shape.kv_heads, args.counts.tile_chunks};
  return launch(stream, grid, launch_args.layout.bytes, TilesBody<Page, kQueries>{launch_args});
}

template <class Page>
cudaError_t launch_for(cudaStream_t stream, const AttentionLaunch& launch_args) {
  switch (launch_args.args.counts.tile_queries) {
    case kTileQueries:
      return launch_tiles<Page, kTileQueries>(stream, launch_args);
    case kSmallTileQueries:
      return launch_tiles<Page, kSmallTileQueries>(stream, launch_args);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t attend_tiles(cudaStream_t stream, const AttentionLaunch& launch_args) {
  return launch_args.args.shape.bf16 ? launch_for<PageOfBf16>(stream, launch_args)
                                     : launch_for<PageOfF32>(stream, launch_args);
}

}  // namespace diffuse::kernels::cuda

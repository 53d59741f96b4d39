// Attention of few query vectors over a long context: decode. A block takes one part of the context and reads
// each key once, straight from its page, for all query heads of the group: a thread has a key, so the threads
// of a warp read neighbouring chunks, with many loads in flight. The values are on their way to shared memory
// meanwhile, where there is room for them.

#include "kernels/cuda/attention_body.hpp"

namespace diffuse::kernels::cuda {
namespace {

template <class Page, int kQueries, bool kStaged>
struct RowsBody {
  static constexpr int kTeam = 256;
  // Query vectors that share a value once it is in registers.
  static constexpr int kShared = kQueries < 4 ? kQueries : 4;
  AttentionLaunch launch;

  template <class Team>
  __device__ void score_keys(Team& team, const BlockQueries& queries, const Reach& reach,
                             std::int64_t first_key, const BlockScratch& scratch) const {
    const auto chunks = static_cast<int>(launch.args.shape.key_chunks());
    for (int key = team.rank(); key < kPartSize; key += team.size()) {
      const std::int64_t position = first_key + key;
      if (position < reach.begin || position >= reach.end) continue;
      const std::byte* keys = page_of(launch.args, queries, position / kPageKeys);
      float products[kQueries][1];
      multiply_keys<Page, kQueries, 1>(scratch.q, scratch.query_stride, keys, key % kPageKeys, 0, chunks,
                                       products);
      DIFFUSE_UNROLL
      for (int query = 0; query < kQueries; ++query)
        scratch.scores[query * scratch.score_stride + key] =
            score_of(launch.args, scratch, query, products[query][0], position);
    }
  }

  // Fetches the values in reach, page by page of the part.
  template <class Team>
  __device__ void fetch_values(Team& team, const BlockQueries& queries, const Reach& reach,
                               std::int64_t first_key, const BlockScratch& scratch) const {
    const PageShape& shape = launch.args.shape;
    const std::int64_t row_bytes = shape.value_stride() * shape.element();
    for (int page = 0; page < static_cast<int>(kPartPages); ++page) {
      const std::int64_t position = first_key + page * kPageKeys;
      const std::int64_t begin = reach.begin > position ? reach.begin - position : 0;
      const std::int64_t end = reach.end - position < kPageKeys ? reach.end - position : kPageKeys;
      if (begin >= end) continue;
      const std::byte* from = page_of(launch.args, queries, position / kPageKeys) + shape.key_bytes();
      std::byte* to = scratch.tiles + page * shape.value_bytes();
      for (std::int64_t at = begin * row_bytes + 16 * team.rank(); at < end * row_bytes;
           at += 16 * team.size())
        team.copy16(to + at, from + at);
    }
    team.commit_copies();
  }

  __device__ const std::byte* values_at(const BlockQueries& queries, std::int64_t first_key, int page,
                                        const BlockScratch& scratch) const {
    const PageShape& shape = launch.args.shape;
    if constexpr (kStaged) return scratch.tiles + page * shape.value_bytes();
    return page_of(launch.args, queries, first_key / kPageKeys + page) + shape.key_bytes();
  }

  // values[page of the part][query] = the page's sum; nothing where the block reaches no key of a page.
  template <class Team>
  __device__ void sum_pages(Team& team, const BlockQueries& queries, const Reach& reach,
                            std::int64_t first_key, const BlockScratch& scratch) const {
    const int quads = scratch.value_stride / 4;
    constexpr int kBlocks = kQueries / kShared;
    for (int item = team.rank(); item < static_cast<int>(kPartPages) * kBlocks * quads; item += team.size()) {
      const int col = item % quads * 4;
      const int query = item / quads % kBlocks * kShared;
      const int page = item / (quads * kBlocks);
      const std::int64_t position = first_key + page * kPageKeys;
      if (position >= reach.end || position + kPageKeys <= reach.begin) continue;
      Reach reaches[kShared];
      DIFFUSE_UNROLL
      for (int i = 0; i < kShared; ++i) reaches[i] = reach_in_page(scratch, query + i, position / kPageKeys);
      Quad sums[kShared];
      multiply_values<Page, kShared>(scratch.scores + query * scratch.score_stride + page * kPageKeys,
                                     scratch.score_stride, values_at(queries, first_key, page, scratch),
                                     scratch.value_stride, col, reaches, sums);
      DIFFUSE_UNROLL
      for (int i = 0; i < kShared; ++i)
        store_quad(scratch.values + (page * kQueries + query + i) * scratch.value_stride + col, sums[i], 4,
                   true);
    }
  }

  template <class Team>
  __device__ void store(Team& team, const BlockQueries& queries, std::int64_t first_key, std::int64_t part,
                        const BlockScratch& scratch) const {
    const auto quads = static_cast<int>(quads_of(launch.args.shape.value_dim));
    for (int item = team.rank(); item < queries.count * quads; item += team.size()) {
      const int query = item / quads;
      const int col = item % quads * 4;
      Quad sum{};
      for (int page = 0; page < static_cast<int>(kPartPages); ++page) {
        if (!any(reach_in_page(scratch, query, first_key / kPageKeys + page))) continue;
        sum = sum_of(
            sum, load_quad(scratch.values + (page * kQueries + query) * scratch.value_stride + col, 4, true));
      }
      if (launch.parts > 1) {
        const std::int64_t slot = queries.span.slot + queries.row(query);
        store_state(launch, launch.state_index(slot, queries.head(query), part), col, sum, scratch, query);
      } else {
        store_quad(out_at(launch.args, queries, query, col), quotient(sum, scratch.total[query]),
                   values_in(launch.args, col), launch.out_wide);
      }
    }
  }

  template <class Team>
  __device__ void operator()(Team& team) const {
    const Attention& args = launch.args;
    const BlockQueries queries = queries_of(team, launch, kQueries);
    if (queries.count == 0) return;
    const Reach reach = block_reach(queries, args);
    const std::int64_t part = team.block_x() % launch.parts;
    const std::int64_t base = reach_of(queries.span, 0, args.causal, args.window).begin / kPartSize;
    const std::int64_t first_key = (base + part) * kPartSize;
    if (first_key >= reach.end || first_key + kPartSize <= reach.begin) return;

    const BlockScratch scratch(team.scratch(), launch.layout, kQueries);
    if constexpr (kStaged) fetch_values(team, queries, reach, first_key, scratch);
    load_queries<Page>(team, args, queries, kQueries, scratch);
    team.sync();
    score_keys(team, queries, reach, first_key, scratch);
    team.sync();
    weigh_part(team, kQueries, first_key, scratch);
    if constexpr (kStaged) {
      team.template wait_copies<0>();
      team.sync();
    }
    sum_pages(team, queries, reach, first_key, scratch);
    team.sync();
    store(team, queries, first_key, part, scratch);
  }
};

template <class Page, int kQueries>
cudaError_t launch_rows(cudaStream_t stream, const AttentionLaunch& launch_args) {
  const Attention& args = launch_args.args;
  const Grid grid{args.counts.row_tasks * launch_args.parts, args.shape.kv_heads, args.counts.row_chunks};
  if (args.counts.row_staged)
    return launch(stream, grid, launch_args.layout.bytes, RowsBody<Page, kQueries, true>{launch_args});
  return launch(stream, grid, launch_args.layout.bytes, RowsBody<Page, kQueries, false>{launch_args});
}

template <class Page>
cudaError_t launch_for(cudaStream_t stream, const AttentionLaunch& launch_args) {
  switch (launch_args.args.counts.row_queries) {
    case 1:
      return launch_rows<Page, 1>(stream, launch_args);
    case 2:
      return launch_rows<Page, 2>(stream, launch_args);
    case 4:
      return launch_rows<Page, 4>(stream, launch_args);
    case 8:
      return launch_rows<Page, 8>(stream, launch_args);
    case 16:
      return launch_rows<Page, 16>(stream, launch_args);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t attend_rows(cudaStream_t stream, const AttentionLaunch& launch_args) {
  return launch_args.args.shape.bf16 ? launch_for<PageOfBf16>(stream, launch_args)
                                     : launch_for<PageOfF32>(stream, launch_args);
}

}  // namespace diffuse::kernels::cuda

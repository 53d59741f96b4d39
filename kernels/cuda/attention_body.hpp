#pragma once
// The parts that the bodies of attention share, so that a query vector meets the same operations in each of
// them: scores of a page, weights of a part, sums of a page's values, merging of parts. Arguments are local
// to a block: positions are absolute, and queries are those of the block.

#include "kernels/cuda/attention_layout.hpp"
#include "kernels/cuda/quads.hpp"

namespace diffuse::kernels::cuda {

// Pages by type: chunks of 16 bytes of a key, and quads of a value's row.
struct PageOfF32 {
  static constexpr int kChunk = 4;
  static constexpr std::int64_t kElement = 4;
  __device__ static float rounded(float x) { return x; }
  __device__ static void key_chunk(const std::byte* at, float (&to)[kChunk]) {
    const Quad quad = *reinterpret_cast<const Quad*>(at);
    DIFFUSE_UNROLL
    for (int i = 0; i < kChunk; ++i) to[i] = quad.v[i];
  }
  __device__ static Quad values(const std::byte* values, std::int64_t index) {
    return *reinterpret_cast<const Quad*>(values + index * kElement);
  }
};
struct PageOfBf16 {
  static constexpr int kChunk = 8;
  static constexpr std::int64_t kElement = 2;
  struct alignas(16) Words {
    std::uint32_t v[4];
  };
  struct alignas(8) HalfWords {
    std::uint32_t v[2];
  };
  __device__ static float low(std::uint32_t word) { return std::bit_cast<float>(word << 16); }
  __device__ static float high(std::uint32_t word) { return std::bit_cast<float>(word & 0xffff0000U); }
  __device__ static float rounded(float x) { return rounded_bf16(x); }
  __device__ static void key_chunk(const std::byte* at, float (&to)[kChunk]) {
    const Words words = *reinterpret_cast<const Words*>(at);
    DIFFUSE_UNROLL
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = low(words.v[i]);
      to[2 * i + 1] = high(words.v[i]);
    }
  }
  __device__ static Quad values(const std::byte* values, std::int64_t index) {
    const HalfWords words = *reinterpret_cast<const HalfWords*>(values + index * kElement);
    return {{low(words.v[0]), high(words.v[0]), low(words.v[1]), high(words.v[1])}};
  }
};

inline constexpr int kPageKeys = static_cast<int>(kTile);
inline constexpr int kPartSize = static_cast<int>(kPartKeys);

// What stays the same for all blocks of a launch.
struct AttentionLaunch {
  Attention args;
  ScratchLayout layout;
  std::int64_t group;       // query heads of a key-value head
  std::int64_t parts;       // blocks of a task along its context
  std::int32_t first_task;  // of the launch in args.tasks
  bool out_wide;            // quads of the output are aligned

  // Memory of a part's state of one query head: `value_stride` floats of sums, and far behind them its
  // largest score and its sum of weights.
  __device__ std::int64_t state_index(std::int64_t slot, std::int64_t head, std::int64_t part) const {
    return (slot * args.heads + head) * args.counts.merge_parts + part;
  }
  __device__ std::int64_t state_stride() const { return round_up(args.shape.value_dim, 4); }
  __device__ float* state_values(std::int64_t index) const { return args.workspace + index * state_stride(); }
  __device__ float* state_totals(std::int64_t index) const {
    const std::int64_t states = std::int64_t{args.counts.merges} * args.heads * args.counts.merge_parts;
    return args.workspace + states * state_stride() + 2 * index;
  }
};

// Scratch of a block by name. Lists hold one entry a query.
struct BlockScratch {
  __device__ BlockScratch(std::byte* memory, const ScratchLayout& layout, int queries) {
    auto* floats = reinterpret_cast<float*>(memory);
    q = floats + layout.q;
    scores = floats + layout.scores;
    values = floats + layout.values;
    float* lists = floats + layout.lists;
    begin = reinterpret_cast<std::int32_t*>(lists);
    end = begin + queries;
    head = end + queries;
    position = head + queries;
    largest = lists + 4 * queries;
    total = lists + 5 * queries;
    all_largest = lists + 6 * queries;
    all_total = lists + 7 * queries;
    tiles = memory + layout.tiles * 4;
    query_stride = static_cast<int>(layout.query_stride);
    score_stride = static_cast<int>(layout.score_stride);
    value_stride = static_cast<int>(layout.value_stride);
  }
  float* q;
  float* scores;
  float* values;
  std::int32_t* begin;
  std::int32_t* end;
  std::int32_t* head;
  std::int32_t* position;
  float* largest;  // of the part at hand
  float* total;
  float* all_largest;  // of all parts before
  float* all_total;
  std::byte* tiles;
  int query_stride;
  int score_stride;
  int value_stride;
};

// The query vectors of a block: `count` of a span's rows * group, from `first` on.
struct BlockQueries {
  AttentionSpan span;
  std::int64_t kv_head;
  std::int32_t group;
  std::int32_t first;
  int count;

  __device__ std::int32_t row(int query) const { return (first + query) / group; }
  __device__ std::int64_t head(int query) const { return kv_head * group + (first + query) % group; }
};

template <class Team>
__device__ BlockQueries queries_of(Team& team, const AttentionLaunch& launch, int held) {
  BlockQueries queries{};
  queries.span = launch.args.tasks[launch.first_task + team.block_x() / launch.parts];
  queries.kv_head = team.block_y();
  queries.group = static_cast<std::int32_t>(launch.group);
  queries.first = static_cast<std::int32_t>(team.block_z()) * held;
  const std::int64_t left = queries.span.rows * launch.group - queries.first;
  queries.count = static_cast<int>(left < held ? (left > 0 ? left : 0) : held);
  return queries;
}

// Keys that some query of the block reaches.
__device__ inline Reach block_reach(const BlockQueries& queries, const Attention& args) {
  const Reach first = reach_of(queries.span, queries.row(0), args.causal, args.window);
  const Reach last = reach_of(queries.span, queries.row(queries.count - 1), args.causal, args.window);
  return {first.begin, last.end};
}

// Fills q and the lists of what each query is. Queries beyond the count are zero and reach what the last one
// reaches, so that full pages take the short way; nothing of theirs is stored.
template <class Page, class Team>
__device__ void load_queries(Team& team, const Attention& args, const BlockQueries& queries, int held,
                             const BlockScratch& scratch) {
  const int width = scratch.query_stride;
  const auto dims = static_cast<int>(args.shape.head_dim);
  for (int item = team.rank(); item < held * width; item += team.size()) {
    const int query = item / width;
    const int d = item % width;
    float value = 0;
    if (query < queries.count && d < dims) {
      const std::int64_t row = queries.span.first_row + queries.row(query);
      value = Page::rounded(args.q.data[row * args.q.stride + queries.head(query) * dims + d]);
    }
    scratch.q[item] = value;
  }
  for (int query = team.rank(); query < held; query += team.size()) {
    const int real = query < queries.count ? query : queries.count - 1;
    const Reach reach = reach_of(queries.span, queries.row(real), args.causal, args.window);
    scratch.begin[query] = reach.begin;
    scratch.end[query] = reach.end;
    scratch.head[query] = static_cast<std::int32_t>(queries.head(real));
    scratch.position[query] = queries.span.first_position + queries.row(real);
  }
}

__device__ inline const std::byte* page_of(const Attention& args, const BlockQueries& queries,
                                           std::int64_t page) {
  return args.pool + args.pages[queries.span.first_page + page] * args.shape.page_bytes() +
         queries.kv_head * args.shape.head_bytes();
}

// acc[i][j] = q[query i] . keys[key + j * key_step], each one chain over the dimensions.
template <class Page, int kQueries, int kKeys>
__device__ void multiply_keys(const float* q, int query_stride, const std::byte* keys, int key, int key_step,
                              int chunks, float (&acc)[kQueries][kKeys]) {
  DIFFUSE_UNROLL
  for (int i = 0; i < kQueries; ++i) {
    DIFFUSE_UNROLL
    for (int j = 0; j < kKeys; ++j) acc[i][j] = 0;
  }
  DIFFUSE_UNROLL_BY_4
  for (int chunk = 0; chunk < chunks; ++chunk) {
    float k[kKeys][Page::kChunk];
    DIFFUSE_UNROLL
    for (int j = 0; j < kKeys; ++j)
      Page::key_chunk(keys + (chunk * kPageKeys + key + j * key_step) * 16, k[j]);
    DIFFUSE_UNROLL
    for (int at = 0; at < Page::kChunk; at += 4) {
      DIFFUSE_UNROLL
      for (int i = 0; i < kQueries; ++i) {
        const Quad quad = *reinterpret_cast<const Quad*>(q + i * query_stride + chunk * Page::kChunk + at);
        DIFFUSE_UNROLL
        for (int d = 0; d < 4; ++d) {
          DIFFUSE_UNROLL
          for (int j = 0; j < kKeys; ++j) acc[i][j] = ::fmaf(quad.v[d], k[j][at + d], acc[i][j]);
        }
      }
    }
  }
}

// What a product of a query and the key at `position` becomes before the softmax.
__device__ inline float score_of(const Attention& args, const BlockScratch& scratch, int query, float product,
                                 std::int64_t position) {
  float score = product * args.scale;
  if (args.softcap != 0) score = args.softcap * hyperbolic_tangent(score / args.softcap);
  if (args.alibi_slopes != nullptr)
    score = ::fmaf(args.alibi_slopes[scratch.head[query]], static_cast<float>(position), score);
  if (args.position_bias != nullptr) {
    const std::int64_t reach = args.bias_reach;
    std::int64_t distance = position - scratch.position[query];
    distance = distance < -reach ? -reach : distance;
    distance = distance > reach ? reach : distance;
    score = score + args.position_bias[scratch.head[query] * (2 * reach + 1) + reach + distance];
  }
  return score;
}

// Scores of the part that begins at first_key become weights; largest and total are filled. A sync comes
// before the return.
template <class Team>
__device__ void weigh_part(Team& team, int queries, std::int64_t first_key, const BlockScratch& scratch) {
  constexpr int kLanes = static_cast<int>(ScratchLayout::kLanes);
  const auto reached = [&](int query, int key) {
    return first_key + key >= scratch.begin[query] && first_key + key < scratch.end[query];
  };
  team.template largest<kLanes>(queries, scratch.values, scratch.largest, [&](int query, int lane) {
    const float* scores = scratch.scores + query * scratch.score_stride;
    float most = -kInfinity;
    for (int key = lane; key < kPartSize; key += kLanes) {
      if (reached(query, key)) most = scores[key] > most ? scores[key] : most;
    }
    return most;
  });
  team.template sum<kLanes>(queries, scratch.values, scratch.total, [&](int query, int lane) {
    float* scores = scratch.scores + query * scratch.score_stride;
    float sum = 0;
    for (int key = lane; key < kPartSize; key += kLanes) {
      if (!reached(query, key)) continue;
      const float weight = exponential(scores[key] - scratch.largest[query]);
      scores[key] = weight;
      sum = sum + weight;
    }
    return sum;
  });
}

// The keys of a page that a query reaches, counted in the page.
__device__ inline Reach reach_in_page(const BlockScratch& scratch, int query, std::int64_t page) {
  const std::int64_t first = page * kPageKeys;
  const std::int64_t begin = scratch.begin[query] - first;
  const std::int64_t end = scratch.end[query] - first;
  return {static_cast<std::int32_t>(begin > 0 ? begin : 0),
          static_cast<std::int32_t>(end < kPageKeys ? end : kPageKeys)};
}
__device__ inline bool any(const Reach& reach) {
  return reach.begin < reach.end;
}

// acc[i] = sum over a page's keys in reach of weight * value, for the quad of dimensions at col. weights
// point at the page's keys of query 0. Values out of reach are never multiplied, not even by zero: they may
// be NaN.
template <class Page, int kQueries>
__device__ void multiply_values(const float* weights, int score_stride, const std::byte* values,
                                int value_stride, int col, const Reach (&reach)[kQueries],
                                Quad (&acc)[kQueries]) {
  bool whole = true;
  std::int32_t first = kPageKeys;
  std::int32_t last = 0;
  DIFFUSE_UNROLL
  for (int i = 0; i < kQueries; ++i) {
    acc[i] = Quad{};
    whole = whole && reach[i].begin == 0 && reach[i].end == kPageKeys;
    if (!any(reach[i])) continue;
    first = reach[i].begin < first ? reach[i].begin : first;
    last = reach[i].end > last ? reach[i].end : last;
  }
  if (whole) {
    DIFFUSE_UNROLL_BY_4
    for (int key = 0; key < kPageKeys; key += 4) {
      Quad weight[kQueries];
      DIFFUSE_UNROLL
      for (int i = 0; i < kQueries; ++i)
        weight[i] = *reinterpret_cast<const Quad*>(weights + i * score_stride + key);
      DIFFUSE_UNROLL
      for (int k = 0; k < 4; ++k) {
        const Quad value = Page::values(values, (key + k) * value_stride + col);
        DIFFUSE_UNROLL
        for (int i = 0; i < kQueries; ++i) {
          DIFFUSE_UNROLL
          for (int d = 0; d < 4; ++d) acc[i].v[d] = ::fmaf(weight[i].v[k], value.v[d], acc[i].v[d]);
        }
      }
    }
    return;
  }
  DIFFUSE_UNROLL_BY_4
  for (int key = first; key < last; ++key) {
    const Quad value = Page::values(values, key * value_stride + col);
    DIFFUSE_UNROLL
    for (int i = 0; i < kQueries; ++i) {
      if (key < reach[i].begin || key >= reach[i].end) continue;
      const float weight = weights[i * score_stride + key];
      DIFFUSE_UNROLL
      for (int d = 0; d < 4; ++d) acc[i].v[d] = ::fmaf(weight, value.v[d], acc[i].v[d]);
    }
  }
}

__device__ inline Quad sum_of(const Quad& a, const Quad& b) {
  Quad sum;
  DIFFUSE_UNROLL
  for (int i = 0; i < 4; ++i) sum.v[i] = a.v[i] + b.v[i];
  return sum;
}
__device__ inline Quad quotient(const Quad& values, float total) {
  Quad quad;
  DIFFUSE_UNROLL
  for (int i = 0; i < 4; ++i) quad.v[i] = values.v[i] / total;
  return quad;
}

// How much of what was gathered is kept, and of a part is added, when the largest score of both becomes
// common.
struct Shares {
  float kept;
  float added;
};
__device__ inline Shares shares_of(float before, float part) {
  const float most = part > before ? part : before;
  return {exponential(before - most), exponential(part - most)};
}
__device__ inline float merged(float before, float part, const Shares& shares) {
  return ::fmaf(part, shares.added, before * shares.kept);
}
__device__ inline Quad merged(const Quad& before, const Quad& part, const Shares& shares) {
  Quad quad;
  DIFFUSE_UNROLL
  for (int i = 0; i < 4; ++i) quad.v[i] = merged(before.v[i], part.v[i], shares);
  return quad;
}

// Elements of the quad at col that exist.
__device__ inline int values_in(const Attention& args, int col) {
  const std::int64_t left = args.shape.value_dim - col;
  return static_cast<int>(left < 4 ? left : 4);
}

__device__ inline float* out_at(const Attention& args, const BlockQueries& queries, int query, int col) {
  const std::int64_t row = queries.span.first_row + queries.row(query);
  return args.out.data + row * args.out.stride + queries.head(query) * args.shape.value_dim + col;
}

// Leaves a part's state where the merge finds it.
__device__ inline void store_state(const AttentionLaunch& launch, std::int64_t index, int col,
                                   const Quad& values, const BlockScratch& scratch, int query) {
  // The stride of the workspace is a whole number of quads.
  *reinterpret_cast<Quad*>(launch.state_values(index) + col) = values;
  if (col != 0) return;
  float* totals = launch.state_totals(index);
  totals[0] = scratch.largest[query];
  totals[1] = scratch.total[query];
}

cudaError_t attend_rows(cudaStream_t stream, const AttentionLaunch& launch_args);
cudaError_t attend_tiles(cudaStream_t stream, const AttentionLaunch& launch_args);

}  // namespace diffuse::kernels::cuda

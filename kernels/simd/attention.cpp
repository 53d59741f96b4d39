// Softmax attention by tiles of kTile keys. A query vector's result is a function of its own keys in
// ascending order; the block of queries that shares a loaded tile never matters.

#include "kernels/simd/product-inl.hpp"
#include "kernels/simd/tables-inl.hpp"

namespace diffuse::kernels::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kTileVectors = kTile / kLanes;

HWY_INLINE std::int64_t at_least(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}
HWY_INLINE std::int64_t at_most(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// The keys [begin, end) of a tile that a query reaches; begin >= end: none.
struct Reach {
  std::int64_t begin;
  std::int64_t end;
  bool any() const { return begin < end; }
};

HWY_INLINE Reach reach_of(const AttentionTile& args, std::int64_t query) {
  const std::int64_t last = args.position[query] - args.first_position;
  return {args.window > 0 ? at_least(0, last - args.window + 1) : 0, at_most(kTile, last + 1)};
}

HWY_INLINE MF lanes_in(Reach reach, std::int64_t first_lane) {
  const std::int64_t below = at_most(at_least(reach.begin - first_lane, 0), kLanes);
  const std::int64_t end = at_most(at_least(reach.end - first_lane, 0), kLanes);
  return hn::AndNot(hn::FirstN(kF32, static_cast<std::size_t>(below)),
                    hn::FirstN(kF32, static_cast<std::size_t>(end)));
}

// Scores become weights exp(score - largest), zero out of reach; what was gathered before is scaled to the
// new largest score.
HWY_INLINE void weigh(const AttentionTile& args, std::int64_t query, Reach reach) {
  float* row = args.scores + query * kTile;
  const VF scale = set(args.scale);
  const VF cap = set(args.softcap);
  const VF nothing = set(-__builtin_inff());
  VF scores[kTileVectors];
  VF highest = nothing;
#pragma GCC unroll 16
  for (std::int64_t v = 0; v < kTileVectors; ++v) {
    VF score = hn::Mul(hn::Load(kF32, row + v * kLanes), scale);
    if (args.softcap != 0) score = hn::Mul(cap, tanh(hn::Div(score, cap)));
    if (args.slope != nullptr) {
      const VF key = hn::Iota(kF32, static_cast<float>(args.first_position + v * kLanes));
      score = hn::MulAdd(set(args.slope[query]), key, score);
    }
    if (args.bias != nullptr) score = hn::Add(score, hn::Load(kF32, args.bias + query * kTile + v * kLanes));
    scores[v] = hn::IfThenElse(lanes_in(reach, v * kLanes), score, nothing);
    highest = hn::Max(scores[v], highest);
  }
  const float before = args.state.largest[query];
  const float here = max_lanes(highest);
  const float largest = here > before ? here : before;
  const VF top = set(largest);
  VF total = hn::Zero(kF32);
#pragma GCC unroll 16
  for (std::int64_t v = 0; v < kTileVectors; ++v) {
    const VF weight = hn::IfThenElseZero(lanes_in(reach, v * kLanes), exp(hn::Sub(scores[v], top)));
    hn::Store(weight, kF32, row + v * kLanes);
    total = hn::Add(total, weight);
  }
  const VF kept = exp(set(before - largest));
  args.state.largest[query] = largest;
  args.state.weights[query] =
      hn::GetLane(hn::MulAdd(set(args.state.weights[query]), kept, set(sum_lanes(total))));
  float* values = args.state.values + query * args.value_stride;
  for (std::int64_t d = 0; d < args.value_stride; d += kLanes)
    hn::Store(hn::Mul(hn::Load(kF32, values + d), kept), kF32, values + d);
}

template <class Columns>
HWY_INLINE void add_values(const AttentionTile& args, Columns values, std::int64_t query, std::int64_t count,
                           Reach keys) {
  if (!keys.any()) return;
  product<true>(args.scores + query * kTile, kTile, count, values, keys.begin, keys.end,
                args.state.values + query * args.value_stride, args.value_stride, args.value_stride);
}

// Values out of a query's reach are not multiplied by its zeros: what lies there may be NaN.
template <class Columns>
HWY_INLINE void add_block(const AttentionTile& args, Columns values, std::int64_t query, std::int64_t count) {
  Reach common{0, kTile};
  for (std::int64_t i = query; i < query + count; ++i) {
    const Reach reach = reach_of(args, i);
    common = {at_least(common.begin, reach.begin), at_most(common.end, reach.end)};
  }
  if (!common.any()) {
    for (std::int64_t i = query; i < query + count; ++i) add_values(args, values, i, 1, reach_of(args, i));
    return;
  }
  for (std::int64_t i = query; i < query + count; ++i)
    add_values(args, values, i, 1, {reach_of(args, i).begin, common.begin});
  add_values(args, values, query, count, common);
  for (std::int64_t i = query; i < query + count; ++i)
    add_values(args, values, i, 1, {common.end, reach_of(args, i).end});
}

template <class Columns>
HWY_INLINE void attend(const AttentionTile& args, Columns keys, Columns values) {
  product<false>(args.q, args.head_dim, args.queries, keys, 0, args.head_dim, args.scores, kTile, kTile);
  std::int64_t query = 0;
  while (query < args.queries) {
    if (!reach_of(args, query).any()) {
      ++query;
      continue;
    }
    std::int64_t count = 0;
    while (count < kBlockRows && query + count < args.queries) {
      const Reach reach = reach_of(args, query + count);
      if (!reach.any()) break;
      weigh(args, query + count, reach);
      ++count;
    }
    add_block(args, values, query, count);
    query += count;
  }
}

HWY_INLINE bool empty(const AttentionState& state, std::int64_t query) {
  return state.weights[query] == 0 && state.largest[query] == -__builtin_inff();
}

}  // namespace

void attend_f32(const AttentionTile& args) {
  attend(args, F32Columns{static_cast<const float*>(args.keys), kTile},
         F32Columns{static_cast<const float*>(args.values), args.value_stride});
}

void attend_bf16(const AttentionTile& args) {
  attend(args, Bf16Columns{static_cast<const std::uint32_t*>(args.keys), kTile},
         Bf16Columns{static_cast<const std::uint32_t*>(args.values), args.value_stride});
}

void merge(const AttentionState& into, const AttentionState& from, std::int64_t queries,
           std::int64_t value_stride) {
  for (std::int64_t query = 0; query < queries; ++query) {
    // A query that reached none of these keys is left as it is to the bit, as when they were never looked at.
    if (empty(from, query)) continue;
    float* to = into.values + query * value_stride;
    const float* values = from.values + query * value_stride;
    const float before = into.largest[query];
    const float after = from.largest[query];
    const float largest = after > before ? after : before;
    if (empty(into, query)) {
      into.largest[query] = after;
      into.weights[query] = from.weights[query];
      for (std::int64_t d = 0; d < value_stride; d += kLanes)
        hn::Store(hn::Load(kF32, values + d), kF32, to + d);
      continue;
    }
    const VF kept = exp(set(before - largest));
    const VF added = exp(set(after - largest));
    into.largest[query] = largest;
    into.weights[query] =
        hn::GetLane(hn::MulAdd(set(from.weights[query]), added, hn::Mul(set(into.weights[query]), kept)));
    for (std::int64_t d = 0; d < value_stride; d += kLanes)
      hn::Store(hn::MulAdd(hn::Load(kF32, values + d), added, hn::Mul(hn::Load(kF32, to + d), kept)), kF32,
                to + d);
  }
}

void finish(const AttentionState& state, std::int64_t query, std::int64_t value_stride, float* out,
            std::int64_t value_dim) {
  const VF total = set(state.weights[query]);
  const float* values = state.values + query * value_stride;
  for (std::int64_t d = 0; d < value_dim; d += kLanes)
    store_part(hn::Div(hn::Load(kF32, values + d), total), out + d, value_dim - d);
}

}  // namespace diffuse::kernels::HWY_NAMESPACE

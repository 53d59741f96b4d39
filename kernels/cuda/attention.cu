// Attention's entry, the merge of contexts that were cut into parts, and the writing of keys and values.

#include "kernels/cuda/attention_body.hpp"

namespace diffuse::kernels::cuda {
namespace {

// Merges the parts of one row and head in ascending order. The largest score before a part is a maximum,
// which has no order, so all parts find their shares at once; only the sums are a chain.
struct MergeBody {
  static constexpr int kTeam = 64;
  static constexpr int kAtOnce = 256;  // parts
  AttentionLaunch launch;

  static std::int64_t scratch_bytes(const PageShape& shape) {
    return (round_up(shape.value_dim, 4) + 4 * kAtOnce + 2) * 4;
  }

  struct Lists {
    float* largest;
    float* total;
    float* kept;
    float* added;
    float* values;  // [value_dim] gathered so far
    float* so_far;  // largest score and sum of weights
  };

  template <class Team>
  __device__ void find_shares(Team& team, std::int64_t state, int first, int count,
                              const Lists& lists) const {
    for (int i = team.rank(); i < count; i += team.size()) {
      const float* totals = launch.state_totals(state + first + i);
      lists.largest[i] = totals[0];
      lists.total[i] = totals[1];
    }
    team.sync();
    for (int i = team.rank(); i < count; i += team.size()) {
      float before = first == 0 ? -kInfinity : lists.so_far[0];
      for (int earlier = 0; earlier < i; ++earlier)
        before = lists.largest[earlier] > before ? lists.largest[earlier] : before;
      const Shares shares = shares_of(before, lists.largest[i]);
      lists.kept[i] = shares.kept;
      lists.added[i] = shares.added;
    }
    team.sync();
  }

  __device__ void merge_totals(int first, int count, const Lists& lists) const {
    float most = first == 0 ? lists.largest[0] : lists.so_far[0];
    float total = first == 0 ? lists.total[0] : lists.so_far[1];
    for (int i = first == 0 ? 1 : 0; i < count; ++i) {
      total = merged(total, lists.total[i], {lists.kept[i], lists.added[i]});
      most = lists.largest[i] > most ? lists.largest[i] : most;
    }
    lists.so_far[0] = most;
    lists.so_far[1] = total;
  }

  __device__ void merge_quad(std::int64_t state, int first, int count, int col, const Lists& lists) const {
    const auto part = [&](int i) { return load_quad(launch.state_values(state + first + i) + col, 4, true); };
    Quad sum = first == 0 ? part(0) : load_quad(lists.values + col, 4, true);
    DIFFUSE_UNROLL_BY_4
    for (int i = first == 0 ? 1 : 0; i < count; ++i)
      sum = merged(sum, part(i), {lists.kept[i], lists.added[i]});
    store_quad(lists.values + col, sum, 4, true);
  }

  template <class Team>
  __device__ void operator()(Team& team) const {
    const Attention& args = launch.args;
    const AttentionMerge merge = args.merges[team.block_x()];
    const std::int64_t head = team.block_y();
    const std::int64_t state = launch.state_index(merge.slot, head, merge.first_part);
    const auto width = static_cast<int>(launch.state_stride());
    auto* memory = reinterpret_cast<float*>(team.scratch());
    const Lists lists{memory + width,
                      memory + width + kAtOnce,
                      memory + width + 2 * kAtOnce,
                      memory + width + 3 * kAtOnce,
                      memory,
                      memory + width + 4 * kAtOnce};
    for (int first = 0; first < merge.parts; first += kAtOnce) {
      const int count = merge.parts - first < kAtOnce ? merge.parts - first : kAtOnce;
      find_shares(team, state, first, count, lists);
      for (int col = 4 * team.rank(); col < width; col += 4 * team.size())
        merge_quad(state, first, count, col, lists);
      if (team.rank() == 0) merge_totals(first, count, lists);
      team.sync();
    }
    for (int col = 4 * team.rank(); col < width; col += 4 * team.size()) {
      float* out = args.out.data + merge.row * args.out.stride + head * args.shape.value_dim + col;
      store_quad(out, quotient(load_quad(lists.values + col, 4, true), lists.so_far[1]), values_in(args, col),
                 launch.out_wide);
    }
  }
};

// One chunk of 16 bytes an item.
struct KvWriteBody {
  static constexpr int kTeam = kBlockItems;
  KvWrite args;
  std::int64_t value_chunks;  // of a row

  __device__ static void write(const float* from, std::int64_t count, bool bf16, std::byte* to) {
    if (bf16) {
      std::uint16_t chunk[8];
      DIFFUSE_UNROLL
      for (int i = 0; i < 8; ++i) chunk[i] = f32_to_bf16(i < count ? from[i] : 0.0F);
      store_half_quad(reinterpret_cast<std::uint16_t*>(to), {chunk[0], chunk[1], chunk[2], chunk[3]}, 4,
                      true);
      store_half_quad(reinterpret_cast<std::uint16_t*>(to) + 4, {chunk[4], chunk[5], chunk[6], chunk[7]}, 4,
                      true);
      return;
    }
    Quad quad;
    DIFFUSE_UNROLL
    for (int i = 0; i < 4; ++i) quad.v[i] = i < count ? from[i] : 0.0F;
    store_quad(reinterpret_cast<float*>(to), quad, 4, true);
  }

  template <class Team>
  __device__ void operator()(Team& team) const {
    const PageShape& shape = args.shape;
    const std::int64_t key_chunks = shape.key_chunks();
    const auto chunks = static_cast<std::uint32_t>(key_chunks + value_chunks);
    each_item(team, args.k.rows, shape.kv_heads * chunks, [&](std::int64_t row, std::uint32_t item) {
      const std::int64_t head = item / chunks;
      const std::int64_t chunk = item % chunks;
      const KvSlot to = args.slots[row];
      std::byte* page = args.pool + to.page * shape.page_bytes() + head * shape.head_bytes();
      if (chunk < key_chunks) {
        const std::int64_t d = chunk * shape.chunk();
        write(args.k.data + row * args.k.stride + head * shape.head_dim + d, shape.head_dim - d, shape.bf16,
              page + (chunk * kTile + to.slot) * 16);
      } else {
        const std::int64_t d = (chunk - key_chunks) * shape.chunk();
        write(args.v.data + row * args.v.stride + head * shape.value_dim + d, shape.value_dim - d, shape.bf16,
              page + shape.key_bytes() + (to.slot * shape.value_stride() + d) * shape.element());
      }
    });
  }
};

bool served(const Attention& args) {
  const AttentionCounts& counts = args.counts;
  const std::int64_t most = 65535;
  return args.shape.kv_heads > 0 && args.heads % args.shape.kv_heads == 0 &&
         args.q.cols == args.heads * args.shape.head_dim &&
         args.out.cols == args.heads * args.shape.value_dim && (args.causal || args.window == 0) &&
         args.heads <= most && counts.row_chunks <= most && counts.tile_chunks <= most &&
         (counts.workspace_floats == 0 || args.workspace != nullptr);
}

}  // namespace

cudaError_t attend(cudaStream_t stream, const Attention& args) {
  if (!served(args)) return cudaErrorInvalidValue;
  const AttentionCounts& counts = args.counts;
  AttentionLaunch launch_args{};
  launch_args.args = args;
  launch_args.group = args.heads / args.shape.kv_heads;
  launch_args.out_wide = aligned(args.out.data, args.out.stride, 4) && args.shape.value_dim % 4 == 0;
  if (counts.row_tasks > 0) {
    launch_args.layout = row_scratch(args.shape, counts.row_queries, counts.row_staged);
    launch_args.parts = counts.row_parts;
    launch_args.first_task = 0;
    if (const cudaError_t error = attend_rows(stream, launch_args); error != cudaSuccess) return error;
  }
  if (counts.tile_tasks > 0) {
    launch_args.layout = tile_scratch(args.shape, counts.tile_queries);
    launch_args.parts = counts.tile_parts;
    launch_args.first_task = counts.row_tasks;
    if (const cudaError_t error = attend_tiles(stream, launch_args); error != cudaSuccess) return error;
  }
  if (counts.merges == 0) return cudaSuccess;
  return launch(stream, {counts.merges, args.heads, 1}, MergeBody::scratch_bytes(args.shape),
                MergeBody{launch_args});
}

cudaError_t kv_write(cudaStream_t stream, const KvWrite& args) {
  const PageShape& shape = args.shape;
  if (args.k.rows != args.v.rows || args.k.cols != shape.kv_heads * shape.head_dim ||
      args.v.cols != shape.kv_heads * shape.value_dim)
    return cudaErrorInvalidValue;
  const std::int64_t value_chunks = shape.value_stride() / shape.chunk();
  return launch_items(stream, args.k.rows, shape.kv_heads * (shape.key_chunks() + value_chunks),
                      KvWriteBody{args, value_chunks});
}

}  // namespace diffuse::kernels::cuda

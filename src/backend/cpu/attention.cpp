#include <algorithm>
#include <cstring>
#include <limits>

#include "backend/cpu/cpu_backend.hpp"
#include "core/error.hpp"

namespace diffuse::cpu {
namespace {

static_assert(kernels::kTile == kPageTokens);

// Query vectors that share a loaded tile of keys and values.
constexpr std::int64_t kQueries = 48;
// A context is summed up in parts of this many pages, anchored at position 0, and the parts are merged in
// ascending order; so threads can share a long context. Part of the order of operations: never tuned to a
// machine.
constexpr std::int64_t kPartPages = 8;

std::int64_t last_of_part(std::int64_t page) {
  return (page / kPartPages + 1) * kPartPages - 1;
}

}  // namespace

// Rows of one segment and the query heads of one key-value head.
struct CpuBackend::AttentionBlock {
  const Segment* segment = nullptr;
  std::int64_t kv_head = 0;
  std::int64_t first_row = 0;  // in the segment
  std::int64_t rows = 0;
  std::int64_t first_page = 0;  // pages [first_page, last_page] are in reach of some row
  std::int64_t last_page = 0;
};

struct CpuBackend::AttentionScratch {
  float* q;
  float* scores;
  float* bias;
  std::int64_t* positions;
  float* slopes;
  kernels::AttentionState whole;
  kernels::AttentionState part;
};

namespace {

kernels::AttentionState state_at(float* memory, std::int64_t queries, std::int64_t value_stride) {
  return {.largest = memory + queries * value_stride,
          .weights = memory + queries * (value_stride + 1),
          .values = memory};
}

std::int64_t state_size(std::int64_t queries, std::int64_t value_stride) {
  return kernels::round_up(queries * (value_stride + 2), 16);
}

void clear(const kernels::AttentionState& state, std::int64_t queries, std::int64_t value_stride) {
  std::fill_n(state.largest, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(state.weights, queries, 0.0F);
  std::fill_n(state.values, queries * value_stride, 0.0F);
}

}  // namespace

kernels::PageLayout CpuBackend::page_layout(const KvSpec& spec) const {
  return {.head_dim = spec.head_dim, .value_dim = spec.value_dim, .bf16 = compute_ == Compute::bf16};
}

std::size_t CpuBackend::kv_page_bytes(const KvSpec& spec) const {
  return static_cast<std::size_t>(spec.kv_heads * page_layout(spec).head_bytes());
}

void CpuBackend::kv_write(const KvPool& pool, ConstRows k, ConstRows v, std::span<const Segment> segments) {
  const KvSpec& spec = pool.spec;
  if (k.cols != spec.kv_heads * spec.head_dim || v.cols != spec.kv_heads * spec.value_dim)
    throw_internal("CPU backend: keys or values of another shape than their cache");
  const auto layout = page_layout(spec);
  const auto page_bytes = static_cast<std::int64_t>(kv_page_bytes(spec));
  struct Piece {
    std::int64_t row;
    std::int64_t rows;
    std::int64_t slot;
    std::int64_t page;
  };
  std::vector<Piece> pieces;
  for (const auto& segment : segments) {
    for (std::int64_t done = 0; done < segment.rows;) {
      const std::int64_t position = segment.first_position + done;
      const std::int64_t slot = position % kPageTokens;
      const std::int64_t rows = std::min(kPageTokens - slot, segment.rows - done);
      pieces.push_back({segment.first_row + done, rows, slot,
                        segment.pages[static_cast<std::size_t>(position / kPageTokens)]});
      done += rows;
    }
  }
  const auto write = [&](std::size_t index, int) {
    const auto& piece = pieces[index / static_cast<std::size_t>(spec.kv_heads)];
    const auto head = static_cast<std::int64_t>(index) % spec.kv_heads;
    kernels::write_page(layout, pool.memory.data() + piece.page * page_bytes + head * layout.head_bytes(),
                        piece.slot, piece.rows, k.data + piece.row * k.stride + head * spec.head_dim,
                        k.stride, v.data + piece.row * v.stride + head * spec.value_dim, v.stride);
  };
  const std::size_t tasks = pieces.size() * static_cast<std::size_t>(spec.kv_heads);
  if (k.rows < 16) {
    for (std::size_t index = 0; index < tasks; ++index) write(index, 0);
  } else {
    pool_.parallel_for(tasks, write);
  }
}

void CpuBackend::extrapolate(const KvPool& pool, std::span<const std::int32_t> from,
                             std::span<const std::int32_t> to, float weight) {
  if (from.size() != to.size())
    throw_internal("CPU backend: pages extrapolated from another number of pages");
  const auto bytes = static_cast<std::int64_t>(kv_page_bytes(pool.spec));
  pool_.parallel_for(to.size(), [&](std::size_t index, int) {
    const std::byte* x = pool.memory.data() + from[index] * bytes;
    std::byte* y = pool.memory.data() + to[index] * bytes;
    if (weight == 0) {
      std::memcpy(y, x, static_cast<std::size_t>(bytes));
    } else if (compute_ == Compute::bf16) {
      kernels_.extrapolate_bf16(reinterpret_cast<const std::uint16_t*>(x),
                                reinterpret_cast<std::uint16_t*>(y), weight, bytes / 2);
    } else {
      kernels_.extrapolate_f32(reinterpret_cast<const float*>(x), reinterpret_cast<float*>(y), weight,
                               bytes / 4);
    }
  });
}

std::vector<CpuBackend::AttentionBlock> CpuBackend::attention_blocks(const AttentionArgs& args) const {
  const std::int64_t kv_heads = args.kv->spec.kv_heads;
  const std::int64_t group = args.heads / kv_heads;
  const std::int64_t block_rows = std::max<std::int64_t>(1, kQueries / group);
  std::vector<AttentionBlock> blocks;
  for (const auto& segment : args.segments) {
    for (std::int64_t row = 0; row < segment.rows; row += block_rows) {
      const std::int64_t rows = std::min(block_rows, segment.rows - row);
      const std::int64_t first = segment.first_position + row;
      const std::int64_t lowest = args.window > 0 ? std::max<std::int64_t>(0, first - args.window + 1) : 0;
      const std::int64_t highest = args.causal ? first + rows - 1 : segment.keys - 1;
      for (std::int64_t head = 0; head < kv_heads; ++head)
        blocks.push_back({&segment, head, row, rows, lowest / kPageTokens, highest / kPageTokens});
    }
  }
  return blocks;
}

CpuBackend::AttentionScratch CpuBackend::attention_scratch(const AttentionArgs& args, std::int64_t queries,
                                                           int thread) {
  const KvSpec& spec = args.kv->spec;
  const std::int64_t value_stride = page_layout(spec).value_stride();
  const std::int64_t q_size = kernels::round_up(queries * spec.head_dim, 16);
  const std::int64_t score_size = queries * kPageTokens;
  const std::int64_t list_size = kernels::round_up(queries, 16);
  const std::int64_t state = state_size(queries, value_stride);
  float* memory = thread_[static_cast<std::size_t>(thread)].get<float>(
      static_cast<std::size_t>(q_size + 2 * score_size + 3 * list_size + 2 * state));
  AttentionScratch scratch{};
  scratch.q = memory;
  scratch.scores = scratch.q + q_size;
  scratch.bias = scratch.scores + score_size;
  scratch.slopes = scratch.bias + score_size;
  scratch.positions = reinterpret_cast<std::int64_t*>(scratch.slopes + list_size);
  float* states = scratch.slopes + 3 * list_size;
  scratch.whole = state_at(states, queries, value_stride);
  scratch.part = state_at(states + state, queries, value_stride);
  return scratch;
}

// What the queries of a block add to their scores of one page's keys, by distance.
void CpuBackend::gather_bias(const AttentionArgs& args, const AttentionBlock& block, std::int64_t page,
                             float* bias) const {
  const std::int64_t group = args.heads / args.kv->spec.kv_heads;
  const std::int64_t reach = args.bias_reach;
  for (std::int64_t i = 0; i < block.rows * group; ++i) {
    const float* table = args.position_bias + (block.kv_head * group + i % group) * (2 * reach + 1) + reach;
    const std::int64_t position = block.segment->first_position + block.first_row + i / group;
    for (std::int64_t key = 0; key < kPageTokens; ++key)
      bias[i * kPageTokens + key] = table[std::clamp(page * kPageTokens + key - position, -reach, reach)];
  }
}

// Adds up the pages of a block into `whole`, part after part.
void CpuBackend::attend_pages(const AttentionArgs& args, const AttentionBlock& block,
                              const AttentionScratch& scratch, const kernels::AttentionState& whole) {
  const KvSpec& spec = args.kv->spec;
  const auto layout = page_layout(spec);
  const auto page_bytes = static_cast<std::int64_t>(kv_page_bytes(spec));
  const std::int64_t group = args.heads / spec.kv_heads;
  const std::int64_t count = block.rows * group;

  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t head = block.kv_head * group + i % group;
    const std::int64_t row = block.first_row + i / group;
    const float* from = args.q.data + (block.segment->first_row + row) * args.q.stride + head * spec.head_dim;
    float* to = scratch.q + i * spec.head_dim;
    if (layout.bf16) {
      kernels_.round_bf16(from, to, spec.head_dim);
    } else {
      std::copy_n(from, spec.head_dim, to);
    }
    // The kernel reaches up to a query's position: all keys where it stands at the last one.
    scratch.positions[i] = args.causal ? block.segment->first_position + row : block.segment->keys - 1;
    if (args.alibi_slopes != nullptr) scratch.slopes[i] = args.alibi_slopes[head];
  }

  kernels::AttentionTile tile{.q = scratch.q,
                              .queries = count,
                              .position = scratch.positions,
                              .slope = args.alibi_slopes == nullptr ? nullptr : scratch.slopes,
                              .bias = args.position_bias == nullptr ? nullptr : scratch.bias,
                              .head_dim = spec.head_dim,
                              .value_stride = layout.value_stride(),
                              .keys = nullptr,
                              .values = nullptr,
                              .first_position = 0,
                              .scale = args.scale,
                              .softcap = args.softcap,
                              .window = args.window,
                              .scores = scratch.scores,
                              .state = {}};
  for (std::int64_t page = block.first_page; page <= block.last_page;) {
    const bool first = page == block.first_page;
    tile.state = first ? whole : scratch.part;
    clear(tile.state, count, tile.value_stride);
    const std::int64_t end = std::min(block.last_page, last_of_part(page)) + 1;
    for (; page < end; ++page) {
      const std::byte* memory = args.kv->memory.data() +
                                block.segment->pages[static_cast<std::size_t>(page)] * page_bytes +
                                block.kv_head * layout.head_bytes();
      tile.keys = memory;
      tile.values = memory + layout.key_bytes();
      tile.first_position = page * kPageTokens;
      if (args.position_bias != nullptr) gather_bias(args, block, page, scratch.bias);
      (layout.bf16 ? kernels_.attend_bf16 : kernels_.attend_f32)(tile);
    }
    if (!first) kernels_.merge(whole, scratch.part, count, tile.value_stride);
  }
}

void CpuBackend::finish_block(const AttentionArgs& args, const AttentionBlock& block,
                              const kernels::AttentionState& whole) {
  const KvSpec& spec = args.kv->spec;
  const std::int64_t group = args.heads / spec.kv_heads;
  for (std::int64_t i = 0; i < block.rows * group; ++i) {
    const std::int64_t head = block.kv_head * group + i % group;
    const std::int64_t row = block.segment->first_row + block.first_row + i / group;
    kernels_.finish(whole, i, page_layout(spec).value_stride(),
                    args.out.data + row * args.out.stride + head * spec.value_dim, spec.value_dim);
  }
}

// Few blocks with long contexts: threads take parts of the same block, then the parts are merged as one
// thread would have done it.
void CpuBackend::attend_in_parts(const AttentionArgs& args, std::span<const AttentionBlock> blocks,
                                 std::int64_t queries) {
  std::vector<AttentionBlock> parts;
  std::vector<std::size_t> first_part;  // of each block, and the end
  for (const auto& block : blocks) {
    first_part.push_back(parts.size());
    for (std::int64_t page = block.first_page; page <= block.last_page; page = last_of_part(page) + 1) {
      AttentionBlock part = block;
      part.first_page = page;
      part.last_page = std::min(block.last_page, last_of_part(page));
      parts.push_back(part);
    }
  }
  first_part.push_back(parts.size());

  const std::int64_t value_stride = page_layout(args.kv->spec).value_stride();
  const auto size = static_cast<std::size_t>(state_size(queries, value_stride));
  float* memory = partials_.get<float>(parts.size() * size);
  const auto state = [&](std::size_t part) { return state_at(memory + part * size, queries, value_stride); };
  pool_.parallel_for(parts.size(), [&](std::size_t index, int thread) {
    attend_pages(args, parts[index], attention_scratch(args, queries, thread), state(index));
  });
  pool_.parallel_for(blocks.size(), [&](std::size_t index, int) {
    const auto& block = blocks[index];
    const std::int64_t count = block.rows * (args.heads / args.kv->spec.kv_heads);
    const auto whole = state(first_part[index]);
    for (std::size_t part = first_part[index] + 1; part < first_part[index + 1]; ++part)
      kernels_.merge(whole, state(part), count, value_stride);
    finish_block(args, block, whole);
  });
}

void CpuBackend::attend(const AttentionArgs& args) {
  const KvSpec& spec = args.kv->spec;
  if (spec.kv_heads <= 0 || args.heads % spec.kv_heads != 0 || args.q.cols != args.heads * spec.head_dim ||
      args.out.cols != args.heads * spec.value_dim)
    throw_internal("CPU backend: attention over rows of another shape than their cache");
  const bool fits =
      args.causal || (args.window == 0 && std::all_of(args.segments.begin(), args.segments.end(),
                                                      [](const Segment& s) { return s.keys > 0; }));
  if (!fits) throw_internal("CPU backend: attention over all keys that has a window, or no key");
  const std::int64_t queries = std::max(args.heads / spec.kv_heads, kQueries);
  const auto blocks = attention_blocks(args);
  const bool few = blocks.size() < 2 * static_cast<std::size_t>(pool_.threads());
  const bool cut = std::any_of(blocks.begin(), blocks.end(), [](const AttentionBlock& block) {
    return block.last_page > last_of_part(block.first_page);
  });
  if (pool_.threads() > 1 && few && cut) {
    attend_in_parts(args, blocks, queries);
    return;
  }
  pool_.parallel_for(blocks.size(), [&](std::size_t index, int thread) {
    const auto scratch = attention_scratch(args, queries, thread);
    attend_pages(args, blocks[index], scratch, scratch.whole);
    finish_block(args, blocks[index], scratch.whole);
  });
}

}  // namespace diffuse::cpu

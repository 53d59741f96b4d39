#include "slice/kv_pools.hpp"

#include <algorithm>

#include "slice/block_runner.hpp"

namespace diffuse {
namespace {

bool same_pages(const KvSpec& a, const KvSpec& b) {
  return a.kv_heads == b.kv_heads && a.head_dim == b.head_dim && a.value_dim == b.value_dim;
}

// The pools of one block: its own keys and values, and the memory's. Where their pages look alike they are
// one pool, in which a page holds the one or the other.
std::vector<KvSpec> pools_of(const Block& block) {
  std::vector<KvSpec> pools;
  const auto add = [&](const KvSpec& spec) {
    if (std::none_of(pools.begin(), pools.end(), [&](const KvSpec& pool) { return same_pages(pool, spec); }))
      pools.push_back(spec);
  };
  for (const auto& step : block.steps) {
    if (const auto* attention = std::get_if<Attention>(&step)) add(kv_spec(*attention));
    if (const auto* cross = std::get_if<CrossAttention>(&step)) add(kv_spec(*cross));
  }
  return pools;
}

}  // namespace

std::span<const Block> blocks_of(const Recipe& recipe, const RankSlice& slice) {
  return std::span(recipe.blocks)
      .subspan(static_cast<std::size_t>(slice.first_layer), static_cast<std::size_t>(slice.layers()));
}

std::uint64_t kv_page_bytes(const Recipe& recipe, const RankSlice& slice, const Backend& backend) {
  std::uint64_t bytes = 0;
  for (const auto& block : blocks_of(recipe, slice)) {
    for (const auto& spec : pools_of(block)) bytes += backend.kv_page_bytes(spec);
  }
  return bytes;
}

void set_pools(Backend& backend, const Block& block, std::vector<LoadedStep>& steps, std::int64_t pages) {
  std::vector<KvPool> pools;
  for (const auto& spec : pools_of(block))
    pools.push_back({spec, backend.allocate(static_cast<std::size_t>(pages) * backend.kv_page_bytes(spec))});
  const auto pool_of = [&](const KvSpec& spec) {
    return *std::find_if(pools.begin(), pools.end(),
                         [&](const KvPool& pool) { return same_pages(pool.spec, spec); });
  };
  for (auto& step : steps) {
    if (auto* attention = std::get_if<AttentionStep>(&step))
      attention->kv = pool_of(kv_spec(*attention->step));
    if (auto* cross = std::get_if<CrossAttentionStep>(&step)) cross->kv = pool_of(kv_spec(*cross->step));
  }
}

}  // namespace diffuse

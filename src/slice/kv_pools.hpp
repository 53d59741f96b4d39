#pragma once
// The key-value pools of a slice's blocks: what page tables (KvPages) count pages of.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "recipe/recipe.hpp"
#include "slice/plan.hpp"
#include "slice/weights.hpp"

namespace diffuse {

// The recipe's blocks that a slice holds.
std::span<const Block> blocks_of(const Recipe& recipe, const RankSlice& slice);

// Device bytes that one page of every attention layer of these blocks takes.
std::uint64_t kv_page_bytes(const Recipe& recipe, const RankSlice& slice, const Backend& backend);

// Gives the attention steps of a block pools of `pages` pages: one for its own keys and values and one for
// those of the memory, or one for both where their pages look alike.
void set_pools(Backend& backend, const Block& block, std::vector<LoadedStep>& steps, std::int64_t pages);

}  // namespace diffuse

#pragma once
// A latent picture as the schedule cuts it: one row a token, of the elements of its patch. Pure.

#include <cstdint>
#include <span>
#include <vector>

#include "core/media.hpp"
#include "recipe/recipe.hpp"
#include "slice/patches.hpp"

namespace diffuse {

// `latent` [channels, frames, height, width] -> rows [tokens, inputs], as the stack reads them; and back.
std::vector<float> to_rows(std::span<const float> latent, const TokenGrid& grid, const Refinement& stack);
std::vector<float> from_rows(std::span<const float> rows, const TokenGrid& grid, const Refinement& stack);

// The same with its sizes.
LatentArray latent_of(std::span<const float> rows, const TokenGrid& grid, const Refinement& stack);

// What the stack predicts of some tokens has the channels last: brought into the order of what it reads.
std::vector<float> in_order_of_rows(std::span<const float> predicted, const Refinement& stack);

}  // namespace diffuse

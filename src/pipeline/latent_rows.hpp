#pragma once
// A latent picture [channels, frames, height, width] as the stack takes it: one row a token, of a patch of
// it. Pure.

#include <cstdint>
#include <span>
#include <vector>

#include "recipe/recipe.hpp"
#include "slice/refinement_executor.hpp"

namespace diffuse {

// Elements of a row: [channels][frames, rows, columns of the patch], as Refinement::front takes them.
// `latent` is [channels, grid.frames * patch.frames, ..].
std::vector<float> to_rows(std::span<const float> latent, const TokenGrid& grid, const Refinement& stack);
// The way back.
std::vector<float> from_rows(std::span<const float> rows, const TokenGrid& grid, const Refinement& stack);

// What the stack predicts of some tokens has the channels last: brought into the order of to_rows().
std::vector<float> in_order_of_rows(std::span<const float> predicted, const Refinement& stack);

}  // namespace diffuse

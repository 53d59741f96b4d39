#pragma once
// Between a latent picture [channels, frames, height, width] and the rows of its tokens, on the host.

#include <cstdint>
#include <span>

#include "recipe/recipe.hpp"

namespace diffuse {

// Tokens of a picture along each axis; each stands for a patch of latent elements.
struct TokenGrid {
  std::int64_t frames = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;

  std::int64_t tokens() const { return frames * height * width; }
};

// A picture of `grid` times `patch` elements and `channels`. The tokens [first_row, first_row + rows), in the
// order frame, row, column, as rows of channels * patch elements; how many, the size of `patches` says.
//
// What a stack reads (Refinement::front): a row's elements in the order channel, frame, row, column.
void patchify(const PatchSize& patch, std::int64_t channels, const TokenGrid& grid, std::int64_t first_row,
              std::span<const float> latents, std::span<float> patches);
// What it predicts (Refinement::back): a row's elements in the order frame, row, column, channel. Writes the
// tokens' elements of `latents` and no others.
void unpatchify(const PatchSize& patch, std::int64_t channels, const TokenGrid& grid, std::int64_t first_row,
                std::span<const float> patches, std::span<float> latents);

}  // namespace diffuse

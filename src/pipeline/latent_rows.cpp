#include "pipeline/latent_rows.hpp"

#include <string>

#include "core/error.hpp"

namespace diffuse {

namespace {

void check_size(std::size_t found, const TokenGrid& grid, const Refinement& stack) {
  if (found != static_cast<std::size_t>(grid.tokens() * stack.inputs()))
    throw_internal("a latent of " + std::to_string(found) + " elements for " + std::to_string(grid.tokens()) +
                   " tokens");
}

// Each run of outer * inner elements, [outer][inner] -> [inner][outer].
std::vector<float> turned(std::span<const float> values, std::size_t outer, std::size_t inner) {
  std::vector<float> out(values.size());
  for (std::size_t start = 0; start < values.size(); start += outer * inner)
    for (std::size_t i = 0; i < outer; ++i)
      for (std::size_t j = 0; j < inner; ++j) out[start + j * outer + i] = values[start + i * inner + j];
  return out;
}

}  // namespace

std::vector<float> to_rows(std::span<const float> latent, const TokenGrid& grid, const Refinement& stack) {
  check_size(latent.size(), grid, stack);
  std::vector<float> rows(latent.size());
  patchify(stack.patch, stack.channels, grid, 0, latent, rows);
  return rows;
}

std::vector<float> from_rows(std::span<const float> rows, const TokenGrid& grid, const Refinement& stack) {
  check_size(rows.size(), grid, stack);
  const auto channels_last = turned(rows, static_cast<std::size_t>(stack.channels),
                                    static_cast<std::size_t>(stack.patch.elements()));
  std::vector<float> latent(rows.size());
  unpatchify(stack.patch, stack.channels, grid, 0, channels_last, latent);
  return latent;
}

LatentArray latent_of(std::span<const float> rows, const TokenGrid& grid, const Refinement& stack) {
  return {.channels = stack.channels,
          .frames = grid.frames * stack.patch.frames,
          .height = grid.height * stack.patch.height,
          .width = grid.width * stack.patch.width,
          .values = from_rows(rows, grid, stack)};
}

std::vector<float> in_order_of_rows(std::span<const float> predicted, const Refinement& stack) {
  return turned(predicted, static_cast<std::size_t>(stack.patch.elements()),
                static_cast<std::size_t>(stack.out_channels));
}

}  // namespace diffuse

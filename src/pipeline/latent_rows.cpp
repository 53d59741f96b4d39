#include "pipeline/latent_rows.hpp"

#include <string>

#include "core/error.hpp"

namespace diffuse {

namespace {

// Calls visit(index in the latent, index in the rows) for each element.
template <typename Visit>
void each_element(const TokenGrid& grid, const Refinement& stack, Visit visit) {
  const auto& patch = stack.patch;
  const auto height = grid.height * patch.height;
  const auto width = grid.width * patch.width;
  const auto frames = grid.frames * patch.frames;
  std::size_t row_element = 0;
  for (std::int64_t token = 0; token < grid.tokens(); ++token) {
    const auto first_frame = token / (grid.height * grid.width) * patch.frames;
    const auto first_line = token / grid.width % grid.height * patch.height;
    const auto first_column = token % grid.width * patch.width;
    for (std::int64_t channel = 0; channel < stack.channels; ++channel)
      for (std::int64_t f = 0; f < patch.frames; ++f)
        for (std::int64_t y = 0; y < patch.height; ++y)
          for (std::int64_t x = 0; x < patch.width; ++x) {
            const auto at =
                ((channel * frames + first_frame + f) * height + first_line + y) * width + first_column + x;
            visit(static_cast<std::size_t>(at), row_element++);
          }
  }
}

void check_size(std::size_t found, const TokenGrid& grid, const Refinement& stack) {
  if (found != static_cast<std::size_t>(grid.tokens() * stack.inputs()))
    throw_internal("a latent of " + std::to_string(found) + " elements for " + std::to_string(grid.tokens()) +
                   " tokens");
}

}  // namespace

std::vector<float> to_rows(std::span<const float> latent, const TokenGrid& grid, const Refinement& stack) {
  check_size(latent.size(), grid, stack);
  std::vector<float> rows(latent.size());
  each_element(grid, stack, [&](std::size_t at, std::size_t in_rows) { rows[in_rows] = latent[at]; });
  return rows;
}

std::vector<float> from_rows(std::span<const float> rows, const TokenGrid& grid, const Refinement& stack) {
  check_size(rows.size(), grid, stack);
  std::vector<float> latent(rows.size());
  each_element(grid, stack, [&](std::size_t at, std::size_t in_rows) { latent[at] = rows[in_rows]; });
  return latent;
}

std::vector<float> in_order_of_rows(std::span<const float> predicted, const Refinement& stack) {
  const auto channels = static_cast<std::size_t>(stack.out_channels);
  const auto elements = static_cast<std::size_t>(stack.patch.elements());
  std::vector<float> rows(predicted.size());
  for (std::size_t start = 0; start < predicted.size(); start += channels * elements)
    for (std::size_t channel = 0; channel < channels; ++channel)
      for (std::size_t i = 0; i < elements; ++i)
        rows[start + channel * elements + i] = predicted[start + i * channels + channel];
  return rows;
}

}  // namespace diffuse

#include "slice/patches.hpp"

#include "core/error.hpp"

namespace diffuse {
namespace {

// body(latent element, channel, element of the patch) for each element of a token.
template <class Body>
void each_element(const PatchSize& patch, std::int64_t channels, const TokenGrid& grid, std::int64_t token,
                  const Body& body) {
  const auto frames = grid.frames * patch.frames;
  const auto height = grid.height * patch.height;
  const auto width = grid.width * patch.width;
  const auto frame = token / (grid.height * grid.width) * patch.frames;
  const auto row = token / grid.width % grid.height * patch.height;
  const auto column = token % grid.width * patch.width;
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    std::int64_t element = 0;
    for (std::int64_t f = 0; f < patch.frames; ++f) {
      for (std::int64_t y = 0; y < patch.height; ++y) {
        for (std::int64_t x = 0; x < patch.width; ++x, ++element) {
          const auto at = ((channel * frames + frame + f) * height + row + y) * width + column + x;
          body(static_cast<std::size_t>(at), channel, element);
        }
      }
    }
  }
}

std::int64_t rows_of(const PatchSize& patch, std::int64_t channels, const TokenGrid& grid,
                     std::int64_t first_row, std::size_t latents, std::size_t patches) {
  const auto inputs = channels * patch.elements();
  const auto rows = static_cast<std::int64_t>(patches) / inputs;
  if (static_cast<std::int64_t>(latents) != grid.tokens() * inputs ||
      rows * inputs != static_cast<std::int64_t>(patches) || first_row < 0 ||
      first_row + rows > grid.tokens())
    throw_internal("rows of patches are not of their latent picture");
  return rows;
}

}  // namespace

void patchify(const PatchSize& patch, std::int64_t channels, const TokenGrid& grid, std::int64_t first_row,
              std::span<const float> latents, std::span<float> patches) {
  const auto rows = rows_of(patch, channels, grid, first_row, latents.size(), patches.size());
  const auto elements = patch.elements();
  for (std::int64_t row = 0; row < rows; ++row) {
    float* to = patches.data() + row * channels * elements;
    each_element(patch, channels, grid, first_row + row,
                 [&](std::size_t at, std::int64_t channel, std::int64_t element) {
                   to[channel * elements + element] = latents[at];
                 });
  }
}

void unpatchify(const PatchSize& patch, std::int64_t channels, const TokenGrid& grid, std::int64_t first_row,
                std::span<const float> patches, std::span<float> latents) {
  const auto rows = rows_of(patch, channels, grid, first_row, latents.size(), patches.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* from = patches.data() + row * channels * patch.elements();
    each_element(patch, channels, grid, first_row + row,
                 [&](std::size_t at, std::int64_t channel, std::int64_t element) {
                   latents[at] = from[element * channels + channel];
                 });
  }
}

}  // namespace diffuse

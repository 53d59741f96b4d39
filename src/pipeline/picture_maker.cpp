#include "pipeline/picture_maker.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace diffuse {

std::optional<codec::VideoTiling> tiling_of(std::int64_t pixels, const VideoCodec& codec) {
  if (pixels == 0) return std::nullopt;
  const auto scale = codec.space_scale();
  const auto below = std::max(pixels / scale, std::int64_t{2}) * scale;
  if (pixels != below)
    throw_usage("--tile " + std::to_string(pixels) + ": tiles of this model have multiples of " +
                std::to_string(scale) + " pixels, " + std::to_string(2 * scale) + " at least; " +
                std::to_string(below) + " would do");
  return codec::VideoTiling{.size = pixels,
                            .stride = std::max(pixels * 3 / 4 / scale, std::int64_t{1}) * scale};
}

PictureMaker::PictureMaker(const Recipe& recipe, const Checkpoint& checkpoint, int threads,
                           const std::string& simd, const std::optional<codec::VideoTiling>& tiling)
    : stack_(*recipe.refinement),
      tiling_(tiling),
      backend_(make_cpu_backend({.threads = threads, .compute = Compute::f32, .simd = simd})),
      decoder_(*recipe.video, checkpoint, *backend_) {}

MediaArray PictureMaker::make(const PreparedPicture& request, std::span<const float> latent) {
  const auto& grid = request.grid;
  const auto& patch = stack_.patch;
  return decoded(latent, {.frames = grid.frames * patch.frames,
                          .height = grid.height * patch.height,
                          .width = grid.width * patch.width});
}

MediaArray PictureMaker::first_frame(const LatentArray& latent) {
  const auto places = static_cast<std::size_t>(latent.height * latent.width);
  std::vector<float> first;
  for (std::int64_t channel = 0; channel < latent.channels; ++channel) {
    const auto at = static_cast<std::size_t>(channel * latent.frames) * places;
    const auto plane = std::span(latent.values).subspan(at, places);
    first.insert(first.end(), plane.begin(), plane.end());
  }
  return decoded(first, {.frames = 1, .height = latent.height, .width = latent.width});
}

MediaArray PictureMaker::decoded(std::span<const float> latent, const codec::LatentSize& size) {
  const auto frames = decoder_.decode(latent, size, tiling_);
  MediaArray media;
  media.kind = frames.count == 1 ? MediaKind::picture : MediaKind::video;
  media.element = MediaElement::u8;
  media.frames = frames.count;
  media.height = frames.height;
  media.width = frames.width;
  media.channels = 3;
  media.rate = frames.count == 1 ? 0 : stack_.defaults.rate;
  const auto bytes = std::as_bytes(std::span(frames.pixels));
  media.bytes.assign(bytes.begin(), bytes.end());
  return media;
}

}  // namespace diffuse

#include "pipeline/picture_maker.hpp"

namespace diffuse {

PictureMaker::PictureMaker(const Recipe& recipe, const Checkpoint& checkpoint, int threads,
                           const std::string& simd)
    : stack_(*recipe.refinement),
      backend_(make_cpu_backend({.threads = threads, .compute = Compute::f32, .simd = simd})),
      decoder_(*recipe.video, checkpoint, *backend_) {}

MediaArray PictureMaker::make(const PreparedPicture& request, std::span<const float> latent) {
  const auto& grid = request.grid;
  const auto& patch = stack_.patch;
  const auto frames = decoder_.decode(latent, {.frames = grid.frames * patch.frames,
                                               .height = grid.height * patch.height,
                                               .width = grid.width * patch.width});
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

#pragma once
// The codec of a pipeline whose answers are pictures: on the client, in f32 on its CPU, whatever the ranks
// compute on.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backend/backend.hpp"
#include "checkpoint/checkpoint.hpp"
#include "codec/video_decoder.hpp"
#include "core/media.hpp"
#include "pipeline/picture_request.hpp"
#include "recipe/recipe.hpp"

namespace diffuse {

// Tiles of so many pixels a side, which overlap by a quarter, as diffusers' own of 256 do; none for 0 pixels.
// Throws usage where the codec has no such tiles.
std::optional<codec::VideoTiling> tiling_of(std::int64_t pixels, const VideoCodec& codec);

class PictureMaker {
 public:
  // Loads the codec's weights. `recipe` and `checkpoint` must outlive it. `simd` as in CpuOptions: pixels are
  // the same within one target. With `tiling`, which suits the codec, it decodes in tiles.
  PictureMaker(const Recipe& recipe, const Checkpoint& checkpoint, int threads, const std::string& simd,
               const std::optional<codec::VideoTiling>& tiling = std::nullopt);

  // Of a finished latent [channels, frames, height, width]: a video, or a picture where the request is of one
  // frame. Throws bad data where a pixel is not finite.
  MediaArray make(const PreparedPicture& request, std::span<const float> latent);

  // The first frame of what a latent is decoded into, and nothing behind it: frames do not depend on later
  // ones. Throws as make() does.
  MediaArray first_frame(const LatentArray& latent);

  // Of each tensor that was read.
  const std::map<std::string, std::uint64_t>& hashes() const { return decoder_.weights().hashes; }
  std::string target() const { return backend_->target(); }

 private:
  MediaArray decoded(std::span<const float> latent, const codec::LatentSize& size);

  const Refinement& stack_;
  std::optional<codec::VideoTiling> tiling_;
  std::unique_ptr<Backend> backend_;
  codec::VideoDecoder decoder_;
};

}  // namespace diffuse

#pragma once
// The codec of a pipeline whose answers are pictures: on the client, in f32 on its CPU, whatever the ranks
// compute on.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "backend/backend.hpp"
#include "checkpoint/checkpoint.hpp"
#include "codec/video_decoder.hpp"
#include "core/media.hpp"
#include "pipeline/picture_request.hpp"
#include "recipe/recipe.hpp"

namespace diffuse {

class PictureMaker {
 public:
  // Loads the codec's weights. `recipe` and `checkpoint` must outlive it. `simd` as in CpuOptions: pixels are
  // the same within one target.
  PictureMaker(const Recipe& recipe, const Checkpoint& checkpoint, int threads, const std::string& simd);

  // Of a finished latent [channels, frames, height, width]: a video, or a picture where the request is of one
  // frame. Throws bad data where a pixel is not finite.
  MediaArray make(const PreparedPicture& request, std::span<const float> latent);

  // Of each tensor that was read.
  const std::map<std::string, std::uint64_t>& hashes() const { return decoder_.weights().hashes; }
  std::string target() const { return backend_->target(); }

 private:
  const Refinement& stack_;
  std::unique_ptr<Backend> backend_;
  codec::VideoDecoder decoder_;
};

}  // namespace diffuse

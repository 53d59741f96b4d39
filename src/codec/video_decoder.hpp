#pragma once
// Latents -> frames of a video, on the client: the decoding half of diffusers' AutoencoderKLWan (Wan 2.1) in
// f32.
//
// Frames go through the whole decoder one by one, each with what the convolutions keep of the two before it:
// memory does not grow with the length of a video. Every pixel is computed in one order of operations that
// depends on the latents and the weights alone; the number of threads changes no bit.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "checkpoint/checkpoint.hpp"
#include "codec/planes.hpp"
#include "codec/video_weights.hpp"
#include "core/frames.hpp"
#include "recipe/video_codec.hpp"

namespace diffuse::codec {

// Of a latent [channels, frames, height, width].
struct LatentSize {
  std::int64_t frames = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// Tiles that overlap by size - stride pixels, over which they fade into one another.
struct VideoTiling {
  std::int64_t size = 256;  // pixels of a side
  std::int64_t stride = 192;
};

class VideoDecoder {
 public:
  // Loads the decoder's weights. All must outlive it. `backend` computes in f32 in memory of the host, and is
  // not used by others meanwhile; else throws internal.
  VideoDecoder(const VideoCodec& codec, const Checkpoint& checkpoint, Backend& backend);

  // Called with each frame in turn: [height, width, 3] in [0, 1], which lasts until it returns.
  using Sink = std::function<void(std::span<const float> frame)>;
  // latents [latent_channels, frames, height, width] as the last step of a scheduler leaves them. Memory:
  // plane_bytes(), whatever the number of frames. Throws bad data where their number is not that of `size` or
  // a pixel is not finite.
  void decode(std::span<const float> latents, const LatentSize& size, const Sink& sink);
  // The same in tiles, as diffusers' enable_tiling() has it: a picture that is larger than one takes the
  // memory of a tile, and that of the frames themselves. Other pixels than those of the whole, a little.
  // Throws bad data where size and stride are no multiples of the codec's scale or the stride is not within 1
  // to the size.
  void decode(std::span<const float> latents, const LatentSize& size, const VideoTiling& tiling,
              const Sink& sink);
  // As bytes, each the nearest to 255 times its value (halves to even).
  Frames decode(std::span<const float> latents, const LatentSize& size,
                const std::optional<VideoTiling>& tiling = std::nullopt);

  const VideoWeights& weights() const { return weights_; }
  // Of activations, where they were most so far.
  std::uint64_t plane_bytes() const { return planes_.most_bytes(); }

 private:
  // What a convolution keeps of the frames before: the last but one and the last, where there were any.
  struct Before {
    Plane earlier, last;
  };

  // Places [y, y + height) and [x, x + width) of a latent.
  struct Window {
    std::int64_t y = 0, x = 0, height = 0, width = 0;
  };
  // Takes a frame's red, green and blue, mostly within -1 to 1.
  using Take = std::function<void(const PlaneData& colours)>;
  // A window, and its pixels once they are decoded: [frames, height, width, 3].
  struct Tile {
    std::int64_t height = 0, width = 0;
    std::vector<float> pixels;

    float* row(std::int64_t frame, std::int64_t y) {
      return pixels.data() + (frame * height + y) * width * 3;
    }
  };

  void check(std::span<const float> latents, const LatentSize& size) const;
  void decode_window(std::span<const float> latents, const LatentSize& size, const Window& window,
                     const Take& take);
  Tile decode_tile(std::span<const float> latents, const LatentSize& size, const Window& window);
  static void show(std::span<float> frame, const Sink& sink);
  Plane first_plane(std::span<const float> latents, const LatentSize& size, const Window& window,
                    std::int64_t frame);
  void run_stage(std::size_t index, Plane x, bool stretches, const Take& take);
  void finish(Plane x, const Take& take);
  Plane residual(const LoadedVideoResidual& block, Plane x);
  void attend(const LoadedVideoAttention& block, const Plane& x);
  Plane upsample(const LoadedVideoConvolution& convolution, const Plane& x);
  Plane norm_silu(const LoadedVideoNorm& norm, const Plane& x);
  Plane pointwise(const LoadedVideoConvolution& convolution, const Plane& x);
  // y (+)= the convolution over x and the frames before it, of which x is one from then on.
  void causal(const LoadedVideoConvolution& convolution, Plane x, const Plane& y, bool accumulate);
  // Over frames, the last of which is the present one; null: zeros.
  void convolve(const LoadedVideoConvolution& convolution, std::span<const PlaneData* const> frames,
                const Plane& y, bool accumulate);

  const VideoCodec& codec_;
  Backend& backend_;
  VideoWeights weights_;
  PlanePool planes_;
  std::vector<Before> before_;  // of each convolution that sees more than one frame
};

// At most the bytes of activations that decoding takes beside the weights and the frames: what plane_bytes()
// says after it, and attention's. Any number of frames takes the same; of tiles, give the size of one.
std::uint64_t decoding_bytes(const VideoCodec& codec, const LatentSize& size);

}  // namespace diffuse::codec

#pragma once
// The decoding half of a video autoencoder (diffusers' AutoencoderKLWan in the form of Wan 2.1): latent
// frames
// -> pictures. Plain values that name tensors and hold no weights; src/codec runs them.
//
// A latent is multiplied by `deviation` and moved by `mean`, a channel each, then goes through `bridge`,
// `first`, the middle (a residual block, attention within the frame, a residual block), stages, a norm with
// SiLU, and `last`. Convolutions are causal in time: of width 3 they see a frame and the two before it, and
// zeros before the first one. In space they see zeros outside of the picture.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace diffuse {

// weight [outputs, inputs, time, space, space], or without the dimension of time where that is 0
struct VideoConvolution {
  std::string weight;
  std::string bias;  // [outputs]
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t time = 3;
  std::int64_t space = 3;
};

// x / |x| * sqrt(channels) * gamma over the channels of each place.
struct VideoNorm {
  std::string gamma;  // [channels, 1, 1] or [channels, 1, 1, 1]
  std::int64_t channels = 0;
};

// x = shortcut(x) + second(SiLU(norm2(first(SiLU(norm1(x)))))); without a shortcut x itself is added.
struct VideoResidual {
  VideoNorm norm1;
  VideoConvolution first;
  VideoNorm norm2;
  VideoConvolution second;
  std::optional<VideoConvolution> shortcut;
};

// x += out(attention(qkv(norm(x)))) with one head, over the places of a frame.
struct VideoAttention {
  VideoNorm norm;
  VideoConvolution qkv;  // query, key, value, each as wide as x
  VideoConvolution out;
};

// Frames are made two by `time` (its first and second half of outputs), all but the first latent frame's;
// then each place becomes four and `space` is run.
struct VideoUpsampler {
  std::optional<VideoConvolution> time;
  VideoConvolution space;
};

struct VideoStage {
  std::vector<VideoResidual> residuals;
  std::optional<VideoUpsampler> upsampler;  // the last stage has none
};

struct VideoCodec {
  std::int64_t latent_channels = 0;
  std::vector<double> mean, deviation;  // [latent_channels]
  VideoConvolution bridge;              // of width 1
  VideoConvolution first;
  VideoResidual middle_in;
  VideoAttention middle;
  VideoResidual middle_out;
  std::vector<VideoStage> stages;
  VideoNorm norm;
  VideoConvolution last;  // -> red, green, blue in [-1, 1]

  // Places and frames that one of the latent becomes.
  std::int64_t space_scale() const;
  std::int64_t time_scale() const;
  // Of a video of `latent_frames` >= 1: the first gives one.
  std::int64_t frames_of(std::int64_t latent_frames) const { return (latent_frames - 1) * time_scale() + 1; }
};

// All that it names, each once.
std::vector<std::string> tensors_of(const VideoCodec& codec);

}  // namespace diffuse

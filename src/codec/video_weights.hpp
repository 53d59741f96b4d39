#pragma once
// The weights of a video decoder on a CPU backend, laid out so that every convolution is a sum of products:
// places of a row of a picture lie one behind the other, so what a place sees of one row is one longer row.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "checkpoint/checkpoint.hpp"
#include "recipe/video_codec.hpp"

namespace diffuse::codec {

struct LoadedVideoConvolution {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t time = 1;   // frames that are seen
  std::int64_t space = 1;  // rows and columns
  // [time * space]: of a frame and a row, from the earliest and the topmost; [outputs, space * inputs]
  std::vector<std::shared_ptr<const PackedMatrix>> taps;
  std::vector<float> bias;  // [outputs]
  std::size_t number = 0;   // among all that see more than one frame
};

struct LoadedVideoNorm {
  std::vector<float> gamma;  // [channels]
};

struct LoadedVideoResidual {
  LoadedVideoNorm norm1, norm2;
  LoadedVideoConvolution first, second;
  std::optional<LoadedVideoConvolution> shortcut;
};

struct LoadedVideoAttention {
  LoadedVideoNorm norm;
  LoadedVideoConvolution qkv, out;
};

struct LoadedVideoUpsampler {
  // What makes the first and the second of two frames; they see the same frames.
  std::vector<LoadedVideoConvolution> time;
  LoadedVideoConvolution space;
};

struct LoadedVideoStage {
  std::vector<LoadedVideoResidual> residuals;
  std::optional<LoadedVideoUpsampler> upsampler;
};

struct VideoWeights {
  std::vector<float> mean, deviation;  // [latent channels]
  LoadedVideoConvolution bridge, first, last;
  LoadedVideoResidual middle_in, middle_out;
  LoadedVideoAttention middle;
  std::vector<LoadedVideoStage> stages;
  LoadedVideoNorm norm;
  std::size_t causal = 0;                       // convolutions that see more than one frame
  std::map<std::string, std::uint64_t> hashes;  // of each tensor that was read
  std::uint64_t bytes_read = 0;
};

// Reads tensors_of(codec), each once.
VideoWeights load_video_weights(const VideoCodec& codec, const Checkpoint& checkpoint, Backend& backend);

}  // namespace diffuse::codec

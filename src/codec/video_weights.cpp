#include "codec/video_weights.hpp"

#include <algorithm>

#include "codec/weight_reader.hpp"

namespace diffuse::codec {
namespace {

class Loader {
 public:
  Loader(WeightReader& reader, std::size_t& causal) : reader_(reader), causal_(causal) {}

  LoadedVideoConvolution convolution(const VideoConvolution& spec) {
    auto parts = split(spec, 1);
    return std::move(parts.front());
  }

  // The outputs in `count` equal parts, each a convolution of its own over the same frames.
  std::vector<LoadedVideoConvolution> split(const VideoConvolution& spec, std::int64_t count) {
    const auto weight = reader_.floats(spec.weight);  // [outputs, inputs, time, space, space]
    const auto bias = reader_.floats(spec.bias);
    const auto time = std::max<std::int64_t>(spec.time, 1);
    const auto number = time > 1 ? causal_++ : 0;
    const auto outputs = spec.outputs / count;
    std::vector<LoadedVideoConvolution> parts;
    for (std::int64_t part = 0; part < count; ++part) {
      LoadedVideoConvolution loaded = {.inputs = spec.inputs,
                                       .outputs = outputs,
                                       .time = time,
                                       .space = spec.space,
                                       .taps = {},
                                       .bias = {},
                                       .number = number};
      for (std::int64_t tap = 0; tap < time * spec.space; ++tap)
        loaded.taps.push_back(this->tap(spec, weight, part * outputs, outputs, tap, time * spec.space));
      const auto first = bias.begin() + part * outputs;
      loaded.bias.assign(first, first + outputs);
      parts.push_back(std::move(loaded));
    }
    return parts;
  }

  LoadedVideoNorm norm(const VideoNorm& spec) { return {reader_.floats(spec.gamma)}; }

  LoadedVideoResidual residual(const VideoResidual& spec) {
    LoadedVideoResidual loaded;
    loaded.norm1 = norm(spec.norm1);
    loaded.first = convolution(spec.first);
    loaded.norm2 = norm(spec.norm2);
    loaded.second = convolution(spec.second);
    if (spec.shortcut) loaded.shortcut = convolution(*spec.shortcut);
    return loaded;
  }

  LoadedVideoStage stage(const VideoStage& spec) {
    LoadedVideoStage loaded;
    for (const auto& each : spec.residuals) loaded.residuals.push_back(residual(each));
    if (!spec.upsampler) return loaded;
    loaded.upsampler.emplace();
    if (spec.upsampler->time) loaded.upsampler->time = split(*spec.upsampler->time, 2);
    loaded.upsampler->space = convolution(spec.upsampler->space);
    return loaded;
  }

 private:
  // Outputs [first, first + outputs) of one frame and row that is seen: [outputs, space * inputs], columns
  // one behind the other.
  std::shared_ptr<const PackedMatrix> tap(const VideoConvolution& spec, const std::vector<float>& weight,
                                          std::int64_t first, std::int64_t outputs, std::int64_t tap,
                                          std::int64_t taps) {
    std::vector<float> laid(static_cast<std::size_t>(outputs * spec.space * spec.inputs));
    auto to = laid.begin();
    for (std::int64_t output = first; output < first + outputs; ++output) {
      for (std::int64_t column = 0; column < spec.space; ++column) {
        for (std::int64_t input = 0; input < spec.inputs; ++input, ++to)
          *to = weight[static_cast<std::size_t>(((output * spec.inputs + input) * taps + tap) * spec.space +
                                                column)];
      }
    }
    return reader_.matrix(laid, outputs, spec.space * spec.inputs);
  }

  WeightReader& reader_;
  std::size_t& causal_;
};

std::vector<float> floats_of(const std::vector<double>& values) {
  std::vector<float> singles;
  for (const auto value : values) singles.push_back(static_cast<float>(value));
  return singles;
}

}  // namespace

VideoWeights load_video_weights(const VideoCodec& codec, const Checkpoint& checkpoint, Backend& backend) {
  VideoWeights weights;
  WeightReader reader(checkpoint, backend, weights.hashes, weights.bytes_read);
  Loader loader(reader, weights.causal);
  weights.mean = floats_of(codec.mean);
  weights.deviation = floats_of(codec.deviation);
  weights.bridge = loader.convolution(codec.bridge);
  weights.first = loader.convolution(codec.first);
  weights.middle_in = loader.residual(codec.middle_in);
  weights.middle = {loader.norm(codec.middle.norm), loader.convolution(codec.middle.qkv),
                    loader.convolution(codec.middle.out)};
  weights.middle_out = loader.residual(codec.middle_out);
  for (const auto& stage : codec.stages) weights.stages.push_back(loader.stage(stage));
  weights.norm = loader.norm(codec.norm);
  weights.last = loader.convolution(codec.last);
  return weights;
}

}  // namespace diffuse::codec

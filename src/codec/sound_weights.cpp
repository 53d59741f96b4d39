#include "codec/sound_weights.hpp"

#include <cmath>
#include <span>

#include "codec/weight_reader.hpp"

namespace diffuse::codec {
namespace {

class Loader {
 public:
  explicit Loader(WeightReader& reader) : reader_(reader) {}

  std::vector<float> floats(const std::string& name) { return reader_.floats(name); }

  LoadedConvolution convolution(const CodecConvolution& spec) {
    LoadedConvolution loaded;
    loaded.spec = &spec;
    loaded.bias = floats(spec.bias);
    const auto weight = normed(spec.gain, spec.direction);  // [outputs, inputs, width]
    const auto together = spec.dilation == 1 ? spec.width : 1;
    for (std::int64_t first = 0; first < spec.width; first += together) {
      std::vector<float> taps;
      for (std::int64_t output = 0; output < spec.outputs; ++output) {
        for (std::int64_t tap = first; tap < first + together; ++tap) {
          for (std::int64_t input = 0; input < spec.inputs; ++input)
            taps.push_back(
                weight[static_cast<std::size_t>((output * spec.inputs + input) * spec.width + tap)]);
        }
      }
      loaded.taps.push_back(reader_.matrix(taps, spec.outputs, together * spec.inputs));
    }
    return loaded;
  }

  LoadedStage stage(const CodecStage& spec) {
    LoadedStage loaded;
    loaded.spec = &spec;
    const auto bias = floats(spec.bias);
    const auto weight = normed(spec.gain, spec.direction);  // [inputs, outputs, 2 * stride]
    std::vector<float> laid;
    for (std::int64_t phase = 0; phase < spec.stride; ++phase) {
      loaded.bias.insert(loaded.bias.end(), bias.begin(), bias.end());
      for (std::int64_t output = 0; output < spec.outputs; ++output) {
        for (const auto tap : {phase + spec.stride, phase}) {  // of the row before, then of the row itself
          for (std::int64_t input = 0; input < spec.inputs; ++input)
            laid.push_back(
                weight[static_cast<std::size_t>((input * spec.outputs + output) * 2 * spec.stride + tap)]);
        }
      }
    }
    loaded.matrix = reader_.matrix(laid, spec.stride * spec.outputs, 2 * spec.inputs);
    for (const auto& unit : spec.units) loaded.units.push_back(this->unit(unit));
    return loaded;
  }

  LoadedLstmLayer lstm(const CodecLstmLayer& spec) {
    LoadedLstmLayer loaded;
    loaded.input_bias = floats(spec.input_bias);
    loaded.recurrent_bias = floats(spec.recurrent_bias);
    const auto rows = static_cast<std::int64_t>(loaded.input_bias.size());
    loaded.input = reader_.matrix(floats(spec.input), rows, rows / 4);
    loaded.recurrent = reader_.matrix(floats(spec.recurrent), rows, rows / 4);
    return loaded;
  }

 private:
  // gain * direction / |direction|, for each first index.
  std::vector<float> normed(const std::string& gain_name, const std::string& direction_name) {
    const auto gain = floats(gain_name);
    auto weight = floats(direction_name);
    const auto each = weight.size() / gain.size();
    for (std::size_t first = 0; first < gain.size(); ++first) {
      const auto part = std::span(weight).subspan(first * each, each);
      double squares = 0;
      for (const auto value : part) squares += static_cast<double>(value) * static_cast<double>(value);
      const double factor = static_cast<double>(gain[first]) / std::sqrt(squares);
      for (auto& value : part) value = static_cast<float>(static_cast<double>(value) * factor);
    }
    return weight;
  }

  LoadedUnit unit(const CodecUnit& spec) {
    LoadedUnit loaded;
    loaded.wide = convolution(spec.wide);
    loaded.narrow = convolution(spec.narrow);
    if (spec.shortcut) loaded.shortcut = convolution(*spec.shortcut);
    return loaded;
  }

  WeightReader& reader_;
};

}  // namespace

SoundWeights load_sound_weights(const SoundCodec& codec, const Checkpoint& checkpoint, Backend& backend) {
  SoundWeights weights;
  WeightReader reader(checkpoint, backend, weights.hashes, weights.bytes_read);
  Loader loader(reader);
  for (const auto& codebook : codec.codebooks) weights.codebooks.push_back(loader.floats(codebook));
  weights.first = loader.convolution(codec.first);
  for (const auto& layer : codec.lstm) weights.lstm.push_back(loader.lstm(layer));
  for (const auto& stage : codec.stages) weights.stages.push_back(loader.stage(stage));
  weights.last = loader.convolution(codec.last);
  return weights;
}

}  // namespace diffuse::codec

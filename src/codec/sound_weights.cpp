#include "codec/sound_weights.hpp"

#include <cmath>
#include <span>

#include "core/dtype.hpp"

namespace diffuse::codec {
namespace {

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, Backend& backend, SoundWeights& into)
      : checkpoint_(checkpoint), backend_(backend), into_(into) {}

  std::vector<float> floats(const std::string& name) {
    const auto tensor = checkpoint_.read(name);
    const auto type = tensor.header().dtype;
    std::vector<float> values(tensor.bytes().size() / size_of(type));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = element_as_f32(tensor.bytes().data() + i * size_of(type), type);
    into_.hashes[name] = content_hash(tensor);
    into_.bytes_read += tensor.bytes().size();
    tensor.check_unchanged();
    return values;
  }

  std::shared_ptr<const PackedMatrix> matrix(const std::vector<float>& values, std::int64_t rows,
                                             std::int64_t cols) {
    const HostMatrix host = {reinterpret_cast<const std::byte*>(values.data()), DType::f32, rows, cols};
    return backend_.pack(std::span(&host, 1));
  }

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
      loaded.taps.push_back(matrix(taps, spec.outputs, together * spec.inputs));
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
    loaded.matrix = matrix(laid, spec.stride * spec.outputs, 2 * spec.inputs);
    for (const auto& unit : spec.units) loaded.units.push_back(this->unit(unit));
    return loaded;
  }

  LoadedLstmLayer lstm(const CodecLstmLayer& spec) {
    LoadedLstmLayer loaded;
    loaded.input_bias = floats(spec.input_bias);
    loaded.recurrent_bias = floats(spec.recurrent_bias);
    const auto rows = static_cast<std::int64_t>(loaded.input_bias.size());
    loaded.input = matrix(floats(spec.input), rows, rows / 4);
    loaded.recurrent = matrix(floats(spec.recurrent), rows, rows / 4);
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

  const Checkpoint& checkpoint_;
  Backend& backend_;
  SoundWeights& into_;
};

}  // namespace

SoundWeights load_sound_weights(const SoundCodec& codec, const Checkpoint& checkpoint, Backend& backend) {
  SoundWeights weights;
  Loader loader(checkpoint, backend, weights);
  for (const auto& codebook : codec.codebooks) weights.codebooks.push_back(loader.floats(codebook));
  weights.first = loader.convolution(codec.first);
  for (const auto& layer : codec.lstm) weights.lstm.push_back(loader.lstm(layer));
  for (const auto& stage : codec.stages) weights.stages.push_back(loader.stage(stage));
  weights.last = loader.convolution(codec.last);
  return weights;
}

}  // namespace diffuse::codec

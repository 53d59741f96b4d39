#pragma once
// The weights of a sound codec on a CPU backend, laid out so that every convolution is a product: rows of
// activations lie one behind the other, so the rows that an output sees are one longer row.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "checkpoint/checkpoint.hpp"
#include "recipe/sound_codec.hpp"

namespace diffuse::codec {

struct LoadedConvolution {
  const CodecConvolution* spec = nullptr;
  // [outputs, width * inputs], taps one behind the other; with a dilation one [outputs, inputs] a tap.
  std::vector<std::shared_ptr<const PackedMatrix>> taps;
  std::vector<float> bias;  // [outputs]

  std::int64_t reach() const { return (spec->width - 1) * spec->dilation; }
};

struct LoadedUnit {
  LoadedConvolution wide, narrow;
  std::optional<LoadedConvolution> shortcut;
};

struct LoadedStage {
  const CodecStage* spec = nullptr;
  // [stride * outputs, 2 * inputs]: what a row and the one before it add to `stride` rows.
  std::shared_ptr<const PackedMatrix> matrix;
  std::vector<float> bias;  // [stride * outputs]
  std::vector<LoadedUnit> units;
};

struct LoadedLstmLayer {
  std::shared_ptr<const PackedMatrix> input, recurrent;  // [4 * width, width]
  std::vector<float> input_bias, recurrent_bias;
};

struct SoundWeights {
  std::vector<std::vector<float>> codebooks;  // [codebook_size, hidden]
  LoadedConvolution first, last;
  std::vector<LoadedLstmLayer> lstm;
  std::vector<LoadedStage> stages;
  std::map<std::string, std::uint64_t> hashes;  // of each tensor that was read
  std::uint64_t bytes_read = 0;
};

// Reads tensors_of(codec), each once; points into `codec`.
SoundWeights load_sound_weights(const SoundCodec& codec, const Checkpoint& checkpoint, Backend& backend);

}  // namespace diffuse::codec

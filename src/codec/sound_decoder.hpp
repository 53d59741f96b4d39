#pragma once
// Codes -> samples, on the client: the decoding half of EnCodec (arXiv 2210.13438) in f32.
//
// Every sample is computed in one order of operations that depends on the codes and the weights alone; the
// number of threads changes no bit.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "checkpoint/checkpoint.hpp"
#include "codec/sound_weights.hpp"
#include "recipe/sound_codec.hpp"

namespace diffuse::codec {

struct Waveform {
  std::vector<float> samples;  // [frames, channels]
  std::int64_t channels = 1;
  std::int64_t rate = 0;  // frames a second
};

class SoundDecoder {
 public:
  // Loads the codec's weights. All must outlive it. `backend` computes in f32 in memory of the host, and is
  // not used by others meanwhile; else throws internal.
  SoundDecoder(const SoundCodec& codec, const Checkpoint& checkpoint, Backend& backend);

  // `codes` of each codebook, passes * codebooks of them, equally many and at least one. The two channels of
  // a codec with two passes have every second one. Memory: some 3 x rows x channels of the widest stage, 1 GB
  // for 40 s at 32 kHz. Throws bad data where codes are not so or not in their codebook, and where a sample
  // is not finite.
  Waveform decode(std::span<const std::vector<std::int32_t>> codes);

  const SoundWeights& weights() const { return weights_; }

 private:
  // Rows of activations, one behind the other, which start somewhere in memory that they own.
  struct Activations {
    std::vector<float> memory;
    std::int64_t first = 0;  // element
    std::int64_t rows = 0;
    std::int64_t width = 0;

    const float* row(std::int64_t index) const { return memory.data() + first + index * width; }
    float* row(std::int64_t index) { return memory.data() + first + index * width; }
  };

  void check(std::span<const std::vector<std::int32_t>> codes) const;
  std::vector<float> decode_pass(const std::vector<std::span<const std::int32_t>>& codes);
  Activations look_up(const std::vector<std::span<const std::int32_t>>& codes) const;
  Activations make(std::int64_t rows, std::int64_t width) const;
  void lstm(Activations& x);
  Activations convolution(const LoadedConvolution& loaded, const Activations& x, bool activated);
  Activations stretch(const LoadedStage& stage, const Activations& x);
  Activations unit(const LoadedUnit& unit, const Activations& x);
  // Rows [first, last) of x and what they see around them, in `window_`.
  void gather(const Activations& x, std::int64_t left, std::int64_t first, std::int64_t last,
              std::int64_t reach, bool activated, CodecPadding padding);
  void multiply(const LoadedConvolution& loaded, std::int64_t rows, Rows out, bool accumulate);

  const SoundCodec& codec_;
  Backend& backend_;
  SoundWeights weights_;
  std::vector<float> window_, inner_;  // of the rows under way
};

}  // namespace diffuse::codec

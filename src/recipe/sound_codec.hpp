#pragma once
// The decoding half of a sound codec (EnCodec, arXiv 2210.13438): frames of codes of several codebooks ->
// samples. Plain values that name tensors and hold no weights; src/codec runs them.
//
// The codebooks' rows are summed (residual vector quantisation), then: a convolution; an LSTM, whose output
// is added to its input; stages, each of which makes `stride` rows of one and runs residual units; a
// convolution to samples. Before every convolution but the first, and before every stage, stands an ELU.
//
// Convolutions are weight-normed: weight = gain * direction / |direction|, over all but the first index.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace diffuse {

// What stands outside of the rows that a convolution sees.
enum class CodecPadding : std::uint8_t { reflect, zeros, edge };

// One row out for each row in: rows t + (0 .. width - 1) * dilation - left, where `left` is all of the reach
// of a causal codec, and the larger half of another's.
struct CodecConvolution {
  std::string gain;       // [outputs, 1, 1]
  std::string direction;  // [outputs, inputs, width]
  std::string bias;       // [outputs]
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t width = 1;
  std::int64_t dilation = 1;
};

// x = shortcut(x) + narrow(wide(x)); without a shortcut x itself is added.
struct CodecUnit {
  CodecConvolution wide;
  CodecConvolution narrow;                   // of width 1
  std::optional<CodecConvolution> shortcut;  // no ELU before it
};

// A transposed convolution, twice as wide as its stride, and units behind it. Of the `stride` rows too many
// that it makes, `trim_left` are cut off at the start and the others at the end.
struct CodecStage {
  std::string gain;       // [inputs, 1, 1]
  std::string direction;  // [inputs, outputs, 2 * stride]
  std::string bias;       // [outputs]
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t stride = 1;
  std::int64_t trim_left = 0;
  std::vector<CodecUnit> units;
};

// Rows of the weights: input, forget, cell and output gate.
struct CodecLstmLayer {
  std::string input, recurrent;            // [4 * width, width]
  std::string input_bias, recurrent_bias;  // [4 * width]
};

struct SoundCodec {
  std::int64_t rate = 0;           // samples a second
  std::int64_t channels = 1;       // that one pass makes
  std::int64_t passes = 1;         // 2: codebooks take turns between left and right, each a pass of its own
  std::int64_t codebook_size = 0;  // ids of a codebook
  std::int64_t hidden = 0;         // of a codebook's row
  bool causal = true;
  CodecPadding padding = CodecPadding::reflect;
  std::vector<std::string> codebooks;  // of one pass: [codebook_size, hidden]
  CodecConvolution first;
  std::vector<CodecLstmLayer> lstm;
  std::vector<CodecStage> stages;
  CodecConvolution last;

  std::int64_t samples_per_frame() const {
    std::int64_t samples = 1;
    for (const auto& stage : stages) samples *= stage.stride;
    return samples;
  }
};

}  // namespace diffuse

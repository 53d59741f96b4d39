#pragma once
// Golden cases whose stack reads an encoder: what the encoder is given, and a model run by hand.

#include <cstdint>
#include <span>
#include <vector>

#include "golden.hpp"
#include "slice/encoder.hpp"
#include "slice/executor.hpp"

namespace diffuse::test {

using Ids = std::vector<std::int32_t>;

// [features, frames] as extractors give it -> [frames, features]
inline std::vector<float> by_frame(const GoldenFloats& mel) {
  std::vector<float> frames;
  for (std::int64_t frame = 0; frame < mel.cols; ++frame) {
    for (std::int64_t feature = 0; feature < mel.rows; ++feature) frames.push_back(mel.row(feature)[frame]);
  }
  return frames;
}

struct MemoryCase {
  explicit MemoryCase(const std::filesystem::path& folder) : model(folder), golden(folder) {
    const bool sound = golden.has("mel");
    if (sound) {
      input.frames = by_frame(golden.floats("mel"));
      prompt = golden.ids("input_ids");
    } else {
      input.ids = golden.ids("input_ids");
      prompt = {
          read_json(folder / "generation_config.json").at("decoder_start_token_id").get<std::int32_t>()};
    }
  }
  TestModel model;
  Golden golden;
  EncoderInput input;
  Ids prompt;  // of the decoder
};

// The memory of each input, encoded at once.
inline std::vector<std::vector<float>> encode(const MemoryCase& subject, Backend& backend,
                                              const std::vector<const EncoderInput*>& inputs) {
  const auto& recipe = subject.model.recipe;
  RankSlice slice;
  slice.encoder = true;
  slice.tensors = tensors_of(*recipe.encoder);
  auto weights = load_slice(recipe, slice, subject.model.checkpoint, backend);
  std::int64_t rows = 0;
  for (const auto* input : inputs) rows += memory_rows(*recipe.encoder, *input);
  EncoderRunner runner(recipe, *weights.encoder, backend, rows);
  return runner.encode(inputs);
}

}  // namespace diffuse::test

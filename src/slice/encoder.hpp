#pragma once
// Runs the encoder of a model: what a request gives it -> the memory that the answering stack reads. Holds
// nothing of a request once it has answered.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "recipe/recipe.hpp"
#include "slice/block_runner.hpp"
#include "slice/weights.hpp"

namespace diffuse {

// Token ids, or frames of features [frames, features]; which of them, the encoder's front says.
struct EncoderInput {
  std::vector<std::int32_t> ids;
  std::vector<float> frames;
  // Rows of memory, where they are to be more than come of it: in front of the projections, those behind are
  // zeros. 0: as many as come of it.
  std::int64_t padded_rows = 0;
};

// Rows of memory that come of an input.
std::int64_t memory_rows(const Encoder& encoder, const EncoderInput& input);

// A batch on its way through the encoder's blocks.
struct EncodingPass {
  BatchContext context;
  std::vector<std::vector<std::int32_t>> pages;  // that the context looks at
  std::vector<std::int64_t> padded_rows;         // of each input's memory
  Rows hidden;
  std::size_t next = 0;  // block
};

class EncoderRunner {
 public:
  // At once: each may leave part of a page of keys and values empty.
  static constexpr std::int64_t kMostInputs = 64;

  // References must outlive it, and one runner at a time uses the weights. `max_rows` of memory are computed
  // at once: at least the longest input's.
  EncoderRunner(const Recipe& recipe, LoadedEncoder& weights, Backend& backend, std::int64_t max_rows);

  // The memory [rows, encoder hidden] of each input, in memory of the host. Inputs are checked by the caller;
  // at most kMostInputs, and together max_rows rows. What one input gives does not depend on the others.
  std::vector<std::vector<float>> encode(std::span<const EncoderInput* const> inputs);
  // The same in parts, so that other work can be done between them: start(), advance() until it says that
  // nothing is left, then take(). One batch at a time; `inputs` are read by start() alone.
  void start(std::span<const EncoderInput* const> inputs);
  bool advance();
  std::vector<std::vector<float>> take();

  std::int64_t max_rows() const { return max_rows_; }

 private:
  // hidden [rows, width] -> [rows, hidden], valid until the next call.
  Rows project(Rows hidden);
  void embed(std::span<const EncoderInput* const> inputs, const BatchContext& context, Rows hidden);
  void convolve(const FramesFront& front, const LoadedFrames& loaded, const EncoderInput& input, Rows hidden);

  const Encoder& encoder_;
  LoadedEncoder& weights_;
  Backend& backend_;
  std::int64_t max_rows_;
  std::int64_t most_pages_;
  BlockRunner runner_;
  std::optional<EncodingPass> pass_;
  Buffer hidden_;                  // [max_rows, width]
  std::vector<Buffer> projected_;  // what each projection gives: [max_rows, its rows]
  std::vector<float> padding_;     // the row of memory that a row of zeros gives: [hidden]
};

}  // namespace diffuse

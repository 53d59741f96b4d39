#pragma once
// What a request to a stack that walks codebooks comes to: how many positions, in which pattern, guided by
// how much. Pure.

#include <cstdint>

#include "text/codebook_delay.hpp"
#include "text/generate_options.hpp"

namespace diffuse {

// Of the model: what its recipe says.
struct CodebookShape {
  std::int64_t codebooks = 1;
  std::int64_t channels = 1;       // of sound, between which the codebooks take turns
  std::int64_t codes = 0;          // of a codebook; the id behind them is padding
  std::int64_t max_positions = 0;  // that the stack has room for
};

struct CodebookRequest {
  CodebookDelay delay;
  double guidance = 1;  // see is_guided()

  // Sequences that a sample takes: with the text, and without it where it is guided.
  std::int64_t rows() const;
};

// The job's options over the checkpoint's. An answer is cut to what the stack has room for. Throws bad data,
// in one line, where options ask for what codes do not have (ends and rules of text, log-probabilities, a
// repetition penalty, beams), and where the checkpoint starts answers or pads them with another id.
CodebookRequest codebook_request(const GenerateOptions& options, const GenerationConfig& generation,
                                 const CodebookShape& shape);

}  // namespace diffuse

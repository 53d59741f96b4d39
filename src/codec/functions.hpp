#pragma once
// The elementary functions of the codecs, over rows of f32. Of additions, multiplications and divisions in a
// fixed order an element: the same bits in any vector width, on every machine. Within 2 units in the last
// place near zero and 1e-7 elsewhere; NaN stays NaN.

#include <cstddef>
#include <span>

namespace diffuse::codec {

// to[i] = from[i] where that is over 0, else exp(from[i]) - 1. `to` may be `from`.
void elu(std::span<const float> from, float* to);

// One step of an LSTM's cells: gates [4 * width] (input, forget, cell, output) before their functions; `cell`
// [width] is what the step before left, and becomes this step's; -> `out` [width].
void lstm_cells(std::span<const float> gates, std::span<float> cell, float* out);

}  // namespace diffuse::codec

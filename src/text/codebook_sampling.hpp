#pragma once
// Choosing one id of each codebook from a row of logits, with classifier-free guidance. Pure.

#include <cstdint>
#include <span>
#include <vector>

#include "text/sampling.hpp"

namespace diffuse {

// Guidance takes a second row, which the stack makes without the text, from this scale on.
inline bool is_guided(double scale) {
  return scale > 1;
}

// logits[i] = free[i] + (logits[i] - free[i]) * scale, in f32 and in this order: `free` are the logits
// without the text. Both [codebooks * ids].
void guide(std::span<float> logits, std::span<const float> free, float scale);

// Of each codebook the id that sample_token chooses from its part of `logits` [codebooks * ids]. Its random
// number is that of position key.position * codebooks + codebook. A repetition penalty has no history to look
// at and log-probabilities are not made. Throws as sample_token does.
std::vector<std::int32_t> sample_codes(std::span<const float> logits, std::int64_t codebooks,
                                       const SamplingParams& params, const SampleKey& key,
                                       SamplingScratch& scratch);

}  // namespace diffuse

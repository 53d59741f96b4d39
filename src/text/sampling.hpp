#pragma once
// Choosing the next token from a row of logits. Pure: the same logits, parameters, history and key give the
// same token on every machine, in any grouping of requests. Exponentials and logarithms are our own
// (exact_math.hpp).

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace diffuse {

struct SamplingParams {
  double temperature = 0;  // 0: greedy; the highest logit, the lowest id among equals
  std::int64_t top_k = 0;  // 0: off
  double top_p = 1;        // 1: off
  double min_p = 0;        // 0: off; tokens less likely than min_p x the likeliest are left out
  double repetition_penalty =
      1;                       // 1: off; divides positive and multiplies negative logits of the history's ids
  std::int32_t logprobs = -1;  // -1: none; 0: the chosen token's; k: also those of the k likeliest
};

// What the random number depends on, and nothing else does.
struct SampleKey {
  std::uint64_t seed = 0;
  std::uint64_t request = 0;   // the request's index in the job
  std::uint32_t sample = 0;    // of the request's n samples
  std::uint32_t position = 0;  // index of the token to be chosen, the prompt's tokens counted
};

struct TokenLogprob {
  std::int32_t id = -1;
  float logprob = 0;
};

// Of a SampledToken: the rules leave no token to choose.
inline constexpr std::int32_t kNothingLeft = -2;

struct SampledToken {
  std::int32_t id = -1;
  float logprob = 0;  // where asked for; of the model's own distribution (no temperature, no penalty)
  std::vector<TokenLogprob>
      top;  // the k likeliest of the same distribution, likeliest first, lowest id first
};

// Buffers that grow once and are used again; holds no state that a result depends on. One a thread.
struct SamplingScratch {
  std::vector<std::pair<float, std::int32_t>> candidates;
  std::vector<float> logits;
  std::vector<double> weights;
};

// The arg-max: one pass. Throws internal where a logit is NaN or +infinity, or all are -infinity.
std::int32_t greedy_token(std::span<const float> logits);

// Chooses a token. `history` holds the prompt's and the generated ids (read only with a repetition penalty;
// ids outside the row are ignored). Order of the steps: penalty, temperature, top_k, top_p, min_p. Parameters
// must be in range (parse_generate sees to that). Throws internal as above: a broken row never becomes a
// token.
SampledToken sample_token(std::span<const float> logits, const SamplingParams& params,
                          std::span<const std::int32_t> history, const SampleKey& key,
                          SamplingScratch& scratch);

// Makes ids that came before less likely: divides their logits where they are positive, multiplies where they
// are not, each id once. Ids outside the row are ignored.
void penalize_repeats(std::span<float> logits, std::span<const std::int32_t> history, double penalty);

// Log-probability of one id under softmax(logits), and of the `count` likeliest.
float token_logprob(std::span<const float> logits, std::int32_t id);
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, std::int32_t count,
                                       SamplingScratch& scratch);

// logits -> their log-probabilities under softmax(logits), in place; and the `count` highest of a row of
// them.
void make_logprobs(std::span<float> logits);
std::vector<TokenLogprob> highest_logprobs(std::span<const float> logprobs, std::int32_t count,
                                           SamplingScratch& scratch);

// Uniform in [0, 1) with 53 bits: Philox4x32-10, counter (position, sample, request), key = seed.
double uniform_of(const SampleKey& key);

}  // namespace diffuse

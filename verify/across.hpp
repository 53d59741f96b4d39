#pragma once
// Two results of one job from two kinds of device. Their bits differ, so what is compared is what the model
// says: the log-probabilities, within the table's end-to-end row, and the tokens, for as long as both runs
// have chosen the same. Where they part, the two choices must have been close in both: not further apart than
// twice the tolerance. What follows such a close call answers another context, and is not compared.
//
// Of pictures it is their pixels: the mean difference of a sample's colours, within the row for frames; of
// latents their elements, in parts of the sample's largest, within the row for latents.
//
// How close two tokens were is known from the best log-probabilities of the results (`logprobs` of a request;
// `verify --against` asks for them). Tokens that part without them count as a difference.

#include <cstdint>
#include <string>
#include <vector>

#include "job/result.hpp"
#include "verify/difference.hpp"

namespace diffuse {

// What was found beside the differences.
struct Across {
  std::string whole;           // the device: "cpu, avx512"
  std::string split;           // "cuda, sm_90 NVIDIA H200, cuBLASLt 13.0.2"
  std::string compute;         // the mode of both
  double allowed = 0;          // nats
  double largest = 0;          // of the differences that were seen between two log-probabilities
  std::uint64_t logprobs = 0;  // that were held against each other
  std::uint64_t tokens = 0;    // equal ones
  std::uint64_t close = 0;     // samples that part at a close call
  double allowed_frame = 0;    // 1/255 of a colour's range, in the mean over a sample
  double mean_colour = 0;      // the largest of the samples' mean differences
  double largest_colour = 0;   // of the differences between two colours
  std::uint64_t colours = 0;   // that were held against each other, three a pixel
  double allowed_latent = 0;   // of the largest element of a sample's latent
  double largest_latent = 0;   // of the differences that were seen
  std::uint64_t latents = 0;   // elements that were held against each other

  // All that was; without any of it, nothing is known.
  std::uint64_t held() const { return logprobs + tokens + close + colours + latents; }

  bool operator==(const Across&) const = default;
};

// The differences of one sample, in the order of their positions; adds to `across`, whose `allowed...`
// count.
// Log-probabilities must have the sizes that they state.
std::vector<Difference> compare_across(const std::string& request, std::int64_t sample, const Sample& whole,
                                       const Sample& split, Across& across);

// "device A against device B in f32: 12 tokens equal, …". Without a full stop.
std::string sentence(const Across& across);

Json to_json(const Across& across);
Across across_from_json(const Json& value, const std::string& where);  // throws bad data, as `where`

}  // namespace diffuse

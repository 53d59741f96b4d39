#pragma once
// Results made of a seed, and single mutations of them whose one difference is known beforehand: the test of
// the comparer itself.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "job/result.hpp"
#include "verify/compare.hpp"

namespace diffuse::synthetic {

// Random numbers that are the same on every machine.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits();                                         // 64 of them
  std::uint64_t below(std::uint64_t limit);                     // limit >= 1
  std::int64_t between(std::int64_t least, std::int64_t most);  // both included

 private:
  std::uint64_t state_;
};

// 3 to 7 requests, of which the second is bad; the others have 1 to 3 traced samples with log-probabilities
// (NaNs and both zeros among them) and text of characters of 1 to 4 bytes. The same seed gives equal results.
Result make_result(std::uint64_t seed);

// How much a comparison of the result with itself compares.
Counts size_of(const Result& result);

enum class Mutation {
  digest_bit,
  token,
  token_lost,
  token_added,
  text_character,
  text_cut,
  text_longer,
  finish,
  logprob_bit,
  logprob_lost,
  top_id,
  top_value_bit,
  top_dropped,
  trace_dropped,
  trace_cut,
  sample_added,
  sample_lost,
  status,
  message,
  seed,
  prompt_tokens,
  sha256,
  transcript_lost,
  transcript_duration,
  segment_lost,
  segment_time,
  segment_token,
  segment_figure,
  word_time,
  requests_swapped,
  request_moved,
  request_lost,
  request_added,
};
std::vector<Mutation> all_mutations();
std::string name_of(Mutation mutation);

struct Mutated {
  Result result;
  Difference expected;  // what compare(original, result) must find, and nothing else; values left empty where
                        // only the place is foretold
};
Mutated mutate(const Result& original, Mutation mutation, std::uint64_t seed);

}  // namespace diffuse::synthetic

#pragma once
// Choosing a window's tokens by beams or by the best of several samples: pure bookkeeping over rows of logits
// that the rules were applied to. Behaviour: openai-whisper's BeamSearchDecoder and ranking.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "text/sampling.hpp"

namespace diffuse {

struct ScoredTokens {
  std::vector<std::int32_t> tokens;  // without the end
  double logprob = 0;                // sum over them and the end
  bool operator==(const ScoredTokens&) const = default;
};

// The index of the best: log-probability over the number of tokens, or over ((5 + n) / 6) ^ penalty; of
// equals the first. `candidates` is not empty.
std::size_t best_of(std::span<const ScoredTokens> candidates, std::optional<double> length_penalty);

class BeamSearch {
 public:
  // `beams` >= 1; the search ends when round(beams * patience) sequences are finished.
  BeamSearch(std::int64_t beams, double patience, std::int32_t end);

  // How many rows of logits the next step takes: 1 at first (all beams are one then), `beams` later.
  std::size_t rows() const { return live_.size(); }
  const std::vector<ScoredTokens>& live() const { return live_; }

  // A step. `likeliest`: of each of the rows() rows at least `beams` + 1 tokens, likeliest first, among those
  // that the rules leave; an id of -1 or a log-probability of minus infinity is no token. Returns for each
  // new row the old row that it goes on from: its keys and values are to be that row's.
  std::vector<std::size_t> advance(std::span<const std::vector<TokenLogprob>> likeliest);
  bool finished() const { return finished_.size() >= most_; }

  // What is finished, filled up with the best of the unfinished where fewer than `beams` are.
  std::vector<ScoredTokens> candidates() const;

 private:
  std::size_t beams_;
  std::size_t most_;
  std::int32_t end_;
  std::vector<ScoredTokens> live_ = {{}};
  std::vector<ScoredTokens> finished_;
};

}  // namespace diffuse

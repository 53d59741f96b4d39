#pragma once
// Beam search for text: pure bookkeeping over the likeliest tokens of each beam's row. Behaviour:
// transformers' generate(num_beams=...), in the same order and in f32, so that the same beams win.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/sampling.hpp"

namespace diffuse {

// When a search is over, beside having no beam left to go on with.
enum class EarlyStopping : std::uint8_t {
  no,     // when the best beam, at the length that it has, is no better than the worst finished one
  yes,    // when as many are finished as there are beams
  never,  // as `no`, but judging by the longest that a beam can become where the penalty favours length
};

struct TextBeamOptions {
  std::int64_t beams = 1;
  double length_penalty = 1;  // a finished score is the sum of log-probabilities over length ^ this
  EarlyStopping early_stopping = EarlyStopping::no;
  std::int64_t max_new_tokens = 1;
  std::vector<std::int32_t> end_ids;  // empty: only the length ends a beam

  // How many of a row's likeliest tokens a step takes: enough to go on where many of them are ends.
  std::int64_t candidates() const;
};

class TextBeams {
 public:
  explicit TextBeams(const TextBeamOptions& options);

  // How many rows the next step takes: 1 at first, `beams` later.
  std::size_t rows() const { return live_.size(); }

  struct Beam {
    std::vector<std::int32_t> tokens;  // generated; an end that ended it is the last
    float score = 0;                   // sum of log-probabilities; of a finished one over its length
  };
  const std::vector<Beam>& live() const { return live_; }

  // A step. `likeliest`: of each row at least candidates() tokens, likeliest first; an id of -1 or a
  // log-probability of minus infinity is no token. Returns for each new beam the row that it goes on from.
  // There are fewer than `beams` only where rules leave too few tokens.
  std::vector<std::size_t> advance(std::span<const std::vector<TokenLogprob>> likeliest);
  bool finished() const { return finished_; }

  // Best first, `beams` at most; of a search that is finished at least one.
  const std::vector<Beam>& results() const { return ended_; }

 private:
  struct Step {
    float score;
    std::size_t row;
    std::int32_t id;
    bool ends;
  };
  std::vector<Step> best_steps(std::span<const std::vector<TokenLogprob>> likeliest) const;
  void take_ended(const std::vector<Step>& steps);
  bool can_improve() const;

  TextBeamOptions options_;
  std::vector<Beam> live_ = {{}};
  std::vector<Beam> ended_;
  std::int64_t length_ = 0;  // of the live beams
  bool finished_ = false;
};

}  // namespace diffuse

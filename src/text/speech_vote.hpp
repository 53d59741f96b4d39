#pragma once
// One language from several windows: the first that is sure enough decides, else most windows do. Behaviour:
// faster-whisper's detect_language.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "text/speech_rules.hpp"

namespace diffuse {

class LanguageVote {
 public:
  // At most so many windows are asked; one whose probability lies above `threshold` ends the vote.
  LanguageVote(std::int64_t windows, double threshold)
      : most_(static_cast<std::size_t>(windows)), threshold_(threshold) {}

  // True: no more are to be asked.
  bool add(const LanguageGuess& guess) {
    guesses_.push_back({.id = guess.id, .probability = guess.probability, .all = {}});
    sure_ = guess.probability > threshold_;
    return sure_ || guesses_.size() >= most_;
  }
  std::size_t asked() const { return guesses_.size(); }

  // Of what most windows said, of equals the one that came first, with the highest of its probabilities. At
  // least one window was asked.
  LanguageGuess result() const {
    if (sure_) return guesses_.back();
    LanguageGuess best;
    std::ptrdiff_t most = 0;
    for (const auto& guess : guesses_) {
      const auto votes = std::ranges::count(guesses_, guess.id, &LanguageGuess::id);
      if (votes > most) best = guess;
      most = std::max(most, votes);
      if (best.id == guess.id) best.probability = std::max(best.probability, guess.probability);
    }
    return best;
  }

 private:
  std::size_t most_;
  double threshold_;
  bool sure_ = false;
  std::vector<LanguageGuess> guesses_;
};

}  // namespace diffuse

#include "text/speech_beams.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/exact_math.hpp"

namespace diffuse {
namespace {

struct Step {
  double logprob;
  std::size_t row;
  std::int32_t id;
};

}  // namespace

std::size_t best_of(std::span<const ScoredTokens> candidates, std::optional<double> length_penalty) {
  std::size_t best = 0;
  double highest = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const auto length = static_cast<double>(candidates[i].tokens.size());
    const double divisor = length_penalty ? exact::pow((5 + length) / 6, *length_penalty) : length;
    // An empty sequence beside others: it has no mean, and is never the best unless it is alone.
    const double score = divisor > 0 ? candidates[i].logprob / divisor : -std::numeric_limits<double>::max();
    if (score > highest) {
      highest = score;
      best = i;
    }
  }
  return best;
}

BeamSearch::BeamSearch(std::int64_t beams, double patience, std::int32_t end)
    : beams_(static_cast<std::size_t>(std::max<std::int64_t>(beams, 1))),
      most_(static_cast<std::size_t>(
          std::max<long long>(std::llround(static_cast<double>(beams_) * patience), 1))),
      end_(end) {}

std::vector<std::size_t> BeamSearch::advance(std::span<const std::vector<TokenLogprob>> likeliest) {
  if (live_.empty() || likeliest.size() != live_.size())
    throw_internal("a step of the beam search got another number of rows than it has beams");
  std::vector<Step> steps;
  for (std::size_t row = 0; row < live_.size(); ++row) {
    for (const auto& token : likeliest[row]) {
      if (token.id < 0 || std::isinf(token.logprob)) continue;
      steps.push_back({live_[row].logprob + static_cast<double>(token.logprob), row, token.id});
    }
  }
  std::ranges::stable_sort(steps, [](const Step& a, const Step& b) { return a.logprob > b.logprob; });

  std::vector<ScoredTokens> next;
  std::vector<std::size_t> sources;
  for (const auto& step : steps) {
    ScoredTokens grown = live_[step.row];
    grown.logprob = step.logprob;
    if (step.id == end_) {
      if (finished_.size() < most_) finished_.push_back(std::move(grown));
      continue;
    }
    grown.tokens.push_back(step.id);
    next.push_back(std::move(grown));
    sources.push_back(step.row);
    if (next.size() == beams_) break;
  }
  // Where the rules leave nothing at all, what was said until then is all there is.
  if (next.empty() && finished_.empty()) finished_ = std::move(live_);
  live_ = std::move(next);
  // Where the rules leave the end alone, all beams are done.
  if (live_.empty()) most_ = finished_.size();
  return sources;
}

std::vector<ScoredTokens> BeamSearch::candidates() const {
  auto all = finished_;
  auto rest = live_;
  std::ranges::stable_sort(rest, [](const auto& a, const auto& b) { return a.logprob > b.logprob; });
  for (auto& unfinished : rest) {
    if (all.size() >= beams_) break;
    all.push_back(std::move(unfinished));
  }
  return all;
}

}  // namespace diffuse

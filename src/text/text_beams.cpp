#include "text/text_beams.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "core/exact_math.hpp"

namespace diffuse {
namespace {

float over_length(float score, std::int64_t length, double penalty) {
  return score / static_cast<float>(exact::pow(static_cast<double>(length), penalty));
}

}  // namespace

std::int64_t TextBeamOptions::candidates() const {
  return std::max<std::int64_t>(2, 1 + static_cast<std::int64_t>(end_ids.size())) * beams;
}

TextBeams::TextBeams(const TextBeamOptions& options) : options_(options) {}

// The best continuations of all beams together, best first.
std::vector<TextBeams::Step> TextBeams::best_steps(
    std::span<const std::vector<TokenLogprob>> likeliest) const {
  std::vector<Step> steps;
  for (std::size_t row = 0; row < live_.size(); ++row) {
    for (const auto& token : likeliest[row]) {
      if (token.id < 0 || std::isinf(token.logprob)) continue;
      const bool ends = std::ranges::find(options_.end_ids, token.id) != options_.end_ids.end();
      steps.push_back(
          {live_[row].score + token.logprob, row, token.id, ends || length_ + 1 == options_.max_new_tokens});
    }
  }
  std::ranges::stable_sort(steps, [](const Step& a, const Step& b) { return a.score > b.score; });
  const auto most = static_cast<std::size_t>(options_.candidates());
  if (steps.size() > most) steps.resize(most);
  return steps;
}

// Ended continuations compete with the ones before them; only the first `beams` of a step may end.
void TextBeams::take_ended(const std::vector<Step>& steps) {
  const auto beams = static_cast<std::size_t>(options_.beams);
  if (options_.early_stopping == EarlyStopping::yes && ended_.size() == beams) return;
  for (std::size_t i = 0; i < std::min(beams, steps.size()); ++i) {
    if (!steps[i].ends) continue;
    Beam beam = live_[steps[i].row];
    beam.tokens.push_back(steps[i].id);
    beam.score = over_length(steps[i].score, length_ + 1, options_.length_penalty);
    ended_.push_back(std::move(beam));
  }
  std::ranges::stable_sort(ended_, [](const Beam& a, const Beam& b) { return a.score > b.score; });
  if (ended_.size() > beams) ended_.resize(beams);
}

bool TextBeams::can_improve() const {
  const auto beams = static_cast<std::size_t>(options_.beams);
  if (ended_.size() < beams) return true;
  if (options_.early_stopping == EarlyStopping::yes) return false;
  const bool longest = options_.early_stopping == EarlyStopping::never && options_.length_penalty > 0;
  const auto length = longest ? options_.max_new_tokens : length_;
  return over_length(live_.front().score, length, options_.length_penalty) > ended_.back().score;
}

std::vector<std::size_t> TextBeams::advance(std::span<const std::vector<TokenLogprob>> likeliest) {
  if (finished_ || likeliest.size() != live_.size())
    throw_internal("a step of the beam search got another number of rows than it has beams");
  const auto steps = best_steps(likeliest);
  take_ended(steps);
  std::vector<Beam> next;
  std::vector<std::size_t> sources;
  for (const auto& step : steps) {
    if (step.ends || next.size() == static_cast<std::size_t>(options_.beams)) continue;
    Beam beam = live_[step.row];
    beam.tokens.push_back(step.id);
    beam.score = step.score;
    next.push_back(std::move(beam));
    sources.push_back(step.row);
  }
  // Rules may leave no beam a token: what they have said is their end.
  if (steps.empty() && ended_.empty()) ended_ = std::exchange(live_, {});
  ++length_;
  live_ = std::move(next);
  finished_ = live_.empty() || !can_improve();
  return sources;
}

}  // namespace diffuse

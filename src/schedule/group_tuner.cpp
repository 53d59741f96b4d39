#include "schedule/group_tuner.hpp"

#include <algorithm>

namespace diffuse {
namespace {

// Rounds of one token a sequence: some for the groups to form, some to measure.
constexpr std::int64_t kFormRounds = 2;
constexpr std::int64_t kMeasureRounds = 4;
constexpr double kShortest = 0.02;  // seconds of a measurement
// Another number must promise this much more, for measurements are noisy.
constexpr double kWorthChanging = 1.03;
// A change of the live sequences by this factor asks for new trials.
constexpr double kMuch = 1.6;

bool much_changed(std::int64_t from, std::int64_t to) {
  const auto low = static_cast<double>(std::min(from, to));
  return low * kMuch < static_cast<double>(std::max(from, to));
}

}  // namespace

void GroupTuner::begin_trial(std::int32_t groups) {
  groups_ = groups;
  passed_ = 0;
  measuring_ = false;
}

void GroupTuner::forget() {
  rates_.clear();
  again_.clear();
}

void GroupTuner::disturbed() {
  if (!settled_) begin_trial(groups_);
}

void GroupTuner::on(const Result& result) {
  if (much_changed(live_, result.live)) {
    forget();
    settled_ = false;
    live_ = result.live;
    begin_trial(std::clamp(groups_, result.least, result.most));
  }
  if (groups_ < result.least || groups_ > result.most) {
    forget();
    begin_trial(std::clamp(groups_, result.least, result.most));
  }
  if (settled_) return;
  passed_ += result.tokens;
  if (!measuring_) {
    if (passed_ < kFormRounds * result.live) return;
    measuring_ = true;
    start_ = result.seconds;
    tokens_ = 0;
    return;
  }
  tokens_ += result.tokens;
  const double elapsed = result.seconds - start_;
  if (tokens_ < kMeasureRounds * result.live || elapsed < kShortest) return;
  conclude(static_cast<double>(tokens_) / elapsed, result);
}

void GroupTuner::conclude(double rate, const Result& result) {
  if (rates_.empty()) best_ = groups_;
  auto& known = rates_[groups_];
  known = std::max(known, rate);  // what disturbs a measurement only ever slows it
  for (const auto& [groups, found] : rates_) {
    if (found <= rates_.at(best_) * kWorthChanging) continue;
    // What is to be left is measured once more: a hiccup must not decide.
    if (again_.insert(best_).second) return begin_trial(best_);
    best_ = groups;
  }
  for (const auto neighbour : {best_ - 1, best_ + 1}) {
    if (neighbour < result.least || neighbour > result.most || rates_.count(neighbour) != 0) continue;
    return begin_trial(neighbour);
  }
  settled_ = true;
  groups_ = best_;
}

}  // namespace diffuse

#include "schedule/refinement_policy.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <variant>

namespace diffuse {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RefinementNeed need_of(std::int64_t steps, std::int32_t branches, std::int32_t patches = 1,
                       std::int64_t whole_first = 0, std::int64_t whole_last = 0) {
  RefinementNeed need;
  need.steps = steps;
  need.branches = branches;
  need.borders = patch_borders(96, 960, patches);
  need.settings = {patches, whole_first, whole_last};
  return need;
}

SimulationConfig stages_of(int stages, double hop = 0) {
  SimulationConfig config;
  config.stages.assign(static_cast<std::size_t>(stages), StageCost{0, 1.0 / 960});  // a whole pass: a second
  config.hop_seconds = hop;
  config.send_buffers = 3;
  config.sizes.carry_row = 400;
  config.sizes.result_step = 8;
  config.sizes.result_sample = 16;
  return config;
}

// Watches from outside, and keeps its own books: every pass once, none before what it depends on.
class Watcher {
 public:
  explicit Watcher(const std::vector<RefinementNeed>& needs) : needs_(needs), done_(needs.size()) {
    for (std::size_t i = 0; i < needs.size(); ++i)
      done_[i].assign(needs[i].borders.size() - 1, needs[i].first_step);
    last_.assign(needs.size(), {-1, 0, 0});
  }

  void on_action(const Action& action, const RefinementPolicy& policy) {
    if (const auto* admit = std::get_if<Admit>(&action)) {
      EXPECT_TRUE(held_.insert(admit->slot).second) << "a slot is given twice";
      EXPECT_LT(admit->slot, policy.slots());
      slot_of_[{admit->sequence, admit->lane}] = admit->slot;
      most_held_ = std::max(most_held_, held_.size());
    }
    if (const auto* release = std::get_if<Release>(&action)) {
      EXPECT_EQ(held_.erase(release->slot), 1U);
      EXPECT_EQ(open_[release->sequence], 0);
    }
    if (const auto* run = std::get_if<diffuse::Run>(&action))
      on_run(run->step, policy.pass(run->step.number));
  }

  void on_result(const StepDone& done) {
    const auto pass = flights_.at(done.number);
    flights_.erase(done.number);
    --open_[pass.request];
    if (!pass.joins) return;
    auto& steps = done_[pass.request];
    for (std::size_t patch = 0; patch < steps.size(); ++patch)
      if (pass.whole || patch == static_cast<std::size_t>(pass.patch)) steps[patch] = pass.step + 1;
  }

  void at_end() const {
    EXPECT_THAT(held_, IsEmpty());
    for (std::size_t i = 0; i < needs_.size(); ++i)
      EXPECT_THAT(done_[i], testing::Each(needs_[i].steps)) << "request " << i;
  }
  std::size_t most_held() const { return most_held_; }

 private:
  void on_run(const Descriptor& step, const ScheduledPass& pass) {
    const auto& need = needs_[pass.request];
    const auto& entry = step.entry[0];
    EXPECT_EQ(step.entries, 1);
    EXPECT_EQ(entry.slot, (slot_of_[{pass.request, pass.branch}]));
    EXPECT_EQ(pass.whole, need.whole(pass.step));
    const auto patch = static_cast<std::size_t>(pass.patch);
    EXPECT_EQ(entry.first_position, pass.whole ? 0 : need.borders[patch]);
    EXPECT_EQ(entry.first_position + entry.rows, pass.whole ? need.borders.back() : need.borders[patch + 1]);
    EXPECT_EQ(entry.sample, pass.branch == need.branches - 1 ? 1 : 0);
    for (std::size_t other = 0; other < done_[pass.request].size(); ++other)
      if (pass.whole || other == patch) {
        EXPECT_EQ(done_[pass.request][other], pass.step);
      }
    // In the order of steps, patches and branches.
    const auto at = std::tuple(pass.step, pass.patch, pass.branch);
    EXPECT_LT(last_[pass.request], at);
    last_[pass.request] = at;
    flights_[step.number] = pass;
    ++open_[pass.request];
  }

  const std::vector<RefinementNeed>& needs_;
  std::vector<std::vector<std::int64_t>> done_;
  std::vector<std::tuple<std::int64_t, std::int32_t, std::int32_t>> last_;
  std::map<std::uint64_t, ScheduledPass> flights_;
  std::map<std::size_t, int> open_;
  std::map<std::pair<std::size_t, std::int32_t>, std::int32_t> slot_of_;
  std::set<std::int32_t> held_;
  std::size_t most_held_ = 0;
};

struct Watched {
  SimulationReport report;
  std::size_t most_held = 0;
};

Watched watch(const SimulationConfig& simulation, std::vector<RefinementNeed> needs,
              std::int64_t pages = 1000) {
  RefinementPolicy policy({static_cast<int>(simulation.stages.size()), pages}, needs);
  Watcher watcher(needs);
  SimulationObserver observer{[&](const Action& action) { watcher.on_action(action, policy); },
                              [&](const StepDone& done) { watcher.on_result(done); }};
  Watched watched;
  watched.report = simulate(
      simulation, bind_policy(policy), [](std::size_t, std::int64_t) { return false; }, observer);
  watcher.at_end();
  watched.most_held = watcher.most_held();
  return watched;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const auto value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

TEST(PatchBorders, LinesStayWholeWhereThereAreEnough) {
  EXPECT_THAT(patch_borders(6, 60, 1), ElementsAre(0, 60));
  EXPECT_THAT(patch_borders(6, 60, 4), ElementsAre(0, 10, 30, 40, 60));
  EXPECT_THAT(patch_borders(6, 60, 6), ElementsAre(0, 10, 20, 30, 40, 50, 60));
}

TEST(PatchBorders, TokensAreCutWhereLinesAreFew) {
  EXPECT_THAT(patch_borders(2, 10, 4), ElementsAre(0, 2, 5, 7, 10));
  EXPECT_THAT(patch_borders(1, 3, 16), ElementsAre(0, 1, 2, 3));
}

TEST(PatchBorders, AsManyAsFillTheStages) {
  EXPECT_EQ(filling_patches(4, 2, 2), 3);
  EXPECT_EQ(filling_patches(2, 2, 2), 2);
  EXPECT_EQ(filling_patches(4, 2, 4), 2);
  EXPECT_EQ(filling_patches(4, 2, 5), 1);
  EXPECT_EQ(filling_patches(1, 1, 7), 1);
}

TEST(RefinementPolicy, EveryMessageHasItsPartnerAndEveryPassItsTurn) {
  std::mt19937 random(7);
  const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<RefinementNeed> needs;
    const int requests = 1 + below(6);
    for (int i = 0; i < requests; ++i) {
      const int steps = 1 + below(7);
      auto need = need_of(steps, 1 + below(3), 1 + below(9), below(4), below(3));
      need.first_step = below(steps);
      need.pages = 1 + below(4);
      needs.push_back(need);
    }
    auto simulation = stages_of(1 + below(5), below(2) * 0.1);
    simulation.trace = below(2) == 1;
    const auto watched = watch(simulation, needs, 4 + below(10));
    EXPECT_THAT(watched.report.problems, IsEmpty()) << "trial " << trial;
  }
}

// R streams fill N stages as R / (N + B - 1) says, and all of them where there are more.
TEST(RefinementPolicy, StreamsKeepTheStagesBusy) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (std::int32_t branches = 1; branches <= 3; ++branches) {
      for (int requests = 1; requests <= 6; ++requests) {
        const std::vector<RefinementNeed> needs(static_cast<std::size_t>(requests), need_of(200, branches));
        const auto watched = watch(stages_of(stages), needs);
        const auto streams = std::min<std::int64_t>(requests * branches, stages + branches - 1);
        // Requests that are more than fill the stages run behind the others, not always in full rounds.
        const bool even = requests * branches <= stages + 2 * branches - 1;
        if (!even) continue;
        EXPECT_GE(mean(watched.report.utilisation), 0.97 * full_share(stages, branches, streams))
            << stages << " stages, " << branches << " branches, " << requests << " requests";
      }
    }
  }
}

TEST(RefinementPolicy, TheSharesThatAreKnown) {
  EXPECT_NEAR(mean(watch(stages_of(2), {need_of(100, 2)}).report.utilisation), 0.67, 0.01);
  EXPECT_NEAR(mean(watch(stages_of(4), {need_of(100, 2), need_of(100, 2)}).report.utilisation), 0.78, 0.03);
  EXPECT_NEAR(mean(watch(stages_of(4), {need_of(200, 2, 3)}).report.utilisation), 0.98, 0.02);
  EXPECT_NEAR(mean(watch(stages_of(4), {need_of(200, 2, 2)}).report.utilisation), 0.78, 0.02);
}

TEST(RefinementPolicy, ManyRequestsInTurnKeepTheStagesFull) {
  const std::vector<RefinementNeed> needs(20, need_of(30, 2));
  const auto watched = watch(stages_of(4), needs);
  EXPECT_GE(mean(watched.report.utilisation), 0.97);
  EXPECT_LE(watched.most_held, 8U);  // those that wait hold no memory
}

TEST(RefinementPolicy, MemoryBoundsWhoIsAdmitted) {
  std::vector<RefinementNeed> needs(4, need_of(5, 2));
  for (auto& need : needs) need.pages = 6;
  EXPECT_EQ(watch(stages_of(4), needs, 13).most_held, 4U);
  EXPECT_EQ(watch(stages_of(4), needs, 6).most_held, 2U);
}

TEST(RefinementPolicy, ARequestBeyondTheBudgetIsUnfit) {
  std::vector<RefinementNeed> needs(3, need_of(2, 1));
  needs[1].pages = 9;
  const RefinementPolicy policy({2, 8}, needs);
  EXPECT_THAT(policy.unfit(), ElementsAre(1));
}

// One pass in flight is reported, nothing starts any more, and all slots are given back.
TEST(RefinementPolicy, AStopLeavesNothingBehind) {
  const std::vector<RefinementNeed> needs(3, need_of(5, 2));
  RefinementPolicy policy({2, 100}, needs);
  std::vector<std::uint64_t> flying;
  std::int64_t held = 0;
  const auto take = [&](const std::vector<Action>& actions) {
    for (const auto& action : actions) {
      if (std::holds_alternative<Admit>(action)) ++held;
      if (std::holds_alternative<Release>(action)) --held;
      if (const auto* run = std::get_if<diffuse::Run>(&action)) flying.push_back(run->step.number);
    }
  };
  take(policy.next());
  take(policy.next());
  ASSERT_EQ(flying.size(), 2U);
  policy.cancel_running();
  take(policy.next());
  EXPECT_EQ(flying.size(), 2U);
  policy.on(StepDone{flying[0], {}, 0});
  take(policy.next());
  EXPECT_FALSE(policy.finished());
  const std::uint8_t no = 0;
  policy.on(StepDone{flying[1], std::span(&no, 1), 0});
  take(policy.next());
  EXPECT_TRUE(policy.finished());
  EXPECT_EQ(held, 0);
}

TEST(RefinementPolicy, ARequestThatEndsEarlyMakesRoom) {
  std::vector<RefinementNeed> needs(2, need_of(50, 2));
  for (auto& need : needs) need.pages = 5;
  RefinementPolicy policy({1, 5}, needs);
  const std::uint8_t yes = 1;
  std::size_t last = 0;
  int passes = 0;
  while (!policy.finished()) {
    for (const auto& action : policy.next()) {
      const auto* run = std::get_if<diffuse::Run>(&action);
      if (run == nullptr) continue;
      ++passes;
      const auto pass = policy.pass(run->step.number);
      last = pass.request;
      policy.on(
          StepDone{run->step.number, pass.joins ? std::span(&yes, 1) : std::span<const std::uint8_t>(), 0});
    }
  }
  EXPECT_EQ(last, 1U);
  EXPECT_EQ(passes, 4);
}

}  // namespace
}  // namespace diffuse

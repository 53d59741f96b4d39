// What an error budget allows, of measurements that are made up.

#include "pipeline/error_budget.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace diffuse::test {
namespace {

using Errors = std::function<double(std::int64_t whole)>;

std::int64_t whole_steps(const PatchFlags& flags) {
  return flags.settings.whole_first + flags.settings.whole_last;
}

struct Found {
  std::vector<std::int64_t> measured;
  std::optional<BudgetPoint> chosen;
};

Found found_with(const ErrorBudget& budget, const Errors& errors) {
  Found found;
  std::vector<BudgetPoint> points;
  while (const auto flags = next_to_measure(budget, points)) {
    EXPECT_EQ(flags->settings.patches, budget.patches);
    EXPECT_EQ(flags->of_steps, budget.steps);
    EXPECT_EQ(flags->carry_on, CarryOn::balanced);
    const auto whole = whole_steps(*flags);
    found.measured.push_back(whole);
    points.push_back({*flags, errors(whole)});
    if (points.size() > 20) break;
  }
  found.chosen = choose(budget, points);
  return found;
}

ErrorBudget budget_of(double mean, std::int64_t steps, std::int32_t patches) {
  return {.mean = mean, .margin = 2, .patches = patches, .steps = steps, .whole = whole_steps_to_try(steps)};
}

// Less with more whole steps.
double falling(std::int64_t whole) {
  return 3.0 / static_cast<double>(whole);
}

using Tried = std::vector<std::int64_t>;

TEST(ErrorBudget, WholeStepsRiseAndLeavePatchedOnes) {
  EXPECT_EQ(whole_steps_to_try(50), (std::vector<std::int64_t>{6, 11, 16, 25, 33, 41}));
  EXPECT_EQ(whole_steps_to_try(6), (std::vector<std::int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(whole_steps_to_try(3), (std::vector<std::int64_t>{2}));
  EXPECT_TRUE(whole_steps_to_try(2).empty());
  EXPECT_TRUE(whole_steps_to_try(1).empty());
}

TEST(ErrorBudget, FewerWholeStepsWhileTheyAreGoodEnough) {
  // Twice 3 / 6 is within 1.
  const auto found = found_with(budget_of(1, 50, 3), falling);
  EXPECT_EQ(found.measured, (Tried{11, 6}));
  ASSERT_TRUE(found.chosen);
  EXPECT_EQ(found.chosen->patches.settings, (PatchSettings{3, 6, 0}));
  // Twice 3 / 6 is not within 0.6, and 3 / 11 is.
  EXPECT_EQ(found_with(budget_of(0.6, 50, 3), falling).chosen->patches.settings, (PatchSettings{3, 9, 2}));
}

TEST(ErrorBudget, MoreWholeStepsUntilTheyAre) {
  const auto found = found_with(budget_of(0.3, 50, 3), falling);
  EXPECT_EQ(found.measured, (Tried{11, 16, 25}));
  ASSERT_TRUE(found.chosen);
  EXPECT_EQ(found.chosen->patches.settings, (PatchSettings{3, 20, 5}));
  EXPECT_EQ(found_with(budget_of(0.4, 50, 3), falling).measured, (Tried{11, 16}));
}

TEST(ErrorBudget, NothingIsChosenWhereNothingIsWithin) {
  const auto found = found_with(budget_of(0.001, 20, 3), falling);
  EXPECT_FALSE(found.chosen);
  EXPECT_EQ(found.measured.back(), whole_steps_to_try(20).back());
  EXPECT_FALSE(found_with(budget_of(1, 2, 3), falling).chosen);
  EXPECT_FALSE(choose(budget_of(1, 20, 3), {}));
}

TEST(ErrorBudget, NoFewerWholeStepsThanPatchesGoOnFrom) {
  const auto found = found_with(budget_of(100, 6, 2), falling);
  EXPECT_EQ(found.measured, (Tried{2}));
  EXPECT_EQ(found.chosen->patches.settings, (PatchSettings{2, 2, 0}));
}

TEST(ErrorBudget, ALargeRequestIsMeasuredSmaller) {
  PreparedPicture request;
  request.grid = {21, 30, 52};
  request.samples = 3;
  request.output = {.frames = false, .latent = true};
  request.latent = {1, 2};
  const auto small = smaller_request(request, 2048);
  EXPECT_EQ(small.grid.tokens(), 10 * 15 * 13);
  EXPECT_EQ(small.samples, 1);
  EXPECT_TRUE(small.output.frames);
  EXPECT_TRUE(small.latent.empty());
  const auto same = smaller_request(request, 1 << 20);
  EXPECT_EQ(same.grid.tokens(), request.grid.tokens());
  EXPECT_EQ(same.latent, request.latent);
}

TEST(ErrorBudget, AnotherNumberOfStepsHasAsLargeAPartWhole) {
  PatchFlags flags;
  flags.settings = {.patches = 3, .whole_first = 9, .whole_last = 2};
  flags.carry_on = CarryOn::linear;
  flags.of_steps = 50;
  EXPECT_EQ(flags.settings_of(50), (PatchSettings{3, 9, 2}));
  EXPECT_EQ(flags.settings_of(100), (PatchSettings{3, 18, 4}));
  EXPECT_EQ(flags.settings_of(20), (PatchSettings{3, 4, 1}));
  EXPECT_EQ(flags.settings_of(5), (PatchSettings{3, 2, 1}));
}

TEST(PatchFlags, OfFortyStepsAFifthOfTheWholeOnesIsAtTheEnd) {
  PatchFlags flags;
  flags.settings.patches = 16;
  flags.carry_on = CarryOn::balanced;
  flags.whole_share = true;
  EXPECT_EQ(flags.settings_of(50), (PatchSettings{16, 9, 3}));
  EXPECT_EQ(flags.settings_of(40), (PatchSettings{16, 7, 3}));
  EXPECT_EQ(flags.settings_of(39), (PatchSettings{16, 8, 0}));
  EXPECT_EQ(flags.settings_of(20), (PatchSettings{16, 5, 0}));
  EXPECT_EQ(flags.settings_of(6), (PatchSettings{16, 2, 0}));
  EXPECT_EQ(flags.settings_of(2), (PatchSettings{16, 2, 0}));
  flags.settings.patches = 6;
  EXPECT_EQ(flags.settings_of(50), (PatchSettings{6, 9, 3}));
  flags.settings.patches = 5;
  EXPECT_EQ(flags.settings_of(50), (PatchSettings{5, 9, 2}));
  EXPECT_EQ(flags.settings_of(100), (PatchSettings{5, 17, 4}));
  EXPECT_EQ(flags.settings_of(20), (PatchSettings{5, 5, 0}));
  flags.carry_on = CarryOn::off;
  EXPECT_EQ(flags.settings_of(2), (PatchSettings{5, 1, 0}));
  flags.whole_share = false;
  flags.settings = {5, 3, 4};
  EXPECT_EQ(flags.settings_of(50), flags.settings);
}

}  // namespace
}  // namespace diffuse::test

// The weights by which keys and values are carried on: a line through earlier steps, and what is taken back.

#include "pipeline/carry_on.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace diffuse::test {
namespace {

Scheduler twenty_steps() {
  return make_scheduler({{"_class_name", "UniPCMultistepScheduler"},
                         {"prediction_type", "flow_prediction"},
                         {"use_flow_sigmas", true},
                         {"flow_shift", 3.0}},
                        20);
}

TEST(CarryOn, MeetsWhatGoesEvenlyWithThePlace) {
  const auto scheduler = twenty_steps();
  const auto line = [&](std::size_t step) { return 3 - 2 * place_of(scheduler, step); };
  for (const auto kind : {CarryOn::linear, CarryOn::balanced}) {
    for (std::size_t step = 2; step < scheduler.steps(); ++step) {
      const auto weights = carry_weights(kind, scheduler, step, 3);
      const double carried = line(step - 1) + weights.extrapolation * (line(step - 1) - line(step - 2));
      EXPECT_NEAR(carried, line(step), 1e-5) << step;
    }
  }
}

// Of what goes on bending, a line is off to one side at each step. Where a part of the sum is taken back, the
// sum of what predictions are off by stays at what one step adds, divided by the part.
TEST(CarryOn, BalancedKeepsTheSumOfWhatIsOffSmall) {
  const auto scheduler = twenty_steps();
  const auto square = [&](std::size_t step) { return std::pow(place_of(scheduler, step) + 4, 2); };
  double most = 0;  // of what a step adds, divided by the part
  const auto sum_of = [&](CarryOn kind) {
    double sum = 0;
    for (std::size_t step = 5; step < scheduler.steps(); ++step) {
      const auto weights = carry_weights(kind, scheduler, step, 3);
      const double line = square(step - 1) + weights.extrapolation * (square(step - 1) - square(step - 2));
      if (weights.balance > 0) most = std::max(most, std::abs(square(step) - line) / weights.balance);
      sum += square(step) - (line + weights.balance * sum);
    }
    return std::abs(sum);
  };
  const double alone = sum_of(CarryOn::linear);
  const double balanced = sum_of(CarryOn::balanced);
  EXPECT_LE(balanced, most);
  EXPECT_LT(balanced, 0.7 * alone);
}

TEST(CarryOn, LessIsTakenBackInLongAndShortRunsAndOfManyPatches) {
  const auto scheduler = twenty_steps();
  double last = 1;
  for (const std::int32_t patches : {3, 8, 16, 100}) {
    const auto part = carry_weights(CarryOn::balanced, scheduler, 6, patches).balance;
    EXPECT_GT(part, 0) << patches;
    EXPECT_LT(part, last) << patches;
    last = part;
  }
  const auto part_in = [](int steps) {
    const auto other = make_scheduler({{"_class_name", "UniPCMultistepScheduler"},
                                       {"prediction_type", "flow_prediction"},
                                       {"use_flow_sigmas", true},
                                       {"flow_shift", 3.0}},
                                      steps);
    return carry_weights(CarryOn::balanced, other, 3, 3).balance;
  };
  EXPECT_FLOAT_EQ(part_in(20), 0.5F);
  EXPECT_FLOAT_EQ(part_in(50), 0.2F);
  EXPECT_FLOAT_EQ(part_in(100), 0.1F);
  EXPECT_FLOAT_EQ(part_in(6), 0.045F);
}

TEST(CarryOn, OffTakesTheStepBefore) {
  const auto weights = carry_weights(CarryOn::off, twenty_steps(), 1, 3);
  EXPECT_EQ(weights.extrapolation, 0);
  EXPECT_EQ(weights.balance, 0);
}

TEST(CarryOn, NeedsTheStepsThatItReads) {
  const auto scheduler = twenty_steps();
  EXPECT_THROW(carry_weights(CarryOn::linear, scheduler, 1, 3), Error);
  EXPECT_THROW(carry_weights(CarryOn::balanced, scheduler, 1, 3), Error);
  EXPECT_NO_THROW(carry_weights(CarryOn::balanced, scheduler, 2, 3));
  EXPECT_EQ(steps_before(CarryOn::off), 0);
  EXPECT_EQ(steps_before(CarryOn::linear), 1);
  EXPECT_EQ(steps_before(CarryOn::balanced), 1);
  EXPECT_EQ(history_of(CarryOn::off), 0);
  EXPECT_EQ(history_of(CarryOn::linear), 1);
  EXPECT_EQ(history_of(CarryOn::balanced), 2);
}

TEST(CarryOn, HasNames) {
  for (const auto kind : {CarryOn::off, CarryOn::linear, CarryOn::balanced})
    EXPECT_EQ(carry_on_of(name_of(kind)), kind);
  EXPECT_THROW(carry_on_of("cubic"), Error);
}

}  // namespace
}  // namespace diffuse::test

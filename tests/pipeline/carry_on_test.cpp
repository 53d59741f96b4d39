// The weights by which keys and values are carried on: a line and a parabola through earlier steps.

#include "pipeline/carry_on.hpp"

#include <gtest/gtest.h>

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

// What the executor makes of values at the last steps, the newest first.
double carried(const CarryWeights& by, double a, double b, double c) {
  return a + by.extrapolation * (a - (b + by.bend * (b - c)));
}

TEST(CarryOn, MeetsWhatGoesEvenlyWithThePlace) {
  const auto scheduler = twenty_steps();
  const auto line = [&](std::size_t step) { return 3 - 2 * place_of(scheduler, step); };
  for (const auto kind : {CarryOn::linear, CarryOn::curved}) {
    for (std::size_t step = 3; step < scheduler.steps(); ++step) {
      const auto weights = carry_weights(kind, scheduler, step);
      EXPECT_NEAR(carried(weights, line(step - 1), line(step - 2), line(step - 3)), line(step), 1e-5) << step;
    }
  }
}

TEST(CarryOn, CurvedGoesAPartOfTheWayToAParabola) {
  const auto scheduler = twenty_steps();
  const auto square = [&](std::size_t step) {
    const double at = place_of(scheduler, step);
    return at * at;
  };
  for (std::size_t step = 3; step < scheduler.steps(); ++step) {
    const auto from = [&](CarryOn kind) {
      return carried(carry_weights(kind, scheduler, step), square(step - 1), square(step - 2),
                     square(step - 3));
    };
    const double line = from(CarryOn::linear);
    EXPECT_NEAR((from(CarryOn::curved) - line) / (square(step) - line), 0.4, 1e-4) << step;
  }
}

TEST(CarryOn, OffTakesTheStepBefore) {
  const auto weights = carry_weights(CarryOn::off, twenty_steps(), 1);
  EXPECT_EQ(weights.extrapolation, 0);
  EXPECT_EQ(weights.bend, 0);
}

TEST(CarryOn, NeedsTheStepsThatItReads) {
  const auto scheduler = twenty_steps();
  EXPECT_THROW(carry_weights(CarryOn::linear, scheduler, 1), Error);
  EXPECT_THROW(carry_weights(CarryOn::curved, scheduler, 2), Error);
  EXPECT_NO_THROW(carry_weights(CarryOn::linear, scheduler, 2));
  EXPECT_EQ(history_of(CarryOn::off), 0);
  EXPECT_EQ(history_of(CarryOn::linear), 1);
  EXPECT_EQ(history_of(CarryOn::curved), 2);
}

TEST(CarryOn, HasNames) {
  for (const auto kind : {CarryOn::off, CarryOn::linear, CarryOn::curved})
    EXPECT_EQ(carry_on_of(name_of(kind)), kind);
  EXPECT_THROW(carry_on_of("cubic"), Error);
}

}  // namespace
}  // namespace diffuse::test

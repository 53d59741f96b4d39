#pragma once
// By which weights the keys and values of patches that a step has not reached are carried on from the steps
// before: see RefinementPass. Steps lie on a line, and differences are divided by their distances there
// (Newton's form of the interpolation through two of them).
//
// What predictions are off by moves the picture at each step by a little. What goes up and down averages out,
// and what stays on one side adds up; so a part of the sum of all that they were off by is taken back at each
// step, as a controller with an integral does. The sum then falls to nothing by itself.
//
// Pure: step numbers and the scheduler alone decide, so a run that was stopped goes on with the same weights.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sampler/scheduler.hpp"

namespace diffuse {

enum class CarryOn : std::uint8_t {
  off,       // what the step before left
  linear,    // along the line through the two steps before
  balanced,  // and a part of what all predictions were off by is taken back
};

std::string_view name_of(CarryOn kind);
CarryOn carry_on_of(std::string_view name);  // throws usage

// Steps before the last one whose keys and values it reads.
int steps_before(CarryOn kind);
// What it keeps of each slot beside the keys and values of the last step: see RefinementLimits.
int history_of(CarryOn kind);

// Where a step lies: asinh(log(signal to noise)), along which what a stack keeps of a picture changes more
// evenly than from step to step, along sigma, or along the logarithm itself.
double place_of(const Scheduler& scheduler, std::size_t step);

struct CarryWeights {
  float extrapolation = 0;
  float balance = 0;
};
// For step `step`, which has more steps before it than steps_before(kind), else throws internal, of a picture
// in so many patches.
CarryWeights carry_weights(CarryOn kind, const Scheduler& scheduler, std::size_t step, std::int32_t patches);

}  // namespace diffuse

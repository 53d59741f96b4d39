#pragma once
// By which weights the keys and values of patches that a step has not reached are carried on from the steps
// before: see RefinementPass. Steps lie on a line, and differences are divided by their distances there
// (Newton's form of the interpolation through two or three of them).
//
// Pure: step numbers and the scheduler alone decide, so a run that was stopped goes on with the same weights.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sampler/scheduler.hpp"

namespace diffuse {

enum class CarryOn : std::uint8_t {
  off,     // what the step before left
  linear,  // along the line through the two steps before
  curved,  // and a part of the way from there to the parabola through three of them
};

std::string_view name_of(CarryOn kind);
CarryOn carry_on_of(std::string_view name);  // throws usage

// Steps before the last one whose keys and values it reads.
int history_of(CarryOn kind);

// Where a step lies: asinh(log(signal to noise)), along which what a stack keeps of a picture changes more
// evenly than from step to step, along sigma, or along the logarithm itself.
double place_of(const Scheduler& scheduler, std::size_t step);

struct CarryWeights {
  float extrapolation = 0;
  float bend = 0;
};
// For step `step`, which has more steps before it than history_of(kind), else throws internal.
CarryWeights carry_weights(CarryOn kind, const Scheduler& scheduler, std::size_t step);

}  // namespace diffuse

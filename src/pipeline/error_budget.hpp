#pragma once
// Which patches an error budget allows: what to measure next, and what to take of what was measured. Pure:
// the same measurements give the same answer.
//
// Patches are as many as fill the places that streams leave empty; more change pictures more and speed
// nothing up. What is left to choose is how many steps are whole; they lie, and keys and values are carried
// on, as they do by default.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/picture_request.hpp"

namespace diffuse {

struct ErrorBudget {
  double mean = 0;           // allowed, in 1/255
  double margin = 1;         // a measured error counts so many times: other pictures may be off by more
  std::int32_t patches = 2;  // that fill the stages
  std::int64_t steps = 1;    // of the pictures that are measured
  // How many steps may be whole, ascending.
  std::vector<std::int64_t> whole;
};

// For so many steps: from a tenth of them to five sixths, each enough to carry on from.
std::vector<std::int64_t> whole_steps_to_try(std::int64_t steps);

// The patches of a budget with so many steps whole.
PatchFlags flags_of(const ErrorBudget& budget, std::int64_t whole);

struct BudgetPoint {
  PatchFlags patches;
  double mean = 0;  // measured, in 1/255; infinite where the picture was spoiled
};

// What to measure next, or nothing: a fifth of the steps and one more whole, as by default; then fewer whole
// steps while they are good enough, or more until they are.
std::optional<PatchFlags> next_to_measure(const ErrorBudget& budget, std::span<const BudgetPoint> measured);

// The fewest whole steps that are within the budget; nothing where none are.
std::optional<BudgetPoint> choose(const ErrorBudget& budget, std::span<const BudgetPoint> measured);

// What is measured in the place of a request: the same in everything but its size, which is halved along its
// longest axis until it has at most `tokens`. One sample, shown, from noise of its seed unless it stays as it
// is.
PreparedPicture smaller_request(const PreparedPicture& request, std::int64_t tokens);

// How much sooner stages of so many layers end a job than one rank that runs every picture whole, by the
// schedule's own policy: passes last as long as their rows and layers, hops nothing. `pages`: the budget.
double simulated_speed_up(std::span<const std::int64_t> layers, const std::vector<PreparedPicture>& requests,
                          const PatchFlags& patches, std::int64_t pages);

}  // namespace diffuse

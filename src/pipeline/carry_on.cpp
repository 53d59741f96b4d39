#include "pipeline/carry_on.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "core/error.hpp"
#include "core/exact_math.hpp"

namespace diffuse {
namespace {

// Of what all predictions were off by, the part that is taken back at a step. With up to three patches: what
// a run of ten steps would all take back, so that longer ones forget along the same stretch; below twenty
// steps less and less, for in a few steps little is off to one side. Less with more patches, which read more
// predictions: what is taken back in one of them comes back in the next. docs/refinement.md has what was
// measured.
double balance_of(std::size_t steps, std::int32_t patches) {
  const auto count = static_cast<double>(steps);
  return std::min(10 / count, count * count / 800) * 3 / std::max(3, patches);
}

constexpr std::array kNames = {std::string_view("off"), std::string_view("linear"),
                               std::string_view("balanced")};

}  // namespace

std::string_view name_of(CarryOn kind) {
  return kNames.at(static_cast<std::size_t>(kind));
}

CarryOn carry_on_of(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<CarryOn>(i);
  throw_usage("'" + std::string(name) +
              "' is no way to carry keys and values on; say off, linear or balanced");
}

int steps_before(CarryOn kind) {
  return kind == CarryOn::off ? 0 : 1;
}

int history_of(CarryOn kind) {
  return static_cast<int>(kind);
}

double place_of(const Scheduler& scheduler, std::size_t step) {
  const double level = scheduler.log_signal_to_noise(step);
  const double size = exact::log(std::abs(level) + std::sqrt(level * level + 1));
  return level < 0 ? -size : size;
}

CarryWeights carry_weights(CarryOn kind, const Scheduler& scheduler, std::size_t step, std::int32_t patches) {
  if (kind == CarryOn::off) return {};
  if (step < static_cast<std::size_t>(steps_before(kind)) + 1)
    throw_internal("step " + std::to_string(step) + " is carried on from more steps than it has before it");
  const auto place = [&](std::size_t back) { return place_of(scheduler, step - back); };
  const double ahead = place(0) - place(1);
  const auto weight = static_cast<float>(ahead / (place(1) - place(2)));
  if (kind == CarryOn::linear) return {weight, 0};
  return {weight, static_cast<float>(balance_of(scheduler.steps(), patches))};
}

}  // namespace diffuse

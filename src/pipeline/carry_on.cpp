#include "pipeline/carry_on.hpp"

#include <array>
#include <cmath>
#include <string>

#include "core/error.hpp"
#include "core/exact_math.hpp"

namespace diffuse {
namespace {

// Of the way from the line to the parabola. What patches are off by is carried on too, and more of the way,
// or more patches than about four, lets it grow from step to step; docs/refinement.md has what was measured.
constexpr double kCurved = 0.4;

constexpr std::array kNames = {std::string_view("off"), std::string_view("linear"),
                               std::string_view("curved")};

}  // namespace

std::string_view name_of(CarryOn kind) {
  return kNames.at(static_cast<std::size_t>(kind));
}

CarryOn carry_on_of(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<CarryOn>(i);
  throw_usage("'" + std::string(name) + "' is no way to carry keys and values on; say off, linear or curved");
}

int history_of(CarryOn kind) {
  return static_cast<int>(kind);
}

double place_of(const Scheduler& scheduler, std::size_t step) {
  const double level = scheduler.log_signal_to_noise(step);
  const double size = exact::log(std::abs(level) + std::sqrt(level * level + 1));
  return level < 0 ? -size : size;
}

CarryWeights carry_weights(CarryOn kind, const Scheduler& scheduler, std::size_t step) {
  if (kind == CarryOn::off) return {};
  if (step < static_cast<std::size_t>(history_of(kind)) + 1)
    throw_internal("step " + std::to_string(step) + " is carried on from more steps than it has before it");
  const auto place = [&](std::size_t back) { return place_of(scheduler, step - back); };
  const double ahead = place(0) - place(1);
  const double last = place(1) - place(2);
  if (kind == CarryOn::linear) return {static_cast<float>(ahead / last), 0};
  const double before = place(2) - place(3);
  const double second = kCurved * ahead * (ahead + last) / (last + before);
  const double weight = ahead / last + second / last;
  return {static_cast<float>(weight), static_cast<float>(second / before / weight)};
}

}  // namespace diffuse

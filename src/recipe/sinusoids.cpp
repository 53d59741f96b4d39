#include "recipe/sinusoids.hpp"

#include <string>

#include "core/error.hpp"
#include "core/exact_math.hpp"

namespace diffuse {
namespace {

constexpr double kBase = 10000;

double frequency(std::int64_t index, std::int64_t half, bool single) {
  if (!single) return 1 / exact::pow(kBase, static_cast<double>(index) / static_cast<double>(half));
  const auto step = static_cast<float>(-exact::log(kBase) / static_cast<double>(half - 1));
  return static_cast<float>(exact::exp(static_cast<float>(index) * step));
}

}  // namespace

Sinusoids make_sinusoids(PositionKind kind, std::int64_t hidden, std::int64_t count) {
  const auto half = hidden / 2;
  if (hidden % 2 != 0 || half < 2) {
    throw_refused("cannot run yet: computed positions of " + std::to_string(hidden) +
                  " elements; the number must be even");
  }
  Sinusoids made;
  made.count = count;
  made.single = kind != PositionKind::sinusoids;
  made.cosines_first = kind == PositionKind::sinusoids_cosines;
  for (std::int64_t i = 0; i < half; ++i) made.frequencies.push_back(frequency(i, half, made.single));
  return made;
}

}  // namespace diffuse

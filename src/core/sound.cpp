#include "core/sound.hpp"

#include <algorithm>
#include <cmath>

namespace diffuse {

std::string sound_flaw(std::span<const float> samples, std::int64_t rate) {
  if (rate < kLowestRate || rate > kHighestRate)
    return "a rate of " + std::to_string(rate) + " samples a second, and " + std::to_string(kLowestRate) +
           " to " + std::to_string(kHighestRate) + " can be used";
  if (samples.empty()) return "no samples";
  const auto odd = std::ranges::find_if_not(samples, [](float s) { return std::abs(s) <= kLoudestSample; });
  if (odd == samples.end()) return {};
  const auto number = " (number " + std::to_string(odd - samples.begin()) + ")";
  if (!std::isfinite(*odd))
    return "a sample that is " + std::string(std::isnan(*odd) ? "NaN" : "infinite") + number;
  return "a sample of " + std::to_string(std::llround(std::clamp(*odd, -1e18F, 1e18F))) + number +
         ", and full scale is 1: it looks like integer PCM; divide by 32768 (for 16 bits)";
}

}  // namespace diffuse

#include "core/sound.hpp"

#include <cmath>

namespace diffuse {

std::string sound_flaw(std::span<const float> samples, std::int64_t rate) {
  if (rate < kLowestRate || rate > kHighestRate)
    return "a rate of " + std::to_string(rate) + " samples a second, and " + std::to_string(kLowestRate) +
           " to " + std::to_string(kHighestRate) + " can be used";
  if (samples.empty()) return "no samples";
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (!std::isfinite(samples[i]))
      return "a sample that is " + std::string(std::isnan(samples[i]) ? "NaN" : "infinite") + " (number " +
             std::to_string(i) + ")";
  return {};
}

}  // namespace diffuse

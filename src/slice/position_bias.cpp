#include "slice/position_bias.hpp"

#include <algorithm>

#include "core/exact_math.hpp"

namespace diffuse {

std::int64_t bias_bucket(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance,
                         bool both_sides) {
  std::int64_t first = 0;
  if (both_sides) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = distance < 0 ? -distance : distance;
  } else {
    distance = distance < 0 ? -distance : 0;
  }
  const auto exact_ones = buckets / 2;
  if (distance < exact_ones) return first + distance;
  const auto ratio = static_cast<float>(distance) / static_cast<float>(exact_ones);
  const auto whole = static_cast<double>(max_distance) / static_cast<double>(exact_ones);
  const auto share = static_cast<float>(exact::log(ratio)) / static_cast<float>(exact::log(whole));
  const auto steps = static_cast<std::int64_t>(share * static_cast<float>(buckets - exact_ones));
  return first + std::min(exact_ones + steps, buckets - 1);
}

std::vector<float> bias_by_distance(std::span<const float> table, const PositionBias& bias) {
  const auto heads = bias.table.cols;
  std::vector<float> out;
  for (std::int64_t head = 0; head < heads; ++head) {
    for (auto distance = -bias.max_distance; distance <= bias.max_distance; ++distance) {
      const auto bucket = bias_bucket(distance, bias.table.rows, bias.max_distance, bias.both_sides);
      out.push_back(table[static_cast<std::size_t>(bucket * heads + head)]);
    }
  }
  return out;
}

}  // namespace diffuse

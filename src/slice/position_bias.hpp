#pragma once
// T5's relative position bias, laid out by distance.

#include <cstdint>
#include <span>
#include <vector>

#include "recipe/recipe.hpp"

namespace diffuse {

// The bucket of a key that stands `distance` = key position - query position away: torch's arithmetic in f32,
// so that no distance falls into a neighbour's bucket.
std::int64_t bias_bucket(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance,
                         bool both_sides);

// From the stored table [buckets, heads]: what each head adds at the distances [-max_distance,
// max_distance], [heads, 2 * max_distance + 1]; those further away are as the outermost.
std::vector<float> bias_by_distance(std::span<const float> table, const PositionBias& bias);

}  // namespace diffuse

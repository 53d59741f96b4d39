#pragma once
// Rotary frequencies from a config: rope_parameters (transformers 5), or rope_theta, rope_scaling and
// partial_rotary_factor (transformers 4).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "recipe/config_reader.hpp"
#include "recipe/recipe.hpp"

namespace diffuse {

struct RopeDefaults {
  double theta = 10000;       // where the config states none
  bool partial = false;       // the family rotates only partial_rotary_factor of a head
  double partial_factor = 1;  // where the config states none
};

struct ModelRope {
  RopeSpec spec;
  std::int64_t max_positions = 0;  // what the scaling stretches the context to; 0: it does not say
};

// The rotation of layers of `layer_type` (an entry of layer_types; empty where the config has none).
// head_dim is even, max_positions is max_position_embeddings. Frequencies are computed in f32 in the order of
// transformers' modeling_rope_utils (compute_default_rope_parameters, _compute_linear_scaling_…, _llama3_…,
// _yarn_…), powers and logarithms by core/exact_math.hpp. Throws refused for a scaling that depends on the
// request's length or that this build does not know, bad data for values out of range.
ModelRope make_rope(ConfigReader& config, std::string_view layer_type, std::int64_t head_dim,
                    std::int64_t max_positions, const RopeDefaults& defaults);

}  // namespace diffuse

// The verdict on diffusers configs: a model_index.json with its transformer's config, or the latter alone.
#pragma once

#include <nlohmann/json.hpp>

#include "shape/verdict.hpp"

namespace diffuse {

// Whether the object is diffusers' and not transformers': diffusers names one class, under a key of its own.
bool is_diffusers_config(const nlohmann::json& config);

Verdict judge_diffusers(const nlohmann::json& config, const VerdictInput& input);

}  // namespace diffuse

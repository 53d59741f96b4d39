#pragma once
// The recipe of a stack that refines, from a folder of components as diffusers writes it.

#include <map>
#include <string>

#include "checkpoint/tensor_header.hpp"
#include "core/json.hpp"
#include "recipe/build.hpp"
#include "recipe/recipe.hpp"

namespace diffuse {

// Components that a recipe is made of, by the name of their folder.
inline constexpr const char* kStackComponent = "transformer";
inline constexpr const char* kTextComponent = "text_encoder";
inline constexpr const char* kCodecComponent = "vae";

struct PipelineConfig {
  Json index;                              // model_index.json
  std::map<std::string, Json> components;  // config.json of each
};

// `headers` of these components (the codec's may be left out: then the recipe has none): in front of a
// tensor's name stand its component's and a dot. Schedulers and tokenizers are read elsewhere. Throws as
// build_recipe.
Recipe build_refinement(const PipelineConfig& pipeline, const TensorHeaders& headers,
                        const RecipeOptions& options = {});

}  // namespace diffuse

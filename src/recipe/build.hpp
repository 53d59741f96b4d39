#pragma once
// config.json and the names and shapes in the weights' headers -> Recipe.

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_header.hpp"
#include "core/json.hpp"
#include "recipe/recipe.hpp"

namespace diffuse {

struct RecipeOptions {
  // Config keys that a user vouches for (--accept): they may be left unread. Only keys that this build does
  // not know; one that it knows it cannot run stays refused.
  std::vector<std::string> accept;
};

// Throws refused, with one sentence that names what stands in the way, for a model that this build cannot run
// yet or that has a config key or a tensor left over; bad data where config and tensors contradict each other
// or a value is out of its range.
Recipe build_recipe(const Json& config, const TensorHeaders& headers, const RecipeOptions& options = {});

// The `model_type`s that have a row of stated facts: a checkpoint of one of them needs no Python of its own.
std::vector<std::string_view> known_model_types();

}  // namespace diffuse

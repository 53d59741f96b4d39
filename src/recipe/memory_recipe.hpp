#pragma once
// The recipe of a model whose stack reads an encoder.

#include "recipe/config_reader.hpp"
#include "recipe/facts.hpp"
#include "recipe/recipe.hpp"
#include "recipe/tensor_book.hpp"

namespace diffuse {

// `facts` must have `memory`. Throws as build_recipe does.
void build_memory_recipe(ConfigReader& config, const Facts& facts, TensorBook& book, Recipe& recipe);

}  // namespace diffuse

#pragma once
// The recipe of a model that answers with codes of sound: a decoder that walks several codebooks at once and
// reads a text encoder at every layer, and the codec that turns the codes into samples.

#include "recipe/config_reader.hpp"
#include "recipe/facts.hpp"
#include "recipe/recipe.hpp"
#include "recipe/tensor_book.hpp"

namespace diffuse {

// `facts` must have `memory`, which walks codebooks. Throws as build_recipe does.
void build_codebook_recipe(ConfigReader& config, const Facts& facts, TensorBook& book, Recipe& recipe);

}  // namespace diffuse

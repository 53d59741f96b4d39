#pragma once
// What a recipe's builder refuses at its end: config keys that nobody read, tensors that nobody took.

#include <string>
#include <vector>

#include "recipe/build.hpp"
#include "recipe/config_reader.hpp"
#include "recipe/recipe.hpp"
#include "recipe/tensor_book.hpp"

namespace diffuse {

// "a, b, c and 4 more"
std::string listed(const std::vector<std::string>& items);

// Throws refused where a key or a tensor is left over, with their names. Keys known to be harmless are not
// counted; those that the options accept are noted in the recipe.
void refuse_leftovers(const std::vector<const ConfigReader*>& configs, const TensorBook& book,
                      const RecipeOptions& options, Recipe& recipe);

}  // namespace diffuse

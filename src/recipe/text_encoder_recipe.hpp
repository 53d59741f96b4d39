#pragma once
// The text encoder of a model that has one of its own kind: T5 and its kin, without the decoder that it was
// trained with.

#include <string>
#include <vector>

#include "recipe/config_reader.hpp"
#include "recipe/recipe.hpp"
#include "recipe/tensor_book.hpp"

namespace diffuse {

// `section` is the encoder's own config; its tensors' names start with "text_encoder." Notes are added to.
// Throws refused for an encoder of another kind, and as TensorBook and ConfigReader do.
Encoder build_text_encoder(ConfigReader& section, TensorBook& book, std::vector<std::string>& notes);

}  // namespace diffuse

#pragma once
// A model folder, opened and judged: the verdict, and the recipe where this build can run it.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "recipe/recipe.hpp"
#include "shape/verdict.hpp"

namespace diffuse {

// What `check` says of a folder. Never throws for a model that is merely refused.
struct Examination {
  Verdict verdict;
  bool weights = false;          // headers were at hand
  std::optional<Recipe> recipe;  // where this build can plan it
  std::string missing;           // one sentence: why it cannot; empty where it can or no weights are at hand
};

// `folder` may be a transformers folder (with or without weights), a diffusers folder, or a config.json.
Examination examine(const std::filesystem::path& folder, const std::vector<std::string>& accept);

struct Model {
  std::filesystem::path folder;
  Checkpoint checkpoint;
  Recipe recipe;
  std::string config_hash;
};

// Opens a model to plan it. Throws refused with the sentence that stands in the way.
Model open_model(const std::filesystem::path& folder, LoadMode load, const std::vector<std::string>& accept);

}  // namespace diffuse

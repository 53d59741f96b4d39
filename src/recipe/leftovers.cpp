#include "recipe/leftovers.hpp"

#include <algorithm>
#include <string_view>

#include "checkpoint/shown.hpp"
#include "core/error.hpp"
#include "recipe/known_keys.hpp"

namespace diffuse {

std::string listed(const std::vector<std::string>& items) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(items.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + items[i];
  if (items.size() > kMost) text += " and " + std::to_string(items.size() - kMost) + " more";
  return text;
}

void refuse_leftovers(const std::vector<const ConfigReader*>& configs, const TensorBook& book,
                      const RecipeOptions& options, Recipe& recipe) {
  std::vector<ConfigReader::Leftover> keys;
  for (const auto* config : configs) {
    const auto left = config->leftovers();
    keys.insert(keys.end(), left.begin(), left.end());
  }
  std::vector<std::string> unknown;
  for (const auto& [path, value, foreign] : keys) {
    const auto leaf =
        std::string_view(path).substr(path.rfind('.') == std::string::npos ? 0 : path.rfind('.') + 1);
    if (is_harmless(leaf, *value) || is_harmless(path, *value)) continue;
    if (std::find(options.accept.begin(), options.accept.end(), path) != options.accept.end()) {
      recipe.accepted.push_back(path);
      recipe.notes.push_back("config key " + shown(path) + " = " + shown(*value) +
                             " is not read, as accepted");
      continue;
    }
    unknown.push_back(shown(path) + " = " + shown(*value) +
                      (foreign ? " (another family's name, which this family's class does not read)" : ""));
  }
  std::vector<std::string> tensors;
  for (const auto& name : book.leftovers()) tensors.push_back(shown(name));
  if (unknown.empty() && tensors.empty()) return;
  std::string what;
  if (!unknown.empty()) what += "config.json has keys that this build does not know: " + listed(unknown);
  if (!tensors.empty()) what += (what.empty() ? "" : "; ") + ("no step uses the tensors " + listed(tensors));
  if (tensors.empty()) what += "; name each that changes nothing by --accept KEY";
  throw_refused("cannot run yet: " + what);
}

}  // namespace diffuse

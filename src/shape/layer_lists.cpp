#include "shape/layer_lists.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "shape/config_view.hpp"

namespace diffuse {
namespace {

constexpr std::array<std::string_view, 7> kKindLists = {
    "layer_types", "layers_block_type", "layer_block_types", "layers_block_types",
    "block_types", "mixer_types",       "_block_types"};
constexpr std::string_view kPatternOfLetters = "hybrid_override_pattern";
constexpr char kRecurrentLetter = 'M';

// Lists of the layers that attend; every other layer is recurrent.
constexpr std::array<std::string_view, 4> kAttendingLists = {"attn_layer_indices", "full_attn_idxs",
                                                             "attn_layer_idxs", "full_attention_layers"};
// Lists of the layers that carry state.
constexpr std::array<std::string_view, 4> kRecurrentLists = {
    "hyena_layer_idxs", "kda_layers", "mamba_layer_indices", "linear_attention_layers"};
// Lists of 0 (linear, with state) and 1 (attention).
constexpr std::string_view kFlagList = "attn_type_list";

constexpr std::array<std::string_view, 16> kRecurrentWords = {
    "linear", "mamba", "mamba2", "ssm",   "conv",  "recurrent", "hybrid",    "delta",
    "kda",    "gdn",   "lstm",   "mlstm", "slstm", "rwkv",      "retention", "lightning"};
constexpr std::array<std::string_view, 14> kPlainWords = {
    "attention", "attn", "full", "sliding", "global", "local", "chunked",
    "window",    "mlp",  "moe",  "dense",   "sparse", "ffn",   "lsh"};

enum class EntryKind { plain, recurrent, unknown };

EntryKind kind_of_entry(const nlohmann::json& entry) {
  if (!entry.is_string()) return EntryKind::unknown;
  const std::string& text = entry.get_ref<const std::string&>();
  if (has_word(text, kRecurrentWords)) return EntryKind::recurrent;
  return has_word(text, kPlainWords) ? EntryKind::plain : EntryKind::unknown;
}

const nlohmann::json* filled_list(const nlohmann::json& section, std::string_view key) {
  const nlohmann::json* list = declared(section, key);
  return list != nullptr && list->is_array() && !list->empty() ? list : nullptr;
}

std::optional<ListedState> state_by_kinds(const nlohmann::json& section) {
  for (const std::string_view key : kKindLists) {
    const nlohmann::json* list = filled_list(section, key);
    if (list == nullptr) continue;
    const auto entry = std::ranges::find(*list, EntryKind::recurrent, kind_of_entry);
    if (entry != list->end()) return ListedState{true, std::string(key) + " with " + quoted(*entry)};
    if (std::ranges::find(*list, EntryKind::unknown, kind_of_entry) == list->end())
      return ListedState{false, std::string(key)};
  }
  return std::nullopt;
}

std::optional<ListedState> state_by_flags(const nlohmann::json& section) {
  const nlohmann::json* list = filled_list(section, kFlagList);
  if (list == nullptr) return std::nullopt;
  const bool recurrent = std::ranges::find(*list, nlohmann::json(0)) != list->end();
  return ListedState{recurrent, std::string(kFlagList)};
}

std::optional<ListedState> state_by_letters(const nlohmann::json& section) {
  const std::string pattern = text_of(section, kPatternOfLetters);
  if (pattern.empty()) return std::nullopt;
  return ListedState{pattern.find(kRecurrentLetter) != std::string::npos, std::string(kPatternOfLetters)};
}

std::optional<ListedState> state_by_indices(const nlohmann::json& section, std::optional<int64_t> depth) {
  for (const std::string_view key : kRecurrentLists) {
    if (filled_list(section, key) != nullptr) return ListedState{true, std::string(key)};
  }
  if (!depth) return std::nullopt;
  for (const std::string_view key : kAttendingLists) {
    const nlohmann::json* list = filled_list(section, key);
    if (list == nullptr) continue;
    std::set<int64_t> attending;
    for (const nlohmann::json& entry : *list) {
      const auto layer = count_of(entry, 0);
      if (layer && *layer < *depth) attending.insert(*layer);
    }
    return ListedState{static_cast<int64_t>(attending.size()) < *depth, std::string(key)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<LayerList> listed_layers(const nlohmann::json& section) {
  const std::string pattern = text_of(section, kPatternOfLetters);
  if (!pattern.empty()) return LayerList{kPatternOfLetters, static_cast<int64_t>(pattern.size())};
  for (const std::string_view key : kKindLists) {
    const nlohmann::json* list = filled_list(section, key);
    if (list != nullptr) return LayerList{key, static_cast<int64_t>(list->size())};
  }
  return std::nullopt;
}

bool lists_halves_of_layers(const nlohmann::json& section, int64_t depth) {
  const nlohmann::json* list = filled_list(section, "layer_types");
  if (list == nullptr || static_cast<int64_t>(list->size()) != depth || depth % 2 != 0) return false;
  for (size_t i = 0; i < list->size(); ++i) {
    const nlohmann::json& entry = (*list)[i];
    const bool is_second_half = entry.is_string() && entry.get_ref<const std::string&>() == "mlp";
    if (is_second_half != (i % 2 == 1)) return false;
  }
  return true;
}

std::optional<ListedState> state_by_lists(const nlohmann::json& section, std::optional<int64_t> depth) {
  if (auto state = state_by_kinds(section)) return state;
  if (auto state = state_by_letters(section)) return state;
  if (auto state = state_by_flags(section)) return state;
  return state_by_indices(section, depth);
}

}  // namespace diffuse

// Config lists with one entry a layer (`layer_types` and its kin): they say more than any single key.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace diffuse {

struct LayerList {
  std::string_view key;
  int64_t length;
};

// The first per-layer list of a section that is not empty: one entry a layer.
std::optional<LayerList> listed_layers(const nlohmann::json& section);

// Whether `layer_types` counts a layer's two halves as entries of their own (mixer, mlp, mixer, mlp, ...):
// then a depth key of the same length counts halves too.
bool lists_halves_of_layers(const nlohmann::json& section, int64_t depth);

struct ListedState {
  bool recurrent;
  std::string mark;  // what says so, as "key with \"entry\"" or the key alone
};

// What the per-layer lists say about running state; nothing where there is no such list or an entry is
// unknown.
std::optional<ListedState> state_by_lists(const nlohmann::json& section, std::optional<int64_t> depth);

}  // namespace diffuse

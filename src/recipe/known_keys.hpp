#pragma once
// Config keys that the builder does not read: those known to change nothing, and those known to stand in the
// way of a run.

#include <optional>
#include <string>
#include <string_view>

#include "core/json.hpp"

namespace diffuse {

// True where a key (its last part, inside rope_parameters and the like) with this value does not change what
// the model computes.
bool is_harmless(std::string_view key, const Json& value);

// Why a model whose config says this cannot run; nothing where the key is no obstacle. Not to be accepted.
std::optional<std::string> obstacle(std::string_view key, const Json& value);

}  // namespace diffuse

#pragma once
// Tables of positions that are computed.

#include <cstdint>

#include "recipe/facts.hpp"
#include "recipe/recipe.hpp"

namespace diffuse {

// `kind` is one of the sinusoids; `count` rows of `hidden` elements. Throws refused for an odd `hidden`.
Sinusoids make_sinusoids(PositionKind kind, std::int64_t hidden, std::int64_t count);

}  // namespace diffuse

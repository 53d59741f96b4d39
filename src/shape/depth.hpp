// How many layers the answering stack has, and which key says so.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "shape/sections.hpp"

namespace diffuse {

struct DepthFinding {
  // The sections that lead to the one that answers, from the root on; where no key names a depth, the best
  // guess.
  std::vector<Section> chain;
  std::optional<int64_t> depth;
  std::string depth_at;  // also set where the key's value cannot be a depth
  std::string problem;   // half a sentence; set exactly when there is no depth

  const nlohmann::json& stack() const { return *chain.back().object; }
};

// `config` must be an object and outlive the result.
DepthFinding find_depth(const nlohmann::json& config);

// Layers that the weights may hold beyond `depth` because the config declares heads that guess further
// tokens.
int64_t layers_beyond_depth(const DepthFinding& finding);

}  // namespace diffuse

#pragma once
// The probe: a page of plain English through a text model. A model that was understood finds it far likelier
// than a uniform guess; one whose recipe is wrong does not.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/json.hpp"

namespace diffuse {

struct ProbeResult {
  std::int64_t tokens = 0;
  double perplexity = 0;
  double uniform = 0;  // of a guess that knows nothing: the size of the vocabulary
};

// Throws missing input where the folder has no tokenizer, refused where the model cannot run.
ProbeResult probe(const std::filesystem::path& folder, const std::vector<std::string>& accept);

std::string describe(const ProbeResult& result);
Json to_json(const ProbeResult& result);

}  // namespace diffuse

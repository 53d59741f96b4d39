#pragma once
// Where a result came from, for its /provenance.

#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "cli/model.hpp"
#include "cli/ranks.hpp"
#include "core/json.hpp"
#include "slice/plan.hpp"

namespace diffuse {

// Versions of this program and of what it was compiled with and runs on.
Json versions(const Ranks& ranks);

// `codec`: what the model's codec computes on; empty where it has none.
Json provenance_of(const std::vector<std::string>& command_line, const Ranks& ranks, const Backend& backend,
                   const Model& model, const Plan& plan, const std::string& job_hash,
                   const std::string& tensors_hash, const std::string& codec, int threads);

// What must not change between a run and its resumption.
Json journal_identity(const Json& provenance);

}  // namespace diffuse

#pragma once
// A job ready to run on a model, by what the model makes of it.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "cli/model.hpp"
#include "job/job.hpp"
#include "pipeline/picture_request.hpp"
#include "pipeline/prepare.hpp"

namespace diffuse {

// Tokens, one by one: text, transcripts, codes of sound.
struct TokenJob {
  TextSide text;
  std::vector<PreparedRequest> requests;
};

// Pictures and videos, step by step.
struct PictureJob {
  std::vector<PreparedPicture> requests;
  PatchFlags patches;
};

using PreparedJob = std::variant<TokenJob, PictureJob>;

// On rank 0. `kv_pages`: that every stage has room for. `patches` counts for pictures only.
PreparedJob prepare_job(const Job& job, const Model& model, std::int64_t kv_pages, const PatchFlags& patches);

// Of each request, in job order.
std::vector<std::uint64_t> seeds_of(const PreparedJob& job);

}  // namespace diffuse

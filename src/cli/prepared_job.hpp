#pragma once
// A job ready to run on a model, by what the model makes of it.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/model.hpp"
#include "job/job.hpp"
#include "pipeline/picture_maker.hpp"
#include "pipeline/picture_request.hpp"
#include "pipeline/prepare.hpp"

namespace diffuse {

// Tokens, one by one: text, transcripts, codes of sound.
struct TokenJob {
  TextSide text;
  std::vector<PreparedRequest> requests;
};

// How the pictures of a run are made.
struct PictureSettings {
  PatchFlags patches;
  std::optional<double> max_error;  // patches are chosen within it; see calibrate()
  std::int64_t tile = 0;            // as PictureFlags
};

// Pictures and videos, step by step.
struct PictureJob {
  std::vector<PreparedPicture> requests;
  PatchFlags patches;
  std::optional<double> max_error;
  std::optional<codec::VideoTiling> tiling;
};

using PreparedJob = std::variant<TokenJob, PictureJob>;

// On rank 0. `kv_pages`: that every stage has room for. `settings` count for pictures only. Throws usage
// where they ask for what the codec does not have, or for patches that no step of any request is cut into.
PreparedJob prepare_job(const Job& job, const Model& model, std::int64_t kv_pages,
                        const PictureSettings& settings);

// Why a request cannot be run; empty where it can.
const std::string& problem_of(const PreparedJob& job, std::size_t request);

// Of each request, in job order.
std::vector<std::uint64_t> seeds_of(const PreparedJob& job);

}  // namespace diffuse

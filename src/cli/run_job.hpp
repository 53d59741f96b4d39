#pragma once
// A job through one split, collectively: what run and verify have in common.

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.hpp"
#include "cli/model.hpp"
#include "cli/prepared_job.hpp"
#include "cli/processor.hpp"
#include "cli/ranks.hpp"
#include "job/job.hpp"
#include "job/kept_steps.hpp"
#include "job/result.hpp"
#include "pipeline/answers.hpp"
#include "pipeline/split_run.hpp"

namespace diffuse {

// What an earlier run has left, by index in the job.
struct EarlierWork {
  std::map<std::uint64_t, RequestResult> finished = {};
  std::map<std::uint64_t, KeptWindows> windows = {};  // of recordings that were under way
};

// What a caller sees and decides while a job runs; on rank 0 only.
struct JobEvents {
  // After loading, before anything runs: provenance is complete.
  std::function<EarlierWork(const Json& provenance)> on_loaded;
  std::function<void(std::size_t index, const RequestResult& request)> on_request;
  // A window has ended of a recording that goes on.
  std::function<void(std::size_t index, const Recording::Ended& ended)> on_window = {};
  std::function<bool()> stop;
  // Where steps of pictures are kept, once on_loaded was called; may be null.
  std::function<const KeptSteps*()> kept;
  // Before on_loaded, where patches are chosen within an error budget: how the run cut pictures that this one
  // goes on with; nothing where there is none. `provenance` lacks how pictures are made.
  std::function<std::optional<PatchFlags>(const Json& provenance)> patches_before;
  // Previews of pictures every so many steps, as files of this folder; 0: none.
  std::int64_t preview_every = 0;
  std::filesystem::path previews = {};
};

struct JobOutcome {
  Result result;  // rank 0
  bool stopped = false;
  double run_seconds = 0;
  double busy = 0;  // share of ranks x time spent computing
  double tokens_per_second = 0;
  bool codes = false;  // the tokens are codes of sound
  bool pictures = false;
  double steps_per_second = 0;  // of pictures
  std::int64_t groups = 1;      // of requests in flight
};

// What generation_config.json asks for and a run does not do, for a person: a line each. On rank 0, before
// the first run of a job.
void tell_notes(const PreparedJob& job, const Recipe& recipe, Log& log);

// Collective: all ranks call it with the same flags, model and plan. `job` counts on rank 0.
JobOutcome run_job(Ranks& ranks, Backend& backend, const ComputeFlags& flags, const Model& model,
                   const Plan& plan, const PreparedJob& job, const RunOptions& options,
                   const std::vector<std::string>& command_line, const std::string& job_hash,
                   const JobEvents& events);

// Warns of each bad request, with what is wrong with it; how many there were.
std::int64_t tell_of_bad(const Result& result, Log& log);

// The key-value pages that every stage has room for under these flags.
std::int64_t kv_pages_of(const ComputeFlags& flags, const Ranks& ranks, const Processor& processor,
                         const Model& model, const Plan& plan);

}  // namespace diffuse

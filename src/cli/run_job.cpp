#include "cli/run_job.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "cli/provenance.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace diffuse {
namespace {

Json timing_of(const DriverReport& report, const std::vector<LoadReport>& loads, double run_seconds) {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < loads.size(); ++rank) {
    Json entry = {{"load_seconds", loads[rank].seconds}, {"bytes_read", loads[rank].bytes_read}};
    if (rank < report.stages.size()) {
      const auto& stage = report.stages[rank];
      entry["busy_seconds"] = static_cast<double>(stage.busy_ns) * 1e-9;
      entry["encode_seconds"] = static_cast<double>(stage.encode_ns) * 1e-9;
      const auto busy = static_cast<double>(stage.busy_ns + stage.encode_ns) * 1e-9;
      entry["busy"] = run_seconds > 0 ? busy / run_seconds : 0.0;
      entry["steps"] = stage.steps;
      entry["rows"] = stage.rows;
      entry["bytes_sent"] = stage.bytes_sent;
    }
    ranks.push_back(std::move(entry));
  }
  return {{"run_seconds", run_seconds},
          {"steps", report.steps},
          {"prompt_tokens", report.prompt_rows},
          {"generated_tokens", report.sampled},
          {"encoded_rows", report.encoded_rows},
          {"encode_seconds", static_cast<double>(report.encode_ns) * 1e-9},
          {"generated_tokens_per_second",
           run_seconds > 0 ? static_cast<double>(report.sampled) / run_seconds : 0.0},
          {"ranks", std::move(ranks)}};
}

double busy_share(const DriverReport& report, double seconds) {
  if (seconds <= 0 || report.stages.empty()) return 0;
  double busy = 0;
  for (const auto& stage : report.stages) busy += static_cast<double>(stage.busy_ns + stage.encode_ns) * 1e-9;
  return busy / (seconds * static_cast<double>(report.stages.size()));
}

}  // namespace

void check_place(const std::filesystem::path& file) {
  auto folder = file.parent_path();
  if (folder.empty()) folder = ".";
  const auto doing = "writing '" + file.string() + "'";
  if (!std::filesystem::is_directory(folder))
    throw_missing(doing + ": there is no folder '" + folder.string() + "'");
  if (std::filesystem::is_directory(file)) throw_io(doing + ": a folder has that name");
  if (access(folder.c_str(), W_OK | X_OK) != 0) throw_errno(doing);
}

std::int64_t kv_pages_of(const ComputeFlags& flags, const Ranks& ranks, const Processor& processor,
                         const Model& model, const Plan& plan) {
  return kv_budget(model.recipe, plan, *processor.backend, kv_bytes(flags, ranks, processor, model, plan));
}

JobOutcome run_job(Ranks& ranks, Backend& backend, const ComputeFlags& flags, const Model& model,
                   const Plan& plan, const TextSide& text, const std::vector<PreparedRequest>& prepared,
                   const RunOptions& options, const std::vector<std::string>& command_line,
                   const std::string& job_hash, const JobEvents& events) {
  SplitRun split(model.recipe, model.checkpoint, plan, ranks.transport(), backend, ranks.log());
  if (!ranks.root()) {
    split.follow();
    return {};
  }
  JobOutcome outcome;
  auto& result = outcome.result;
  result.provenance =
      provenance_of(command_line, ranks, backend, model, plan, job_hash, split.tensors_hash(), flags.threads);
  auto kept =
      events.on_loaded ? events.on_loaded(result.provenance) : std::map<std::uint64_t, RequestResult>();
  if (!kept.empty())
    ranks.log().line(std::to_string(kept.size()) + " of " + std::to_string(prepared.size()) +
                     " requests were finished before");

  Answers answers(prepared, text, model.recipe.depth() + 1, std::move(kept),
                  [&](std::size_t index, const RequestResult& request) {
                    if (events.on_request) events.on_request(index, request);
                  });
  const auto start = std::chrono::steady_clock::now();
  auto driver_events = answers.events();
  auto run_options = options;
  run_options.watched = answers.watched();
  driver_events.stop = events.stop;
  driver_events.progress = [&](const std::string& state) { ranks.log().progress(state); };
  const auto report = split.run(answers.sequences(), run_options, driver_events);
  outcome.run_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  outcome.stopped = report.stopped;
  outcome.busy = busy_share(report, outcome.run_seconds);
  outcome.tokens_per_second =
      outcome.run_seconds > 0 ? static_cast<double>(report.sampled) / outcome.run_seconds : 0;
  outcome.groups = report.groups;
  result.requests = answers.take();
  result.timing = timing_of(report, split.loads(), outcome.run_seconds);
  return outcome;
}

}  // namespace diffuse

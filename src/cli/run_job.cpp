#include "cli/run_job.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "cli/provenance.hpp"
#include "cli/running.hpp"
#include "core/error.hpp"
#include "pipeline/sound_maker.hpp"

namespace diffuse {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double a_second(std::uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

Json ranks_of(const std::vector<StageReport>& stages, const std::vector<LoadReport>& loads,
              double run_seconds) {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < loads.size(); ++rank) {
    Json entry = {{"load_seconds", loads[rank].seconds}, {"bytes_read", loads[rank].bytes_read}};
    if (rank < stages.size()) {
      const auto& stage = stages[rank];
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
  return ranks;
}

double busy_share(const std::vector<StageReport>& stages, double seconds) {
  if (seconds <= 0 || stages.empty()) return 0;
  double busy = 0;
  for (const auto& stage : stages) busy += static_cast<double>(stage.busy_ns + stage.encode_ns) * 1e-9;
  return busy / (seconds * static_cast<double>(stages.size()));
}

std::function<void(std::size_t, const RequestResult&)> reporter(const JobEvents& events) {
  return [&events](std::size_t index, const RequestResult& request) {
    if (events.on_request) events.on_request(index, request);
  };
}

namespace {

// Of what was run: rows and tokens of all beams, attempts and passes, also those that no answer holds.
Json timing_of(const DriverReport& report, const std::vector<LoadReport>& loads, double run_seconds) {
  return {{"run_seconds", run_seconds},
          {"steps", report.steps},
          {"prompt_rows", report.prompt_rows},
          {"sampled_tokens", report.sampled},
          {"encoded_rows", report.encoded_rows},
          {"encode_seconds", static_cast<double>(report.encode_ns) * 1e-9},
          {"sampled_tokens_per_second", a_second(report.sampled, run_seconds)},
          {"ranks", ranks_of(report.stages, loads, run_seconds)}};
}

}  // namespace

std::int64_t tell_of_bad(const Result& result, Log& log) {
  std::int64_t bad = 0;
  for (const auto& request : result.requests) {
    if (request.status != Status::bad) continue;
    ++bad;
    log.warn("request '" + request.id + "': " + request.message);
  }
  return bad;
}

void tell_notes(const PreparedJob& job, const Recipe& recipe, Log& log) {
  const auto* tokens = std::get_if<TokenJob>(&job);
  if (tokens == nullptr) return;
  for (const auto& note : notes_on(tokens->text, limits_of(recipe, 0))) log.warn(note);
}

std::int64_t kv_pages_of(const ComputeFlags& flags, const Ranks& ranks, const Processor& processor,
                         const Model& model, const Plan& plan) {
  return kv_budget(model.recipe, plan, *processor.backend, kv_bytes(flags, ranks, processor, model, plan));
}

namespace {

JobOutcome run(const Running& run, const TokenJob& job) {
  const auto& recipe = run.model.recipe;
  JobOutcome outcome;
  std::optional<SoundMaker> sound;
  if (recipe.codec) sound.emplace(*recipe.codec, run.model.checkpoint, run.threads, run.codec_simd);
  auto earlier = run.loaded(outcome.result,
                            run.provenance(sound ? sound->target() : std::string(),
                                           sound ? sound->hashes() : std::map<std::string, std::uint64_t>()),
                            Json::object());
  const auto under_way = earlier.windows.size();
  if (under_way > 0)
    run.ranks.log().line(std::to_string(under_way) + (under_way == 1 ? " recording goes" : " recordings go") +
                         " on from the windows that were kept");
  Answers answers(job.requests, job.text, recipe.depth() + 1, std::move(earlier.finished),
                  reporter(run.events), sound ? &*sound : nullptr,
                  {.kept = std::move(earlier.windows), .on_window = run.events.on_window});
  const auto start = std::chrono::steady_clock::now();
  auto driver_events = answers.events();
  auto run_options = run.options;
  run_options.watched = answers.watched();
  driver_events.stop = run.events.stop;
  driver_events.progress = [&](const std::string& state) { run.ranks.log().progress(state); };
  run.next_run();
  const auto report = run.split.run(answers.sequences(), run_options, driver_events);
  outcome.result.requests = answers.take();
  outcome.run_seconds = seconds_since(start);
  outcome.stopped = report.stopped;
  outcome.busy = busy_share(report.stages, outcome.run_seconds);
  outcome.tokens_per_second = a_second(report.sampled, outcome.run_seconds);
  outcome.codes = recipe.codec.has_value();
  outcome.groups = report.groups;
  outcome.result.timing = timing_of(report, run.split.loads(), outcome.run_seconds);
  return outcome;
}

JobOutcome run(const Running& running, const PictureJob& job) {
  return run_pictures(running, job);
}

// What rank 0 tells the others before each run, and when there are no more.
constexpr const char* kRun = "run";
constexpr const char* kNoMore = "end";

}  // namespace

JobOutcome run_job(Ranks& ranks, Backend& backend, const ComputeFlags& flags, const Model& model,
                   const Plan& plan, const PreparedJob& job, const RunOptions& options,
                   const std::vector<std::string>& command_line, const std::string& job_hash,
                   const JobEvents& events) {
  SplitRun split(model.recipe, model.checkpoint, plan, ranks.transport(), backend, ranks.log());
  if (!ranks.root()) {
    while (ranks.broadcast({}, "whether there is another run") == kRun) split.follow();
    return {};
  }
  const auto provenance = [&](const std::string& codec, const std::map<std::string, std::uint64_t>& hashes) {
    return provenance_of(command_line, ranks, backend, model, plan, job_hash, split.tensors_hash(hashes),
                         codec, flags.threads);
  };
  const auto loaded = [&](Result& result, Json of, const Json& settings) {
    for (const auto& [key, value] : settings.items()) of[key] = value;
    result.provenance = std::move(of);
    auto earlier = events.on_loaded ? events.on_loaded(result.provenance) : EarlierWork();
    if (!earlier.finished.empty()) {
      const auto requests = std::visit([](const auto& each) { return each.requests.size(); }, job);
      ranks.log().line(std::to_string(earlier.finished.size()) + " of " + std::to_string(requests) +
                       " requests were finished before");
    }
    return earlier;
  };
  std::vector<std::int64_t> stage_layers;
  for (const auto& slice : plan.ranks)
    if (!slice.idle()) stage_layers.push_back(slice.layers());
  const Running running{.ranks = ranks,
                        .model = model,
                        .split = split,
                        .options = options,
                        .stage_layers = stage_layers,
                        .events = events,
                        .codec_simd = backend.name() == "cpu" ? backend.target() : std::string(),
                        .threads = flags.threads,
                        .provenance = provenance,
                        .loaded = loaded,
                        .next_run = [&] { ranks.broadcast(kRun, "that a run begins"); }};
  auto outcome = std::visit([&](const auto& each) { return run(running, each); }, job);
  ranks.broadcast(kNoMore, "that there are no more runs");
  return outcome;
}

}  // namespace diffuse

#include "cli/run_job.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "cli/provenance.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "job/merge.hpp"
#include "pipeline/picture_maker.hpp"
#include "pipeline/pictures.hpp"
#include "pipeline/sound_maker.hpp"
#include "sampler/sampler_state.hpp"

namespace diffuse {
namespace {

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

Json timing_of(const DriverReport& report, const std::vector<LoadReport>& loads, double run_seconds) {
  return {{"run_seconds", run_seconds},
          {"steps", report.steps},
          {"prompt_tokens", report.prompt_rows},
          {"generated_tokens", report.sampled},
          {"encoded_rows", report.encoded_rows},
          {"encode_seconds", static_cast<double>(report.encode_ns) * 1e-9},
          {"generated_tokens_per_second", a_second(report.sampled, run_seconds)},
          {"ranks", ranks_of(report.stages, loads, run_seconds)}};
}

double busy_share(const std::vector<StageReport>& stages, double seconds) {
  if (seconds <= 0 || stages.empty()) return 0;
  double busy = 0;
  for (const auto& stage : stages) busy += static_cast<double>(stage.busy_ns + stage.encode_ns) * 1e-9;
  return busy / (seconds * static_cast<double>(stages.size()));
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

namespace {

// What of a run is the same whatever it makes.
struct Running {
  Ranks& ranks;
  const Model& model;
  SplitRun& split;
  const RunOptions& options;
  const JobEvents& events;
  // The codec's SIMD target: that of the ranks where they compute on CPUs too.
  std::string codec_simd;
  int threads = 0;
  // `codec`: what the model's codec computes on, empty where it has none; its tensors' hashes, and what else
  // must not change before a run goes on.
  std::function<EarlierWork(Result& result, const std::string& codec,
                            const std::map<std::string, std::uint64_t>& hashes, const Json& settings)>
      loaded;
};

std::function<void(std::size_t, const RequestResult&)> reporter(const JobEvents& events) {
  return [&events](std::size_t index, const RequestResult& request) {
    if (events.on_request) events.on_request(index, request);
  };
}

JobOutcome run(const Running& run, const TokenJob& job) {
  const auto& recipe = run.model.recipe;
  JobOutcome outcome;
  std::optional<SoundMaker> sound;
  if (recipe.codec) sound.emplace(*recipe.codec, run.model.checkpoint, run.threads, run.codec_simd);
  auto earlier = run.loaded(outcome.result, sound ? sound->target() : std::string(),
                            sound ? sound->hashes() : std::map<std::string, std::uint64_t>(), Json());
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
  const auto report = run.split.run(answers.sequences(), run_options, driver_events);
  outcome.result.requests = answers.take();
  outcome.run_seconds = seconds_since(start);
  outcome.stopped = report.stopped;
  outcome.busy = busy_share(report.stages, outcome.run_seconds);
  outcome.tokens_per_second = a_second(report.sampled, outcome.run_seconds);
  outcome.groups = report.groups;
  outcome.result.timing = timing_of(report, run.split.loads(), outcome.run_seconds);
  return outcome;
}

// A latent is kept no more often than that: writing it must not hold up a pass.
constexpr std::chrono::seconds kKeepEvery{10};

// Steps of the pictures of a run, kept and found again; nowhere where `store` is null.
class Keeper {
 public:
  Keeper(const KeptSteps* store, const Pictures& pictures, std::size_t count)
      : store_(store), pictures_(pictures), last_(count, std::chrono::steady_clock::now()) {}

  void on_step(std::size_t index, const SteppedPicture& stepped) {
    const auto now = std::chrono::steady_clock::now();
    if (!stepped.can_start || now - last_[index] < kKeepEvery) return;
    last_[index] = now;
    keep(index, stepped.state());
  }

  void keep(std::size_t index, const PictureState& state) const {
    if (store_ == nullptr) return;
    const auto [request, sample] = pictures_.of(index);
    store_->keep(request, sample,
                 {state.step, {state.rows.begin(), state.rows.end()}, to_bytes(state.state)});
  }

 private:
  const KeptSteps* store_;
  const Pictures& pictures_;
  std::vector<std::chrono::steady_clock::time_point> last_;
};

JobOutcome run(const Running& run, const PictureJob& job) {
  const auto& recipe = run.model.recipe;
  JobOutcome outcome;
  PictureMaker maker(recipe, run.model.checkpoint, run.threads, run.codec_simd);
  const auto& settings = job.patches.settings;
  Json patches;
  if (settings.patches > 1)
    patches = {{"patches", settings.patches},
               {"whole_first", job.patches.whole_share ? Json("a fifth") : Json(settings.whole_first)},
               {"whole_last", settings.whole_last},
               {"extrapolate", name_of(job.patches.carry_on)}};
  auto finished = run.loaded(outcome.result, maker.target(), maker.hashes(), patches).finished;
  const auto* store = run.events.kept ? run.events.kept() : nullptr;
  const Pictures::Resume resume = [&](std::size_t request,
                                      std::int64_t sample) -> std::optional<Pictures::Kept> {
    auto found = store == nullptr ? std::nullopt : store->find(request, sample);
    if (!found) return std::nullopt;
    return Pictures::Kept{found->step, std::move(found->rows), sampler_state_of(found->sampler)};
  };
  Pictures pictures(
      job.requests, *recipe.refinement, job.patches, recipe.depth() + 1, std::move(finished),
      [&](const PreparedPicture& request, std::span<const float> latent) {
        return maker.make(request, latent);
      },
      reporter(run.events), run.options.trace ? Pictures::Resume() : resume);
  auto all = pictures.take_pictures();
  Keeper keeper(store, pictures, all.size());
  const auto resumed = std::ranges::count_if(all, [](const Picture& each) { return each.first_step > 0; });
  if (resumed > 0)
    run.ranks.log().line(std::to_string(resumed) + " go on from the steps that were kept of them");
  const auto start = std::chrono::steady_clock::now();
  const auto total = all.size();
  std::vector<std::int64_t> steps_of;
  for (const auto& picture : all) steps_of.push_back(static_cast<std::int64_t>(picture.scheduler->steps()));
  auto events = pictures.events();
  events.stop = run.events.stop;
  events.on_stopped = [&](std::size_t index, const PictureState& state) { keeper.keep(index, state); };
  std::uint64_t done = 0;
  events.on_step = [&](std::size_t index, const SteppedPicture& stepped) {
    keeper.on_step(index, stepped);
    pictures.go_on();
    ++done;
    const auto each = seconds_since(start) / static_cast<double>(done);
    const auto [request, sample] = pictures.of(index);
    run.ranks.log().progress("request " + job.requests[request].id + ", step " +
                             std::to_string(stepped.step) + " of " + std::to_string(steps_of[index]) + ", " +
                             fixed(each, 2) + " s a step of " + std::to_string(total) +
                             (total == 1 ? " picture" : " pictures"));
  };
  const auto report = run.split.refine(std::move(all), run.options, events);
  outcome.result.requests = pictures.take();
  outcome.run_seconds = seconds_since(start);
  outcome.stopped = report.stopped;
  outcome.busy = busy_share(report.stages, outcome.run_seconds);
  outcome.steps_per_second = a_second(report.steps, outcome.run_seconds);
  outcome.result.timing = {
      {"run_seconds", outcome.run_seconds},
      {"passes", report.passes},
      {"steps", report.steps},
      {"seconds_per_step", report.steps == 0 ? 0.0 : outcome.run_seconds / static_cast<double>(report.steps)},
      {"encode_seconds", static_cast<double>(report.encode_ns) * 1e-9},
      {"ranks", ranks_of(report.stages, run.split.loads(), outcome.run_seconds)}};
  return outcome;
}

}  // namespace

JobOutcome run_job(Ranks& ranks, Backend& backend, const ComputeFlags& flags, const Model& model,
                   const Plan& plan, const PreparedJob& job, const RunOptions& options,
                   const std::vector<std::string>& command_line, const std::string& job_hash,
                   const JobEvents& events) {
  SplitRun split(model.recipe, model.checkpoint, plan, ranks.transport(), backend, ranks.log());
  if (!ranks.root()) {
    split.follow();
    return {};
  }
  const auto loaded = [&](Result& result, const std::string& codec,
                          const std::map<std::string, std::uint64_t>& hashes, const Json& settings) {
    result.provenance = provenance_of(command_line, ranks, backend, model, plan, job_hash,
                                      split.tensors_hash(hashes), codec, flags.threads);
    if (!settings.is_null()) result.provenance[std::string(provenance_key::kPatches)] = settings;
    auto earlier = events.on_loaded ? events.on_loaded(result.provenance) : EarlierWork();
    if (!earlier.finished.empty()) {
      const auto requests = std::visit([](const auto& each) { return each.requests.size(); }, job);
      ranks.log().line(std::to_string(earlier.finished.size()) + " of " + std::to_string(requests) +
                       " requests were finished before");
    }
    return earlier;
  };
  const Running running{.ranks = ranks,
                        .model = model,
                        .split = split,
                        .options = options,
                        .events = events,
                        .codec_simd = backend.name() == "cpu" ? backend.target() : std::string(),
                        .threads = flags.threads,
                        .loaded = loaded};
  return std::visit([&](const auto& each) { return run(running, each); }, job);
}

}  // namespace diffuse

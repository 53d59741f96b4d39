// A job of pictures through one split: patches chosen, steps kept, previews shown.

#include <algorithm>
#include <chrono>
#include <optional>

#include "cli/calibrate.hpp"
#include "cli/preview_files.hpp"
#include "cli/running.hpp"
#include "core/error.hpp"
#include "job/merge.hpp"
#include "pipeline/picture_maker.hpp"
#include "pipeline/picture_progress.hpp"
#include "pipeline/pictures.hpp"
#include "pipeline/previews.hpp"
#include "sampler/sampler_state.hpp"

namespace diffuse {
namespace {

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

// Of the provenance: what makes other pixels.
Json settings_of(const PictureJob& job, const PatchFlags& patches) {
  Json settings = Json::object();
  if (patches.settings.patches > 1 || job.max_error) {
    auto& cut = settings[std::string(provenance_key::kPatches)];
    cut = to_json(patches);
    if (job.max_error) cut["max_error"] = *job.max_error;
  }
  if (job.tiling)
    settings[std::string(provenance_key::kTiles)] = {{"size", job.tiling->size},
                                                     {"stride", job.tiling->stride}};
  return settings;
}

// As the flags say, or as an error budget has it; nothing where the run was stopped meanwhile.
std::optional<PatchFlags> patches_of(const Running& run, const PictureJob& job, PictureMaker& maker) {
  if (!job.max_error) return job.patches;
  std::optional<PatchFlags> before;
  if (run.events.patches_before) {
    auto provenance = run.provenance(maker.target(), maker.hashes());
    const auto settings = settings_of(job, {});
    for (const auto& [key, value] : settings.items())
      if (key != provenance_key::kPatches) provenance[key] = value;
    before = run.events.patches_before(provenance);
  }
  return before ? before : calibrate(run, job, maker);
}

// Shows pictures under way, every so many steps.
class PreviewWriter {
 public:
  PreviewWriter(const Running& run, const PictureJob& job, PictureMaker& maker, Pictures& pictures,
                std::span<const Picture> all)
      : pictures_(pictures),
        previews_(run.events.preview_every, all),
        files_(run.events.previews, job.requests) {
    pictures.show_previews([&](std::size_t picture, std::int64_t step, const LatentArray& latent) {
      const auto [request, sample] = pictures_.of(picture);
      try {
        files_.write(request, sample, step, maker.first_frame(latent));
      } catch (const std::exception& problem) {
        // The picture itself may still come out right, and is told of if not.
        run.ranks.log().warn("the preview of request " + job.requests[request].id + " at step " +
                             std::to_string(step) + ": " + problem.what());
      }
    });
  }

  void on_step(std::size_t index, const SteppedPicture& stepped) {
    if (const auto rows = previews_.on_step(index, stepped)) pictures_.preview(index, stepped.step, *rows);
  }

 private:
  Pictures& pictures_;
  Previews previews_;
  PreviewFiles files_;
};

PictureProgress progress_of(const PictureJob& job, const Pictures& pictures, std::span<const Picture> all) {
  std::vector<PictureProgress::Of> of;
  for (std::size_t index = 0; index < all.size(); ++index) {
    const auto [request, sample] = pictures.of(index);
    const auto& prepared = job.requests[request];
    of.push_back({.name = prepared.id + (prepared.samples > 1 ? "-" + std::to_string(sample) : ""),
                  .first_step = all[index].first_step,
                  .steps = static_cast<std::int64_t>(all[index].scheduler->steps())});
  }
  return PictureProgress(of);
}

}  // namespace

JobOutcome run_pictures(const Running& run, const PictureJob& job) {
  const auto& recipe = run.model.recipe;
  JobOutcome outcome;
  PictureMaker maker(recipe, run.model.checkpoint, run.threads, run.codec_simd, job.tiling);
  const auto patches = patches_of(run, job, maker);
  outcome.pictures = true;
  if (!patches) {
    outcome.stopped = true;
    return outcome;
  }
  const auto cut = most_patches(job.requests, *patches);
  if (const std::int64_t asked = patches->settings.patches; cut < asked && !job.max_error)
    run.ranks.log().line("of " + std::to_string(asked) + " patches the largest picture has room for " +
                         std::to_string(cut));
  auto finished =
      run.loaded(outcome.result, run.provenance(maker.target(), maker.hashes()), settings_of(job, *patches))
          .finished;
  const auto* store = run.events.kept ? run.events.kept() : nullptr;
  const Pictures::Resume resume = [&](std::size_t request,
                                      std::int64_t sample) -> std::optional<Pictures::Kept> {
    auto found = store == nullptr ? std::nullopt : store->find(request, sample);
    if (!found) return std::nullopt;
    return Pictures::Kept{found->step, std::move(found->rows), sampler_state_of(found->sampler)};
  };
  std::optional<PreviewWriter> previews;  // outlives what is shown in another thread
  Pictures pictures(
      job.requests, *recipe.refinement, *patches, recipe.depth() + 1, std::move(finished),
      [&](const PreparedPicture& request, std::span<const float> latent) {
        return maker.make(request, latent);
      },
      reporter(run.events), run.options.trace ? Pictures::Resume() : resume);
  auto all = pictures.take_pictures();
  Keeper keeper(store, pictures, all.size());
  if (run.events.preview_every > 0) previews.emplace(run, job, maker, pictures, all);
  auto progress = progress_of(job, pictures, all);
  const auto resumed = std::ranges::count_if(all, [](const Picture& each) { return each.first_step > 0; });
  if (resumed > 0)
    run.ranks.log().line(std::to_string(resumed) + " go on from the steps that were kept of them");
  const auto start = std::chrono::steady_clock::now();
  auto events = pictures.events();
  events.stop = run.events.stop;
  events.on_stopped = [&](std::size_t index, const PictureState& state) { keeper.keep(index, state); };
  events.on_step = [&](std::size_t index, const SteppedPicture& stepped) {
    keeper.on_step(index, stepped);
    if (previews) previews->on_step(index, stepped);
    pictures.go_on();
    run.ranks.log().progress(progress.on_step(index, stepped.step, seconds_since(start)));
  };
  run.next_run();
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

}  // namespace diffuse

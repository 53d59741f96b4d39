#include "cli/calibrate.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "core/format.hpp"
#include "pipeline/error_budget.hpp"
#include "pipeline/latent_rows.hpp"
#include "schedule/refinement_policy.hpp"
#include "verify/pixels.hpp"

namespace diffuse {
namespace {

// A larger picture is measured at a smaller size: as much as is needed to have many patches of many tokens.
constexpr std::int64_t kEnoughTokens = 2048;
// What other pictures, or larger ones, may be off by more than the one that was measured.
constexpr double kMargin = 2;

class Calibration {
 public:
  Calibration(const Running& run, const PictureJob& job, PictureMaker& maker)
      : run_(run), job_(job), maker_(maker), stack_(*run.model.recipe.refinement) {}

  std::optional<PatchFlags> run() {
    const auto* request = request_to_measure();
    if (request == nullptr) return PatchFlags();
    budget_.mean = *job_.max_error;
    budget_.steps = static_cast<std::int64_t>(request->scheduler->steps());
    budget_.patches = patches();
    if (budget_.patches == 1) {
      say("the streams of the requests fill the stages, and no patches are needed");
      return PatchFlags();
    }
    if (budget_.mean == 0) return whole("only whole pictures are within it");
    budget_.whole = whole_steps_to_try(budget_.steps);
    // What patches keep is the same however many steps are whole.
    if (!budget_.whole.empty() && !fits(flags_of(budget_, budget_.whole.front())))
      return whole("what patches keep has no room; see --kv-memory");
    std::erase_if(budget_.whole, [&](std::int64_t steps) { return !useful(steps); });
    if (budget_.whole.empty()) return whole("patches would speed nothing up");
    return measure(*request);
  }

 private:
  void say(const std::string& text) const {
    run_.ranks.log().line("--max-error " + short_number(*job_.max_error) + ": " + text);
  }
  static std::string described(const PatchFlags& patches) {
    return "--patches " + std::to_string(patches.settings.patches) + " --whole-steps " +
           std::to_string(patches.settings.whole_first) + "," + std::to_string(patches.settings.whole_last) +
           " --extrapolate " + std::string(name_of(patches.carry_on));
  }

  // The first of those with the fewest steps, whose patches are off by most.
  const PreparedPicture* request_to_measure() const {
    const PreparedPicture* found = nullptr;
    for (const auto& request : job_.requests)
      if (request.problem.empty() &&
          (found == nullptr || request.scheduler->steps() < found->scheduler->steps()))
        found = &request;
    return found;
  }

  // That fill what the streams of as many pictures as memory has room for leave empty.
  std::int32_t patches() const {
    std::int64_t streams = 0;
    std::int64_t pages = 0;
    std::int32_t branches = 1;
    for (const auto& request : job_.requests) {
      if (!request.problem.empty()) continue;
      const auto picture = without_start(request, {});
      branches = std::max(branches, picture.branches());
      for (std::int64_t sample = 0; sample < request.samples; ++sample) {
        pages += picture.pages(0);
        if (streams == 0 || pages <= run_.options.kv_pages) streams += picture.branches();
      }
    }
    return filling_patches(static_cast<std::int32_t>(layers_.size()), branches, streams);
  }

  bool fits(const PatchFlags& flags) const {
    return std::ranges::all_of(job_.requests, [&](const PreparedPicture& request) {
      if (!request.problem.empty()) return true;
      const auto picture = without_start(request, flags);
      return picture.pages(picture.keeps_history()) <= run_.options.kv_pages;
    });
  }

  double speed_up(const PatchFlags& flags) const {
    return simulated_speed_up(layers_, job_.requests, flags, run_.options.kv_pages);
  }

  // Whether so many whole steps leave a speed-up worth a change of the pictures.
  bool useful(std::int64_t whole_steps) const {
    constexpr double kWorth = 1.05;
    const auto flags = flags_of(budget_, whole_steps);
    return speed_up(flags) > kWorth * speed_up({});
  }

  PatchFlags whole(const std::string& why) const {
    say(why + "; pictures stay whole, at a speed-up of " + fixed(speed_up({}), 2) +
        " over one rank by simulation");
    return {};
  }

  std::optional<PatchFlags> measure(const PreparedPicture& request) {
    const auto small = smaller_request(request, kEnoughTokens);
    const bool itself = small.grid.tokens() == request.grid.tokens();
    const bool alone = job_.requests.size() == 1 && request.samples == 1;
    budget_.margin = itself && alone ? 1 : kMargin;
    say("measuring request " + request.id + ", " + std::to_string(small.grid.tokens()) + " of " +
        std::to_string(request.grid.tokens()) + " tokens, " + std::to_string(budget_.steps) +
        " steps; whole first");
    const auto reference = picture_of(small, {});
    if (stopped_) return std::nullopt;
    if (!reference) return whole("the whole picture is spoiled already");
    std::vector<BudgetPoint> measured;
    while (const auto flags = next_to_measure(budget_, measured)) {
      auto& point = measured.emplace_back(BudgetPoint{*flags, std::numeric_limits<double>::infinity()});
      const auto picture = picture_of(small, *flags);
      if (stopped_) return std::nullopt;
      if (picture) point.mean = pixel_error(reference->bytes, picture->bytes).mean;
      say(described(*flags) + ": " + fixed(point.mean, 4) + "/255");
    }
    const auto chosen = choose(budget_, measured);
    if (!chosen) return whole("nothing that was measured is within it");
    say("takes " + described(chosen->patches) + ", " + fixed(chosen->mean, 4) + "/255 off" +
        (budget_.margin > 1 ? ", twice of which is allowed" : "") + "; speed-up " +
        fixed(speed_up(chosen->patches), 2) + " over one rank by simulation, " + fixed(speed_up({}), 2) +
        " without patches");
    return chosen->patches;
  }

  // Nothing where the latent was spoiled, or the run stopped.
  std::optional<MediaArray> picture_of(const PreparedPicture& request, const PatchFlags& patches) {
    std::vector<Picture> pictures;
    pictures.push_back(make_picture(request, 0, 0, start_latents(request, stack_), patches, stack_));
    std::optional<std::vector<float>> rows;
    RefinementEvents events;
    events.stop = run_.events.stop;
    events.on_latent = [&](std::size_t, std::vector<float> latent, const std::string& problem) {
      if (problem.empty()) rows = std::move(latent);
    };
    events.on_done = [](std::size_t, const std::vector<std::uint64_t>&, std::int64_t) {};
    events.progress = [&](const std::string& state) { run_.ranks.log().progress("measuring: " + state); };
    auto options = run_.options;
    options.trace = false;
    run_.next_run();
    stopped_ = run_.split.refine(std::move(pictures), options, events).stopped;
    if (stopped_ || !rows) return std::nullopt;
    try {
      return maker_.make(request, from_rows(*rows, request.grid, stack_));
    } catch (const Error& problem) {
      if (problem.code() != ExitCode::bad_data) throw;
      return std::nullopt;
    }
  }

  const Running& run_;
  const PictureJob& job_;
  PictureMaker& maker_;
  const Refinement& stack_;
  std::vector<std::int64_t> layers_ = run_.stage_layers;
  ErrorBudget budget_;
  bool stopped_ = false;
};

}  // namespace

Json to_json(const PatchFlags& patches) {
  if (patches.settings.patches == 1) return {{"patches", 1}};
  Json json = {{"patches", patches.settings.patches}, {"extrapolate", name_of(patches.carry_on)}};
  if (patches.whole_share) {
    json["whole"] = "a fifth and one, at the end too from forty steps on";
  } else {
    json["whole_first"] = patches.settings.whole_first;
    json["whole_last"] = patches.settings.whole_last;
  }
  if (patches.of_steps > 0) json["of_steps"] = patches.of_steps;
  return json;
}

PatchFlags patch_flags_of(const Json& value) {
  try {
    PatchFlags flags;
    flags.settings.patches = value.at("patches").get<std::int32_t>();
    if (flags.settings.patches == 1) return flags;
    flags.settings.whole_first = value.at("whole_first").get<std::int64_t>();
    flags.settings.whole_last = value.at("whole_last").get<std::int64_t>();
    flags.carry_on = carry_on_of(value.at("extrapolate").get<std::string>());
    flags.of_steps = value.at("of_steps").get<std::int64_t>();
    constexpr std::int64_t kMostSteps = 1'000'000;
    const bool sound = flags.settings.patches > 1 && flags.settings.patches <= kMostPatches &&
                       flags.of_steps > 0 && flags.of_steps <= kMostSteps && flags.settings.whole_last >= 0 &&
                       flags.settings.whole_first > steps_before(flags.carry_on) &&
                       flags.settings.whole_first < flags.of_steps - flags.settings.whole_last;
    if (sound) return flags;
  } catch (const std::exception&) {
    // Told below.
  }
  throw_bad_data(
      "going on with an earlier run: what it says of its patches is damaged; --no-resume starts anew");
}

std::optional<PatchFlags> calibrate(const Running& run, const PictureJob& job, PictureMaker& maker) {
  return Calibration(run, job, maker).run();
}

}  // namespace diffuse

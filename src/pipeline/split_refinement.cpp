#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "pipeline/commander.hpp"
#include "pipeline/split_run.hpp"

namespace diffuse {

RefinementLimits SplitRun::refinement_limits(const Setup& setup) const {
  return {.max_rows = setup.max_rows, .kv_pages = setup.kv_pages, .history = setup.history};
}

RefinementReport SplitRun::refine(std::vector<Picture> pictures, const RunOptions& options,
                                  const RefinementEvents& events) {
  Setup mine{.max_rows = 1, .encode_rows = 1, .trace = options.trace};
  std::int64_t all_pages = 0;
  for (const auto& picture : pictures) {
    mine.max_rows = std::max(mine.max_rows, picture.grid.tokens());
    mine.encode_rows = std::max(mine.encode_rows, picture.branches() * picture.text_rows);
    mine.history = std::max(mine.history, static_cast<std::uint8_t>(picture.keeps_history()));
  }
  // All slots keep as many steps.
  for (auto& picture : pictures) {
    picture.history = mine.history;
    all_pages += picture.pages(mine.history);
  }
  mine.kv_pages = std::min(options.kv_pages, std::max<std::int64_t>(all_pages, 1));
  const auto setup = agree(mine);

  const auto& slice = plan_.ranks.front();
  RefinementExecutor executor(recipe_, slice, backend_, weights_, refinement_limits(setup));
  auto encoder = make_encoder(setup.encode_rows);
  Stage stage(RefinementWork(executor, backend_, options.trace), backend_, transport_, recipe_,
              {.stages = plan_.stages, .flip = options.flip}, encoder ? &*encoder : nullptr);
  RefinementPlan plan;
  plan.layers = digest_layers(plan_);
  plan.kv_pages = setup.kv_pages;
  plan.trace = options.trace;
  plan.encoder = plan_.encoders.front();
  auto report = diffuse::refine(stage, transport_, *recipe_.refinement, std::move(pictures), plan, events);
  log_.end_progress();
  return report;
}

void SplitRun::follow_refinement(const Setup& setup) {
  const auto& slice = plan_.ranks[static_cast<std::size_t>(transport_.rank())];
  RefinementExecutor executor(recipe_, slice, backend_, weights_, refinement_limits(setup));
  Stage stage(RefinementWork(executor, backend_, setup.trace != 0), backend_, transport_, recipe_,
              {.stages = plan_.stages, .flip = {}});
  const auto report = stage.loop();
  transport_.send_now(0, Channel::result, std::as_bytes(std::span(&report, 1)), {"the report of a stage"});
}

}  // namespace diffuse

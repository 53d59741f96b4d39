#include "cli/prepared_job.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace diffuse {
namespace {

// Patches that no step is cut into change nothing, and would be told of as if they did.
void check_cut(const PictureJob& job) {
  const auto answered = std::ranges::find(job.requests, std::string(), &PreparedPicture::problem);
  if (job.patches.settings.patches == 1 || answered == job.requests.end() ||
      most_patches(job.requests, job.patches) > 1)
    return;
  const auto steps = static_cast<std::int64_t>(answered->scheduler->steps());
  const auto settings = job.patches.settings_of(steps);
  throw_usage("--patches " + std::to_string(settings.patches) + ": nothing is cut, for of " +
              std::to_string(steps) + " steps the first " + std::to_string(settings.whole_first) +
              " and the last " + std::to_string(settings.whole_last) + " are whole and a picture has " +
              std::to_string(answered->grid.tokens()) +
              " tokens; say fewer --whole-steps, or ask for more steps");
}

}  // namespace

PreparedJob prepare_job(const Job& job, const Model& model, std::int64_t kv_pages,
                        const PictureSettings& settings) {
  const auto& patches = settings.patches;
  if (model.recipe.refinement) {
    const auto side = PictureSide::open(model.folder, *model.recipe.video);
    const auto tiling = tiling_of(settings.tile, *model.recipe.video);
    PictureJob prepared{prepare_pictures(job, side, model.recipe, patches, kv_pages), patches,
                        settings.max_error, tiling};
    check_cut(prepared);
    return prepared;
  }
  check_features(model.folder, model.recipe);
  TokenJob prepared{TextSide::open(model.folder), {}};
  prepared.requests = prepare(job, prepared.text, limits_of(model.recipe, kv_pages * kPageTokens));
  return prepared;
}

const std::string& problem_of(const PreparedJob& job, std::size_t request) {
  return std::visit([&](const auto& each) -> const std::string& { return each.requests.at(request).problem; },
                    job);
}

std::vector<std::uint64_t> seeds_of(const PreparedJob& job) {
  std::vector<std::uint64_t> seeds;
  std::visit(
      [&](const auto& each) {
        for (const auto& request : each.requests) seeds.push_back(request.seed);
      },
      job);
  return seeds;
}

}  // namespace diffuse

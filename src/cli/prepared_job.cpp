#include "cli/prepared_job.hpp"

namespace diffuse {

PreparedJob prepare_job(const Job& job, const Model& model, std::int64_t kv_pages,
                        const PictureSettings& settings) {
  const auto& patches = settings.patches;
  if (model.recipe.refinement) {
    const auto side = PictureSide::open(model.folder, *model.recipe.video);
    const auto tiling = tiling_of(settings.tile, *model.recipe.video);
    return PictureJob{prepare_pictures(job, side, model.recipe, patches, kv_pages), patches,
                      settings.max_error, tiling};
  }
  check_features(model.folder, model.recipe);
  TokenJob prepared{TextSide::open(model.folder), {}};
  prepared.requests = prepare(job, prepared.text, limits_of(model.recipe, kv_pages * kPageTokens));
  return prepared;
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

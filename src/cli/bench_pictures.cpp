#include "cli/bench_pictures.hpp"

#include <string>

#include "core/error.hpp"

namespace diffuse {

MeasuredPictures measure_pictures(SplitRun& split, const Model& model, std::int64_t requests,
                                  const PicturePlanFlags& flags, const RunOptions& options) {
  // Enough steps that filling and draining the stages weighs little.
  constexpr std::int64_t kSteps = 4;
  const auto& stack = *model.recipe.refinement;
  Job job;
  job.sha256 = std::string(64, '0');
  const auto give = [&](const char* key, std::int64_t value) {
    if (value > 0) job.generate[key] = value;
  };
  give("height", flags.height);
  give("width", flags.width);
  give("num_frames", flags.frames);
  give("num_inference_steps", flags.steps > 0 ? flags.steps : kSteps);
  if (flags.guidance >= 0) job.generate["guidance_scale"] = flags.guidance;
  for (std::int64_t i = 0; i < requests; ++i) {
    auto& request = job.requests.emplace_back();
    request.id = std::to_string(i);
    request.input = Prompt{"a quiet street in the rain"};
  }
  PatchFlags patches;
  patches.settings = {.patches = flags.patches, .whole_first = flags.patches > 1 ? 1 : 0};
  const auto side = PictureSide::open(model.folder, *model.recipe.video);
  const auto prepared = prepare_pictures(job, side, model.recipe, patches, options.kv_pages);
  if (!prepared.front().problem.empty()) throw_bad_data(prepared.front().problem);
  std::vector<Picture> pictures;
  for (std::size_t i = 0; i < prepared.size(); ++i)
    pictures.push_back(make_picture(prepared[i], i, 0, start_latents(prepared[i], stack), patches, stack));
  const auto report =
      split.refine(std::move(pictures), options,
                   {.on_latent =
                        [](std::size_t, const std::vector<float>&, const std::string& problem) {
                          if (!problem.empty()) throw_bad_data(problem);
                        },
                    .on_done = [](std::size_t, const std::vector<std::uint64_t>&, std::int64_t) {}});
  // The texts are read once a request, not once a step.
  const double seconds = static_cast<double>(report.wall_ns - report.encode_ns) * 1e-9;
  MeasuredPictures measured;
  measured.steps_per_second = static_cast<double>(report.steps) / seconds;
  for (const auto& stage : report.stages)
    measured.busy.push_back(static_cast<double>(stage.busy_ns) * 1e-9 / seconds);
  return measured;
}

}  // namespace diffuse

#include "cli/plan_pictures.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "cli/flags.hpp"
#include "codec/video_decoder.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "pipeline/carry_on.hpp"
#include "pipeline/picture_maker.hpp"
#include "schedule/refinement_policy.hpp"
#include "slice/refinement_executor.hpp"

namespace diffuse {

void PicturePlanFlags::add_to(CLI::App& command) {
  command.add_option("--height", height, "Of pictures; default: the model's own")
      ->check(CLI::Range(1, 65536));
  command.add_option("--width", width, "Of pictures")->check(CLI::Range(1, 65536));
  command.add_option("--num-frames", frames, "Of videos")->check(CLI::Range(1, 1'000'000));
  command.add_option("--steps", steps, "Of the scheduler")->check(CLI::Range(1, 100'000));
  command
      .add_option("--guidance-scale", guidance, "Of pictures and music; 1: no guidance, one branch a request")
      ->check(between(0, 1e6));
  command.add_option("--patches", patches, "Patches that a picture is cut into")->check(CLI::Range(1, 4096));
  add_tile(command, tile);
}

std::string PicturePlanFlags::given(bool guided) const {
  if (height > 0) return "--height";
  if (width > 0) return "--width";
  if (frames > 0) return "--num-frames";
  if (steps > 0) return "--steps";
  if (guidance >= 0 && !guided) return "--guidance-scale";
  if (patches > 1) return "--patches";
  return tile > 0 ? "--tile" : "";
}

PicturePlan plan_pictures(const Recipe& recipe, const Plan& plan, const PicturePlanFlags& flags,
                          Compute compute) {
  const auto& stack = *recipe.refinement;
  const auto& defaults = stack.defaults;
  const auto& codec = *recipe.video;
  const auto or_own = [](std::int64_t given, std::int64_t own) { return given > 0 ? given : own; };
  const auto own = own_size(stack, codec.space_scale(), codec.time_scale());
  const PictureSize size = {.frames = or_own(flags.frames, own.frames),
                            .height = or_own(flags.height, own.height),
                            .width = or_own(flags.width, own.width)};
  PicturePlan pictures;
  pictures.size = size;
  TokenGrid grid;
  try {
    grid = grid_of(stack, size, codec.space_scale(), codec.time_scale());
  } catch (const Error& problem) {
    throw_usage(problem.what());
  }
  pictures.tokens = grid.tokens();
  const codec::LatentSize latent = {.frames = (size.frames - 1) / codec.time_scale() + 1,
                                    .height = size.height / codec.space_scale(),
                                    .width = size.width / codec.space_scale()};
  const auto colours = static_cast<std::uint64_t>(3 * size.frames * size.height * size.width);
  pictures.decoding_bytes = codec::decoding_bytes(codec, latent) + colours;
  if (const auto tiling = tiling_of(flags.tile, codec)) {
    // Of tiles all frames are kept, in floats, until their borders are faded into one another.
    const auto places = tiling->size / codec.space_scale();
    const codec::LatentSize tile = {.frames = latent.frames,
                                    .height = std::min(places, latent.height),
                                    .width = std::min(places, latent.width)};
    pictures.tiled_bytes = codec::decoding_bytes(codec, tile) + colours * (1 + sizeof(float));
  }
  pictures.branches = (flags.guidance < 0 ? defaults.guidance : flags.guidance) > 1 ? 2 : 1;
  pictures.text_rows = stack.text_rows;
  pictures.encoder = plan.encoders.front();
  pictures.steps = or_own(flags.steps, defaults.steps);
  PatchFlags patches;
  patches.settings.patches = flags.patches;
  if (flags.patches > 1) patches.carry_on = CarryOn::balanced;
  patches.whole_share = flags.patches > 1;
  pictures.patches = patches.settings_of(pictures.steps);
  pictures.borders = patch_borders(grid.frames * grid.height, pictures.tokens, flags.patches);
  pictures.carry_bytes = static_cast<std::uint64_t>(pictures.tokens * recipe.hidden) * sizeof(float);
  for (const auto& slice : plan.ranks) {
    pictures.kv_bytes.push_back(static_cast<std::uint64_t>(pictures.branches) *
                                refinement_kv_bytes(recipe, slice, pictures.tokens, pictures.text_rows,
                                                    flags.patches > 1 ? history_of(patches.carry_on) : 0,
                                                    compute));
  }
  return pictures;
}

SimulationReport simulate_pictures(const Plan& plan, const PicturePlan& pictures, std::int64_t requests) {
  RefinementNeed need;
  need.steps = pictures.steps;
  need.branches = pictures.branches;
  need.borders = pictures.borders;
  need.settings = pictures.patches;
  need.pages = 1;
  const std::vector<RefinementNeed> needs(static_cast<std::size_t>(requests), need);
  RefinementPolicy policy({plan.stages, requests}, needs);
  SimulationConfig simulation;
  simulation.send_buffers = 3;
  std::int64_t most = 1;
  for (const auto& slice : plan.ranks) most = std::max(most, slice.layers());
  for (const auto& slice : plan.ranks) {
    if (slice.idle()) continue;
    const auto share = static_cast<double>(slice.layers()) / static_cast<double>(most);
    simulation.stages.push_back({0, share / static_cast<double>(pictures.tokens)});
  }
  return simulate(simulation, bind_policy(policy), [](std::size_t, std::int64_t) { return false; });
}

Json to_json(const PicturePlan& pictures) {
  Json decoding = {{"bytes", pictures.decoding_bytes}};
  if (pictures.tiled_bytes) decoding["tiled_bytes"] = *pictures.tiled_bytes;
  return {{"decoding", std::move(decoding)},     {"tokens", pictures.tokens},
          {"branches", pictures.branches},       {"text_rows", pictures.text_rows},
          {"patches", pictures.patches.patches}, {"kv_bytes", pictures.kv_bytes},
          {"carry_bytes", pictures.carry_bytes}};
}

void print(const PicturePlan& pictures, const Recipe& recipe) {
  std::printf(
      "The stack's %lld layers are cut. The text encoder (%zu layers) is on rank %d, the codec on rank 0; a "
      "text travels once a request, %lld rows for each of %d branches; from stage to stage travels one "
      "tensor a pass, %s.\n",
      static_cast<long long>(recipe.depth()), recipe.encoder->blocks.size(), pictures.encoder,
      static_cast<long long>(pictures.text_rows), pictures.branches,
      human_bytes(pictures.carry_bytes).c_str());
  std::printf("A request of %lld x %lld x %lld pixels, %lld tokens%s, takes keys and values of:",
              static_cast<long long>(pictures.size.frames), static_cast<long long>(pictures.size.height),
              static_cast<long long>(pictures.size.width), static_cast<long long>(pictures.tokens),
              pictures.patches.patches > 1 ? ", in patches" : "");
  for (std::size_t rank = 0; rank < pictures.kv_bytes.size(); ++rank)
    std::printf(" rank %zu %s%s", rank, human_bytes(pictures.kv_bytes[rank]).c_str(),
                rank + 1 == pictures.kv_bytes.size() ? ".\n" : ",");
  std::printf("Decoding it takes %s of rank 0, beside the codec's weights",
              human_bytes(pictures.decoding_bytes).c_str());
  if (pictures.tiled_bytes) std::printf("; in tiles %s", human_bytes(*pictures.tiled_bytes).c_str());
  std::printf(".\n");
}

}  // namespace diffuse

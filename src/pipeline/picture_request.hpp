#pragma once
// From a job to pictures: what rank 0 does before a stack that refines runs. A request that cannot be
// answered gets its reason here and takes no part; the others are not disturbed.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "job/job.hpp"
#include "pipeline/refinement_driver.hpp"
#include "recipe/recipe.hpp"
#include "text/generate_options.hpp"
#include "text/tokenizer.hpp"

namespace diffuse {

// What of a pipeline's folder concerns the client, beside its weights.
struct PictureSide {
  std::optional<Tokenizer> tokenizer;  // without one, jobs of `tokens` run
  Json scheduler;                      // scheduler_config.json
  std::int64_t space_scale = 1;        // pixels that a latent element stands for, a side
  std::int64_t time_scale = 1;         // frames, all but the first

  // The scales are left at 1. Throws missing input where there is no scheduler; refused where
  // model_index.json and a component's own config name other classes.
  static PictureSide open(const std::filesystem::path& folder);
  static PictureSide open(const std::filesystem::path& folder, const VideoCodec& codec);
  // Throws refused where no request could run: a scheduler that this build does not have, or that pipelines
  // of this kind do not go with.
  void check(const Recipe& recipe) const;
};

// So many steps are whole where nothing else is asked for.
std::int64_t usual_whole_steps(std::int64_t steps);

// Patches with `whole` of so many steps whole, where they help most: about a fifth of them at the end, of
// forty steps or more where no fewer than usual are whole; the others at the start, and at least as many
// there as patches are carried on from.
PatchSettings place_whole_steps(std::int32_t patches, std::int64_t whole, std::int64_t steps,
                                CarryOn carry_on);

// How the pictures of a run are cut.
struct PatchFlags {
  PatchSettings settings;
  CarryOn carry_on = CarryOn::off;
  // The settings' whole steps are not used: the part of a request's steps that suits most.
  bool whole_share = false;
  std::int64_t of_steps = 0;  // the settings' whole steps are of so many; of another number as large a part

  PatchSettings settings_of(std::int64_t steps) const;  // of a request with so many
};

struct PictureSize {
  std::int64_t frames = 1, height = 0, width = 0;  // of pixels
};
// What is made where a request names no size: the family's, or the largest that the stack has room for.
PictureSize own_size(const Refinement& stack, std::int64_t space_scale, std::int64_t time_scale);

// The tokens of a picture; a latent element stands for so many pixels a side and frames. Throws bad data
// where the stack does not make that size.
TokenGrid grid_of(const Refinement& stack, const PictureSize& size, std::int64_t space_scale,
                  std::int64_t time_scale);

struct PreparedPicture {
  std::string id;
  std::string problem;     // not empty: the request is bad, and this is why
  std::uint64_t seed = 0;  // that its noise is drawn of
  std::int64_t samples = 1;
  std::int64_t prompt_tokens = 0;
  std::int64_t height = 0, width = 0, frames = 1;  // of pixels
  MediaOutput output;
  TokenGrid grid;
  std::vector<std::shared_ptr<const EncoderInput>> texts;
  std::int64_t text_rows = 0;
  float guidance = 1;
  std::shared_ptr<const Scheduler> scheduler;
  std::vector<float> latent;  // that was given

  std::int64_t latent_elements(const Refinement& stack) const { return grid.tokens() * stack.inputs(); }
};

// One a request, in job order. Seeds that the job does not give are derived from its bytes. `kv_pages`: of
// every stage's budget.
std::vector<PreparedPicture> prepare_pictures(const Job& job, const PictureSide& side, const Recipe& recipe,
                                              const PatchFlags& patches, std::int64_t kv_pages);

// What every sample of a request shares: all but the request's number and the rows it starts from, which its
// memory does not depend on.
Picture without_start(const PreparedPicture& request, const PatchFlags& patches);

// What the samples of a request start from, one behind the other: noise that is drawn in one go, as by a
// batch of so many, or the latent that was given.
std::vector<float> start_latents(const PreparedPicture& request, const Refinement& stack);

// One sample, before its first step; `starts` as above.
Picture make_picture(const PreparedPicture& request, std::size_t index, std::int64_t sample,
                     std::span<const float> starts, const PatchFlags& patches, const Refinement& stack);

// The most patches that a step of any of them is cut into: no more than it has tokens, and 1 where all steps
// are whole. Bad requests do not count.
std::int64_t most_patches(std::span<const PreparedPicture> requests, const PatchFlags& patches);

// Throws bad data for a key of `generate` that means nothing to a picture.
void check_picture_keys(const Json& generate, const std::string& what);

}  // namespace diffuse

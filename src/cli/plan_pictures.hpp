#pragma once
// The part of `diffuse plan` that concerns pictures: what one takes of each rank, and how busy the stages
// would be.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "core/json.hpp"
#include "pipeline/picture_request.hpp"
#include "recipe/recipe.hpp"
#include "slice/plan.hpp"

namespace diffuse {

struct PicturePlanFlags {
  std::int64_t height = 0;  // 0: the model's own
  std::int64_t width = 0;
  std::int64_t frames = 0;
  std::int64_t steps = 0;
  double guidance = -1;  // negative: the model's own
  std::int32_t patches = 1;
  std::int64_t tile = 0;  // see add_tile()

  void add_to(CLI::App& command);
  // The first flag that was given, where `guided` is not looked for guidance; empty where none was.
  std::string given(bool guided = false) const;
};

struct PicturePlan {
  PictureSize size;
  std::int64_t tokens = 0;     // of a picture
  std::int32_t branches = 1;   // of a request
  std::int64_t text_rows = 0;  // that each branch reads
  std::int64_t steps = 0;
  // As `run` makes them: patches, and the steps that stay whole where nothing else is said.
  PatchSettings patches;
  std::vector<std::int64_t> borders;
  std::int32_t encoder = 0;             // the rank that encodes texts
  std::vector<std::uint64_t> kv_bytes;  // a rank: keys and values of a request's branches
  // What the codec takes of rank 0 for a picture at a time, beside its weights: whole, and in tiles.
  std::uint64_t decoding_bytes = 0;
  std::optional<std::uint64_t> tiled_bytes;
  std::uint64_t carry_bytes = 0;  // what travels from stage to stage for a whole pass
};

// Throws usage where the model makes no pictures, or its codec no tiles, of that size.
PicturePlan plan_pictures(const Recipe& recipe, const Plan& plan, const PicturePlanFlags& flags,
                          Compute compute);

// How busy each stage would be with so many requests at once, by the schedule of a run, passes lasting as
// long as their share of layers.
SimulationReport simulate_pictures(const Plan& plan, const PicturePlan& pictures, std::int64_t requests);

Json to_json(const PicturePlan& pictures);
void print(const PicturePlan& pictures, const Recipe& recipe);

}  // namespace diffuse

#pragma once
// Rank 0's loop of a stack that refines: asks the schedule what to do, tells every stage, computes its own
// slice, and makes the scheduler's step of what the last stage predicted.
//
// The scheduler's step is rank 0's, where the design had it on the last slice: the same numbers travel either
// way (a latent is as large as its prediction), the step is elementwise and costs nothing beside a pass, and
// everything that a stopped run needs to go on with is in one place.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipeline/carry_on.hpp"
#include "pipeline/stage.hpp"
#include "sampler/scheduler.hpp"
#include "schedule/refinement_policy.hpp"
#include "slice/encoder.hpp"
#include "transport/transport.hpp"

namespace diffuse {

// One picture, video or sound that a request asks for.
struct Picture {
  std::int64_t request = 0;  // in the job, for messages
  TokenGrid grid;
  // What the encoder is given for each guidance branch: the prompt, and where it is guided what to stay away
  // from.
  std::vector<std::shared_ptr<const EncoderInput>> texts;
  std::int64_t text_rows = 0;  // of memory
  float guidance = 1;
  PatchSettings patches;
  CarryOn carry_on = CarryOn::off;  // of keys and values, in patched steps
  int history = 0;                  // see RefinementLimits: the most that a picture of the run needs
  std::int64_t first_step = 0;
  std::vector<float> rows;  // the latent at first_step: [tokens, inputs]
  SamplerState state;       // and the scheduler's state there
  std::shared_ptr<const Scheduler> scheduler;

  std::int32_t branches() const { return static_cast<std::int32_t>(texts.size()); }
  std::vector<std::int64_t> borders() const;
  std::int64_t pages(int with_history) const;  // of keys and values, of all branches
  int keeps_history() const { return patches.patches > 1 ? history_of(carry_on) : 0; }
  // Whether its steps from there on are the same for one that starts there: what patched steps read of the
  // steps before them must be run anew.
  bool can_start_at(std::int64_t step) const;
};

RefinementNeed need_of(const Picture& picture);

// A picture between two steps: what a stopped run goes on with.
struct PictureState {
  std::int64_t step = 0;  // the next one
  std::span<const float> rows;
  SamplerState state;
};

// A step of a picture is done.
struct SteppedPicture {
  std::int64_t step = 0;                // the next one
  bool can_start = false;               // see Picture::can_start_at
  std::span<const float> rows;          // of the latent; until the call returns
  std::function<PictureState()> state;  // makes it, where somebody wants it
};

struct RefinementEvents {
  std::function<void(std::size_t picture, const SteppedPicture& stepped)> on_step = {};
  // The run was stopped, and leaves a picture between two steps that it has come to, where it can start
  // again.
  std::function<void(std::size_t picture, const PictureState& state)> on_stopped = {};
  // All its steps are done: the latent's rows. Or it went wrong, and `problem` says how.
  std::function<void(std::size_t picture, std::vector<float> rows, const std::string& problem)> on_latent;
  // It has left the stages; with tracing, digests of all layers: [depth + 1][branches * steps].
  std::function<void(std::size_t picture, std::vector<std::uint64_t> digests, std::int64_t positions)>
      on_done;
  std::function<bool()> stop = {};
  std::function<void(const std::string& state)> progress = {};
};

struct RefinementReport {
  bool stopped = false;
  std::vector<StageReport> stages;
  std::int64_t encode_ns = 0;
  std::int64_t wall_ns = 0;
  std::uint64_t passes = 0;
  std::uint64_t steps = 0;  // of schedulers
};

struct RefinementPlan {
  std::vector<std::int64_t> layers;  // of digests that each stage holds: its own, and one more on the first
  std::int64_t kv_pages = 0;
  bool trace = false;
  std::int32_t encoder = 0;  // the rank that encodes the texts: rank 0, or one without layers
};

// Pictures that need more than plan.kv_pages throw internal: they are refused before.
RefinementReport refine(Stage& stage, Transport& transport, const Refinement& stack,
                        std::vector<Picture> pictures, const RefinementPlan& plan,
                        const RefinementEvents& events);

}  // namespace diffuse

#pragma once
// Pipelines that refine with what diffusers says of them, and a stack of one or more slices run by hand.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "golden.hpp"
#include "recipe/refinement_recipe.hpp"
#include "slice/encoder.hpp"
#include "slice/refinement_executor.hpp"
#include "text/tokenizer.hpp"

namespace diffuse::test {

using Floats = std::vector<float>;

inline std::filesystem::path refinement_data() {
  return std::filesystem::path(DIFFUSE_TEST_DATA) / "refinement";
}

// The components of a pipeline that a recipe is made of.
struct Pipeline {
  explicit Pipeline(const std::filesystem::path& folder)
      : checkpoint(
            Checkpoint::open_components(folder, std::vector<std::string>{kStackComponent, kTextComponent})),
        recipe(
            build_refinement({checkpoint.config(), checkpoint.component_configs()}, checkpoint.headers())) {}
  Checkpoint checkpoint;
  Recipe recipe;
};

// A run of diffusers: the call, and latents and predictions of its steps.
struct RefinementCase {
  RefinementCase(const std::filesystem::path& model, const std::filesystem::path& golden)
      : pipeline(model),
        arrays(golden / "golden.safetensors"),
        call(read_json(golden / "golden.json").at("call")),
        tokenizer(Tokenizer::load(model / "tokenizer")) {
    const auto shape = arrays.floats("start").shape;  // [1, channels, frames, height, width]
    const auto& patch = pipeline.recipe.refinement->patch;
    grid = {static_cast<std::int64_t>(shape[2]) / patch.frames,
            static_cast<std::int64_t>(shape[3]) / patch.height,
            static_cast<std::int64_t>(shape[4]) / patch.width};
  }

  // With guidance, in this order.
  std::vector<EncoderInput> texts() const {
    std::vector<EncoderInput> inputs;
    for (const auto* const key : {"prompt", "negative_prompt"}) {
      auto& input = inputs.emplace_back();
      input.ids = tokenizer.encode(call.at(key).get<std::string>(), true);
      input.padded_rows = call.at("max_sequence_length").get<std::int64_t>();
    }
    return inputs;
  }

  // Of step 1, 2, … in the order of the run.
  Floats latents_before(int step) const {
    return arrays.floats(step == 1 ? "start" : "latents." + std::to_string(step - 1)).values;
  }
  double timestep(int step) const {
    const auto index = static_cast<std::size_t>(step - 1);
    if (arrays.has("timesteps")) return arrays.floats("timesteps").values[index];
    return std::floor(static_cast<double>(arrays.floats("sigmas").values[index]) * 1000);
  }
  bool has_step(int step) const {
    return arrays.has("prediction." + std::to_string(step)) &&
           (step == 1 || arrays.has("latents." + std::to_string(step - 1)));
  }

  Pipeline pipeline;
  Arrays arrays;
  Json call;
  Tokenizer tokenizer;
  TokenGrid grid;
};

inline std::vector<Floats> encode(const Pipeline& pipeline, Backend& backend,
                                  const std::vector<EncoderInput>& inputs) {
  RankSlice slice;
  slice.encoder = true;
  slice.tensors = tensors_of(*pipeline.recipe.encoder);
  auto weights = load_slice(pipeline.recipe, slice, pipeline.checkpoint, backend);
  std::vector<const EncoderInput*> pointers;
  std::int64_t rows = 0;
  for (const auto& input : inputs) {
    pointers.push_back(&input);
    rows += static_cast<std::int64_t>(input.ids.size());
  }
  EncoderRunner runner(pipeline.recipe, *weights.encoder, backend, rows);
  return runner.encode(pointers);
}

// A run of tokens of a step.
struct PatchRun {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
};

inline std::vector<PatchRun> cut(std::int64_t tokens, std::int64_t patches) {
  std::vector<PatchRun> runs;
  for (std::int64_t i = 0; i < patches; ++i) {
    const auto first = tokens * i / patches;
    runs.push_back({first, tokens * (i + 1) / patches - first});
  }
  return runs;
}

// All slices of a stack on one backend, what one leaves handed to the next.
class Stack {
 public:
  Stack(const Pipeline& pipeline, Backend& backend, const std::string& slices, std::int64_t tokens,
        std::int64_t text_rows, int slots, int history)
      : pipeline_(pipeline), backend_(backend) {
    const auto ranks = static_cast<std::int32_t>(std::count(slices.begin(), slices.end(), ',') + 1);
    const auto plan = make_plan(pipeline.recipe, pipeline.checkpoint.headers(), ranks, slices);
    for (auto slice : plan.ranks) {
      auto tensors = slice;
      tensors.encoder = false;
      weights_.push_back(
          std::make_unique<SliceWeights>(load_slice(pipeline.recipe, tensors, pipeline.checkpoint, backend)));
      executors_.emplace_back(
          pipeline.recipe, slice, backend, *weights_.back(),
          RefinementLimits{.max_rows = tokens,
                           .kv_pages = slots * refinement_pages(tokens, text_rows, history),
                           .history = history});
    }
    carry_ = executors_.front().make_carry();
  }

  void admit(std::int32_t slot, const TokenGrid& grid, const Floats& text) {
    const auto rows = static_cast<std::int64_t>(text.size()) / pipeline_.recipe.encoder->hidden;
    for (auto& executor : executors_) {
      executor.admit(slot, grid, rows);
      executor.remember(slot, text);
    }
    if (grids_.size() <= static_cast<std::size_t>(slot)) grids_.resize(static_cast<std::size_t>(slot) + 1);
    grids_[static_cast<std::size_t>(slot)] = grid;
  }
  void release(std::int32_t slot) {
    for (auto& executor : executors_) executor.release(slot);
  }

  // One step of a slot in runs of tokens: latents -> prediction, both [channels, frames, height, width].
  Floats step(std::int32_t slot, double timestep, const Floats& latents, std::int64_t patches = 1,
              float extrapolation = 0, float balance = 0) {
    const auto& grid = grids_[static_cast<std::size_t>(slot)];
    const auto& refinement = *pipeline_.recipe.refinement;
    Floats prediction(static_cast<std::size_t>(grid.tokens() * refinement.outputs()));
    for (const auto& run : cut(grid.tokens(), patches)) {
      const RefinementPass pass{slot, timestep, run.first_row, run.rows, extrapolation, balance};
      Floats rows(static_cast<std::size_t>(run.rows * refinement.inputs()));
      patchify(refinement.patch, refinement.channels, grid, run.first_row, latents, rows);
      const Rows hidden{carry_.floats(), run.rows, pipeline_.recipe.hidden, pipeline_.recipe.hidden};
      executors_.front().embed(pass, rows, hidden);
      for (auto& executor : executors_) executor.run(pass, hidden);
      const auto made = executors_.back().predict(pass, hidden);
      const auto values = from_device(backend_, made.data, made.rows * made.cols);
      unpatchify(refinement.patch, refinement.out_channels, grid, run.first_row, values, prediction);
    }
    return prediction;
  }

  RefinementExecutor& executor(std::size_t slice) { return executors_[slice]; }
  const SliceWeights& weights(std::size_t slice) const { return *weights_[slice]; }

 private:
  const Pipeline& pipeline_;
  Backend& backend_;
  std::vector<std::unique_ptr<SliceWeights>> weights_;
  std::deque<RefinementExecutor> executors_;
  std::vector<TokenGrid> grids_;
  Buffer carry_;
};

}  // namespace diffuse::test

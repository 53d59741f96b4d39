#pragma once
// Runs blocks of loaded steps over rows in a backend's memory: what the slice of a stack and an encoder have
// in common. Owns scratch, no state of a sequence.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "recipe/recipe.hpp"
#include "slice/weights.hpp"

namespace diffuse {

// The rows of one pass: which sequences they belong to and where they stand there.
struct BatchContext {
  std::vector<Segment> segments;        // of self attention
  std::vector<Segment> memory;          // the same rows, with the pages and the number of keys of the memory
  std::vector<std::int64_t> positions;  // [rows]
  // [rows], where tokens stand in a grid: the place on each axis.
  std::vector<std::array<std::int64_t, kAxes>> places = {};
  // [rows of a Modulate step, hidden] on the device: what its table is added to.
  const float* condition = nullptr;
};

class BlockRunner {
 public:
  // All must outlive it. `ropes` are the recipe's; passes have at most `max_rows` rows of `hidden` elements.
  BlockRunner(Backend& backend, std::span<const RopeSpec> ropes, std::span<const Block> blocks,
              std::int64_t hidden, std::int64_t max_rows);
  ~BlockRunner();

  // Before the blocks of a pass. `context` stays as it is until the backend has synchronized.
  void begin(const BatchContext& context);
  // In place: `hidden` [rows, hidden]. Keys and values go where the steps' pools say. `watch` sees the
  // queries of each cross-attention step, [rows, heads * head_dim], once its keys are there; may be empty.
  using Watch = std::function<void(const CrossAttentionStep& step, ConstRows q)>;
  void run(std::span<LoadedStep> block, const BatchContext& context, Rows hidden, const Watch& watch = {});

  void norm(const LoadedNorm& norm, ConstRows in, Rows out, std::int64_t groups = 1);
  // Scaled and shifted by rows of `modulation` [.., hidden] on the device.
  void norm(const LoadedNorm& norm, const ModulationRows& rows, const float* modulation, ConstRows in,
            Rows out);
  // Ids [rows, codebooks] at `positions` -> hidden. Synchronizes where the front has positions or several
  // codebooks. Throws internal where there are not as many ids.
  void embed(const LoadedFront& loaded, const Front& front, std::span<const std::int32_t> ids,
             std::span<const std::int64_t> positions, Rows hidden);
  // Keys and values of `memory` [rows <= max_rows, encoder hidden], which stands at `segment` of its
  // sequence.
  void remember(const CrossAttentionStep& step, ConstRows memory, const Segment& segment);

 private:
  struct Scratch;
  void embed_ids(const LoadedFront& loaded, const Front& front, std::span<const std::int32_t> ids,
                 Rows hidden);
  void attention(AttentionStep& step, const BatchContext& context, Rows in, Rows out);
  Rows queries(const CrossAttentionStep& step, ConstRows in);
  void cross_attention(CrossAttentionStep& step, const BatchContext& context, ConstRows q, Rows out);
  void mlp(const MlpStep& step, Rows in, Rows out);
  void experts(const ExpertsStep& step, Rows in, Rows out);
  void rotate(std::int32_t rope, Rows rows, std::int64_t heads, std::int64_t head_dim);
  Rows slot(Slot which, Rows hidden) const;

  Backend& backend_;
  std::span<const RopeSpec> ropes_;
  std::int64_t max_rows_;
  std::unique_ptr<Scratch> scratch_;
};

KvSpec kv_spec(const Attention& attention);
KvSpec kv_spec(const CrossAttention& attention);

}  // namespace diffuse

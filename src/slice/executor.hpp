#pragma once
// Runs one slice of a model on a backend and owns the state that lives with its layers: the key-value cache,
// and with tracing the digests of what left each layer. Knows steps and slots, never families, peers or
// schedules.
//
// Where the stack reads an encoder, each sequence has keys and values of its memory beside its cache, in
// pages of the same pools: made once, by remember(), and read by every step; slots may share them.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "recipe/recipe.hpp"
#include "schedule/step.hpp"
#include "slice/block_runner.hpp"
#include "slice/kv_pages.hpp"
#include "slice/kv_pools.hpp"
#include "slice/plan.hpp"
#include "slice/weights.hpp"

namespace diffuse {

// A head whose cross-attention is kept, for who asks where the answer was read from.
struct WatchedHead {
  std::int64_t layer = 0;
  std::int64_t head = 0;
};

struct ExecutorLimits {
  std::int64_t max_rows = 512;             // rows of one step
  std::int64_t max_samples = kMaxEntries;  // rows whose logits are asked for at once
  std::int64_t kv_pages = 1;               // pages of each layer's pool
  bool trace = false;
  std::vector<WatchedHead> watched = {};  // of the whole stack; see SampleSpec::watched_ids
};

class Executor {
 public:
  // Recipe, backend and weights must outlive the executor, and one executor at a time uses the weights: its
  // key-value pools hang on their attention steps.
  Executor(const Recipe& recipe, RankSlice slice, Backend& backend, SliceWeights& weights,
           const ExecutorLimits& limits);
  ~Executor();

  // Descriptor commands. `tokens`: most positions that the slot will hold; `memory_from` as in the
  // descriptor; where `watch`, its rows are watched. A release returns the digests of the slot: [own layers
  // (with the front's, where this slice has it)][positions], empty without tracing.
  void admit(std::int32_t slot, std::int64_t tokens, std::int64_t memory_rows = 0,
             std::int32_t memory_from = -1, bool watch = false);
  std::vector<std::uint64_t> release(std::int32_t slot, std::int64_t positions, bool keep_memory = false);
  // What was watched of a slot: of each watched head in this slice's layers, in the order of the limits'
  // list, [rows, memory rows]. Before its release.
  std::vector<float> take_watched(std::int32_t slot);

  // The memory [memory_rows, encoder hidden] of a slot, in memory of the host. Before its first step.
  void remember(std::int32_t slot, std::span<const float> memory);

  // Runs a step's rows through the slice, in place: `hidden` [rows, hidden] is what the slice before left
  // there; the first slice fills it from `ids` (one a row, checked against the vocabulary by the caller).
  void run(const Descriptor& step, std::span<const std::int32_t> ids, Rows hidden);

  // On the last slice: logits [rows, vocab] of the given rows of `hidden`, valid until the next call.
  Rows logits(ConstRows hidden, std::span<const std::int64_t> rows);

  // Rows of the residual in the backend's memory, for a step in flight.
  Buffer make_carry() const;

  const RankSlice& slice() const { return slice_; }

 private:
  struct StepContext;
  void move_lanes(const Descriptor& step);
  void watch(const StepContext& context, const CrossAttentionStep& cross, ConstRows q, std::int64_t layer);
  void run_blocks(const StepContext& context, Rows hidden);
  // True where the blocks of a step can be recorded: one row a sequence, and nothing for the host to do.
  bool repeats(const Descriptor& step) const;
  void digest(const StepContext& context, ConstRows hidden, std::int64_t layer);

  const Recipe& recipe_;
  RankSlice slice_;
  Backend& backend_;
  SliceWeights& weights_;
  ExecutorLimits limits_;
  std::vector<WatchedHead> heads_;  // of the watched ones those in this slice
  KvPages pages_;
  BlockRunner runner_;
  Buffer sampled_, logits_;                                     // on the last slice
  Buffer memory_;                                               // rows of one, where there is an encoder
  std::vector<std::vector<std::vector<std::uint64_t>>> trace_;  // [slot][own layer][position]
  // [slot][watched head of this slice], each [rows, memory rows]; a slot that is not watched has none.
  std::vector<std::vector<std::vector<float>>> watched_;
  std::unique_ptr<Repetition> repetition_;  // of the blocks; null where the host is needed between them
};

}  // namespace diffuse

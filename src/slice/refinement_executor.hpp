#pragma once
// Runs one slice of a stack that refines a latent picture, and owns the state that lives with its layers: of
// each slot (one picture under one text) the keys and values of all of its tokens, and those of the text.
// Knows steps and slots, never families, schedulers or schedules.
//
// A pass runs the rows of one patch, which is a run of tokens: all of them (whole), or a part. At each layer
// a pass overwrites its own tokens' keys and values and attends to those of all tokens: fresh where the
// patches before it have passed in this step, and predicted where they have not. The prediction is what the
// step before left, or that carried on from what the steps before it left: see RefinementPass.
//
// Patches of a step come in order from the first token to the last, and a slot's first step is whole. One
// patch is the same as whole, in every bit. Otherwise a row depends on the patches of its own step and the
// steps before, and on nothing else.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "recipe/recipe.hpp"
#include "slice/block_runner.hpp"
#include "slice/kv_pages.hpp"
#include "slice/patches.hpp"
#include "slice/plan.hpp"
#include "slice/weights.hpp"

namespace diffuse {

// Tokens [first_row, first_row + rows) of a slot's picture, in the order frame, row, column.
struct RefinementPass {
  std::int32_t slot = 0;
  double timestep = 0;  // as the scheduler gives it to the model
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  // What stands for what is not fresh yet, of the keys and values a, b of the last two steps, the newest
  // first, and of all that what stood there was off by since the last whole step; read from the first patch
  // of a step: a + extrapolation * (a - b) + balance * off. The first weight needs RefinementLimits::history
  // of 1, the second one 2. Where only one whole step was run, it is a.
  float extrapolation = 0;
  float balance = 0;
};

struct RefinementLimits {
  std::int64_t max_rows = 0;  // of one pass
  std::int64_t kv_pages = 0;  // of each layer's pool: the sum of refinement_pages over the slots
  // Beside those of the last step, each slot keeps keys and values 1: of the one before, 2: and what they
  // would have been without all that they were off by.
  int history = 0;
};

// Pages that a slot takes of each layer's pool.
std::int64_t refinement_pages(std::int64_t tokens, std::int64_t text_rows, int history);
// Of keys and values, the bytes of one slot on a slice: pure, for plan. The backend's own pages can be
// longer by what pads odd head sizes.
std::uint64_t refinement_kv_bytes(const Recipe& recipe, const RankSlice& slice, std::int64_t tokens,
                                  std::int64_t text_rows, int history, Compute compute);

class RefinementExecutor {
 public:
  // Recipe, backend and weights must outlive it, and one executor at a time uses the weights: its key-value
  // pools hang on their attention steps.
  RefinementExecutor(const Recipe& recipe, RankSlice slice, Backend& backend, SliceWeights& weights,
                     const RefinementLimits& limits);
  ~RefinementExecutor();

  // `text_rows`: of the memory that remember() brings. Throws internal where the slot is taken, pages are
  // short, or the grid is larger than the recipe's.
  void admit(std::int32_t slot, const TokenGrid& grid, std::int64_t text_rows);
  // The text [text_rows, encoder hidden] of a slot as the encoder's last projection leaves it, in memory of
  // the host. Before its first pass.
  void remember(std::int32_t slot, std::span<const float> text);
  void release(std::int32_t slot);

  // On the first slice: patches [rows, Refinement::inputs()] in memory of the host -> hidden [rows, hidden].
  void embed(const RefinementPass& pass, std::span<const float> patches, Rows hidden);
  // Runs the rows of a pass through the slice's layers, in place. `after` sees the rows behind each layer, by
  // its number in the slice; may be empty.
  using AfterLayer = std::function<void(std::int64_t layer, ConstRows hidden)>;
  void run(const RefinementPass& pass, Rows hidden, const AfterLayer& after = {});
  // On the last slice: hidden [rows, hidden] -> [rows, Refinement::outputs()], valid until the next call.
  Rows predict(const RefinementPass& pass, ConstRows hidden);

  // Rows of the residual in the backend's memory, for a pass in flight: [max_rows, hidden].
  Buffer make_carry() const;

  const RankSlice& slice() const { return slice_; }

 private:
  struct Slot;
  Slot& slot_of(const RefinementPass& pass, std::int64_t rows);
  // What the pass's time comes to, made where it is another than the slot's last.
  void set_time(Slot& slot, double timestep);
  // Before the first patch of a step: it takes the pages of the oldest step that it reads, and makes the
  // prediction there.
  void start_step(Slot& slot, const RefinementPass& pass);
  void balance(const Slot& slot, const RefinementPass& pass);
  // What the table `to` holds becomes what follows on it and `from`, by a weight; of all layers.
  void extrapolate(std::int32_t from, std::int32_t to, float weight);
  std::int32_t table_of(std::int32_t slot, std::int32_t table) const;

  const Recipe& recipe_;
  const Refinement& refinement_;
  RankSlice slice_;
  Backend& backend_;
  SliceWeights& weights_;
  RefinementLimits limits_;
  KvPages pages_;
  BlockRunner runner_;
  std::vector<Slot> slots_;
  Buffer text_;        // rows of one, on their way to the layers
  Buffer sinusoids_;   // [1, time's inputs]
  Buffer time_;        // [1, hidden] between the products
  Buffer patches_;     // [max_rows, inputs], on the first slice
  Buffer normed_;      // [max_rows, hidden], on the last
  Buffer shift_;       // [2, hidden]
  Buffer prediction_;  // [max_rows, outputs]
};

}  // namespace diffuse

#include "slice/refinement_executor.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/exact_math.hpp"
#include "slice/expected_steps.hpp"
#include "slice/kv_pools.hpp"
#include "slice/view.hpp"

namespace diffuse {
namespace {

std::int64_t pages_for(std::int64_t positions) {
  return (positions + kPageTokens - 1) / kPageTokens;
}

}  // namespace

std::int64_t refinement_pages(std::int64_t tokens, std::int64_t text_rows, int history) {
  return pages_for(tokens) * (history + 1) + pages_for(text_rows);
}

std::uint64_t refinement_kv_bytes(const Recipe& recipe, const RankSlice& slice, std::int64_t tokens,
                                  std::int64_t text_rows, int history, Compute compute) {
  const auto pages = refinement_pages(tokens, text_rows, history);
  std::int64_t elements = 0;
  for (const auto& block : blocks_of(recipe, slice)) elements += kv_elements(block);
  return static_cast<std::uint64_t>(pages * kPageTokens * elements) * (compute == Compute::bf16 ? 2 : 4);
}

struct RefinementExecutor::Slot {
  bool taken = false;
  TokenGrid grid;
  std::int64_t steps = 0;     // begun
  std::int64_t next_row = 0;  // of the step under way; 0: a step is to start
  // Its tables of pages: of the newest step (under way, or the last), and of the one before.
  std::array<std::int32_t, 2> tables = {0, 1};
  bool before = false;    // the latter holds something
  bool balanced = false;  // the third one holds something: see balance()
  double timestep = std::numeric_limits<double>::quiet_NaN();
  Buffer embedding;  // [1, hidden] of that time
  Buffer condition;  // [rows of modulation, hidden]
};

RefinementExecutor::RefinementExecutor(const Recipe& recipe, RankSlice slice, Backend& backend,
                                       SliceWeights& weights, const RefinementLimits& limits)
    : recipe_(recipe),
      refinement_(*recipe.refinement),
      slice_(std::move(slice)),
      backend_(backend),
      weights_(weights),
      limits_(limits),
      pages_(limits.kv_pages),
      runner_(backend, recipe.ropes, blocks_of(recipe, slice_), recipe.hidden, limits.max_rows) {
  const auto floats = [&](std::int64_t rows, std::int64_t cols) {
    return backend_.allocate(static_cast<std::size_t>(rows * cols) * sizeof(float));
  };
  const auto blocks = blocks_of(recipe_, slice_);
  for (std::size_t i = 0; i < weights_.blocks.size(); ++i)
    set_pools(backend_, blocks[i], weights_.blocks[i], limits_.kv_pages);
  text_ = floats(limits_.max_rows, recipe_.encoder->hidden);
  sinusoids_ = floats(1, refinement_.time.first.weight.cols);
  time_ = floats(1, recipe_.hidden);
  if (slice_.front) patches_ = floats(limits_.max_rows, refinement_.inputs());
  if (slice_.back) {
    normed_ = floats(limits_.max_rows, recipe_.hidden);
    shift_ = floats(2, recipe_.hidden);
    prediction_ = floats(limits_.max_rows, refinement_.outputs());
  }
  backend_.expect(expected_steps(weights_.blocks, {.rows = limits_.max_rows,
                                                   .samples = 1,
                                                   .positions = limits_.kv_pages * kPageTokens,
                                                   .pages = limits_.kv_pages}));
}

RefinementExecutor::~RefinementExecutor() = default;

void RefinementExecutor::admit(std::int32_t slot, const TokenGrid& grid, std::int64_t text_rows) {
  const std::array sizes = {grid.frames, grid.height, grid.width};
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    if (sizes[axis] < 1 || sizes[axis] > refinement_.most_patches[axis])
      throw_internal("slot " + std::to_string(slot) + " is admitted with " + std::to_string(sizes[axis]) +
                     " patches on an axis of at most " + std::to_string(refinement_.most_patches[axis]));
  }
  for (int table = 0; table <= limits_.history; ++table) {
    pages_.admit(table_of(slot, table), table == 0 ? text_rows : 0);
    pages_.grow(table_of(slot, table), grid.tokens());
  }
  const auto index = static_cast<std::size_t>(slot);
  if (slots_.size() <= index) slots_.resize(index + 1);
  const auto floats = [&](std::int64_t count) {
    return backend_.allocate(static_cast<std::size_t>(count) * sizeof(float));
  };
  slots_[index] = {.taken = true,
                   .grid = grid,
                   .embedding = floats(recipe_.hidden),
                   .condition = floats(refinement_.time.rows * recipe_.hidden)};
}

void RefinementExecutor::remember(std::int32_t slot, std::span<const float> text) {
  const auto width = recipe_.encoder->hidden;
  const auto rows = static_cast<std::int64_t>(text.size()) / width;
  if (rows != pages_.memory_rows(table_of(slot, 0)))
    throw_internal("a text does not have the rows it was admitted with");
  const auto most = std::min(rows, limits_.max_rows);
  for (std::int64_t first = 0; first < rows; first += most) {
    const auto count = std::min(most, rows - first);
    const auto part =
        text.subspan(static_cast<std::size_t>(first * width), static_cast<std::size_t>(count * width));
    backend_.upload(text_.data(), std::as_bytes(part));
    const Segment segment{0, count, first, pages_.memory_of(table_of(slot, 0))};
    for (auto& block : weights_.blocks) {
      for (const auto& step : block) {
        if (const auto* cross = std::get_if<CrossAttentionStep>(&step))
          runner_.remember(*cross, view(text_, count, width), segment);
      }
    }
    backend_.synchronize();
  }
}

void RefinementExecutor::release(std::int32_t slot) {
  for (int table = 0; table <= limits_.history; ++table) pages_.release(table_of(slot, table));
  slots_[static_cast<std::size_t>(slot)] = {};
}

RefinementExecutor::Slot& RefinementExecutor::slot_of(const RefinementPass& pass, std::int64_t rows) {
  const auto index = static_cast<std::size_t>(pass.slot);
  if (pass.slot < 0 || index >= slots_.size() || !slots_[index].taken)
    throw_internal("slot " + std::to_string(pass.slot) + " is used and nobody was admitted there");
  auto& slot = slots_[index];
  if (rows != pass.rows || rows < 1 || rows > limits_.max_rows || pass.first_row < 0 ||
      pass.first_row + rows > slot.grid.tokens())
    throw_internal("a pass's rows are not of its picture, or do not fit its carry");
  return slot;
}

void RefinementExecutor::set_time(Slot& slot, double timestep) {
  if (slot.timestep == timestep) return;
  const auto& time = refinement_.time;
  const auto& loaded = *weights_.refinement;
  const auto half = time.frequencies.size();
  std::vector<float> values(2 * half);
  for (std::size_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(timestep) * time.frequencies[i];
    values[time.cosines_first ? half + i : i] = static_cast<float>(exact::sin(angle));
    values[time.cosines_first ? i : half + i] = static_cast<float>(exact::cos(angle));
  }
  backend_.upload(sinusoids_.data(), std::as_bytes(std::span(values)));
  const auto embedding = view(slot.embedding, 1, recipe_.hidden);
  const auto between = view(time_, 1, recipe_.hidden);
  const auto product = [&](ConstRows x, const LoadedLinear& linear, Rows y, Activation activation) {
    backend_.matmul(x, *linear.matrix, y, {.bias = linear.bias_data(), .activation = activation});
  };
  product(view(sinusoids_, 1, time.first.weight.cols), loaded.time_first, between, time.first.activation);
  product(between, loaded.time_second, embedding, time.second.activation);
  backend_.activate(embedding, between, Activation::silu);
  product(between, loaded.time_condition, view(slot.condition, 1, time.rows * recipe_.hidden),
          time.condition.activation);
  backend_.synchronize();  // `values` ends here
  slot.timestep = timestep;
}

// KvPages knows each table of a slot as a slot of its own.
std::int32_t RefinementExecutor::table_of(std::int32_t slot, std::int32_t table) const {
  return slot * (limits_.history + 1) + table;
}

void RefinementExecutor::extrapolate(std::int32_t from, std::int32_t to, float weight) {
  for (auto& block : weights_.blocks) {
    for (const auto& step : block) {
      if (const auto* attention = std::get_if<AttentionStep>(&step))
        backend_.extrapolate(attention->kv, pages_.of(from), pages_.of(to), weight);
    }
  }
}

void RefinementExecutor::start_step(Slot& slot, const RefinementPass& pass) {
  const bool whole = pass.rows == slot.grid.tokens();
  if (slot.steps == 0 && !whole)
    throw_internal("slot " + std::to_string(pass.slot) + " starts with a part of its picture");
  const int asked = pass.balance != 0 ? 2 : pass.extrapolation != 0 ? 1 : 0;
  if (asked > limits_.history)
    throw_internal("keys and values are to be carried on from " + std::to_string(asked + 1) +
                   " tables, and " + std::to_string(limits_.history + 1) + " are kept");
  // A prediction takes the place of the older step that it is made of: pages that no step has written, which
  // may hold anything, are never read.
  const bool on = whole ? limits_.history > 0 : asked > 0 && slot.before;
  if (on) std::swap(slot.tables[0], slot.tables[1]);
  if (whole) {
    slot.before = on && slot.steps > 0;
  } else if (on && asked == 2) {
    balance(slot, pass);
  } else if (on) {
    extrapolate(table_of(pass.slot, slot.tables[1]), table_of(pass.slot, slot.tables[0]), pass.extrapolation);
  }
  slot.balanced = !whole && on && asked == 2;
  ++slot.steps;
}

// With a and b of the last two steps, and p = (the prediction of the last) - (all that those before it were
// off by), so that a - p is all that they were off by until now: b becomes the new prediction,
// a + extrapolation * (a - b) + balance * (a - p), and p becomes p + b - a. Both are put together of steps
// that go from one table towards another, or beyond.
void RefinementExecutor::balance(const Slot& slot, const RefinementPass& pass) {
  const auto a = table_of(pass.slot, slot.tables[1]);
  const auto b = table_of(pass.slot, slot.tables[0]);
  const auto p = table_of(pass.slot, 2);
  if (!slot.balanced) {
    extrapolate(a, b, pass.extrapolation);
    extrapolate(b, p, 0);
  } else {
    extrapolate(a, b, pass.extrapolation / (1 + pass.balance));
    extrapolate(p, b, -(1 + pass.balance));
    extrapolate(b, p, -0.5F);
    extrapolate(a, p, -2);
  }
}

void RefinementExecutor::embed(const RefinementPass& pass, std::span<const float> patches, Rows hidden) {
  slot_of(pass, hidden.rows);
  const auto width = refinement_.inputs();
  if (static_cast<std::int64_t>(patches.size()) != pass.rows * width)
    throw_internal("a pass's patches are not as many as its rows");
  backend_.upload(patches_.data(), std::as_bytes(patches));
  const auto& front = *weights_.refinement->front;
  backend_.matmul(view(patches_, pass.rows, width), *front.matrix, hidden, {.bias = front.bias_data()});
  backend_.synchronize();  // `patches` are the caller's
}

void RefinementExecutor::run(const RefinementPass& pass, Rows hidden, const AfterLayer& after) {
  auto& slot = slot_of(pass, hidden.rows);
  if (pass.first_row != slot.next_row)
    throw_internal("slot " + std::to_string(pass.slot) + " goes on at token " +
                   std::to_string(slot.next_row) + ", and a pass starts at " +
                   std::to_string(pass.first_row));
  if (pass.first_row == 0) start_step(slot, pass);
  set_time(slot, pass.timestep);
  BatchContext batch;
  batch.segments.push_back({.first_row = 0,
                            .rows = pass.rows,
                            .first_position = pass.first_row,
                            .pages = pages_.of(table_of(pass.slot, slot.tables[0])),
                            .keys = slot.grid.tokens()});
  batch.memory.push_back({.first_row = 0,
                          .rows = pass.rows,
                          .first_position = pass.first_row,
                          .pages = pages_.memory_of(table_of(pass.slot, 0)),
                          .keys = pages_.memory_rows(table_of(pass.slot, 0))});
  const auto row_size = slot.grid.width;
  const auto frame_size = slot.grid.height * row_size;
  for (auto token = pass.first_row; token < pass.first_row + pass.rows; ++token)
    batch.places.push_back({token / frame_size, token % frame_size / row_size, token % row_size});
  batch.condition = slot.condition.floats();
  runner_.begin(batch);
  std::int64_t layer = 0;
  for (auto& block : weights_.blocks) {
    runner_.run(block, batch, hidden);
    if (after) after(layer, hidden);
    ++layer;
  }
  // The pages' tables and the ropes' host rows are in use until the queued work ran.
  backend_.synchronize();
  slot.next_row = pass.first_row + pass.rows == slot.grid.tokens() ? 0 : pass.first_row + pass.rows;
}

Rows RefinementExecutor::predict(const RefinementPass& pass, ConstRows hidden) {
  auto& slot = slot_of(pass, hidden.rows);
  set_time(slot, pass.timestep);
  const auto& back = *weights_.refinement->back;
  const auto width = recipe_.hidden;
  const auto shift = view(shift_, 2, width);
  const auto embedding = view(slot.embedding, 1, width);
  backend_.copy(view(back.table, 2, width), shift);
  backend_.add(embedding, {shift.data, 1, width, width}, 1);
  backend_.add(embedding, {shift.data + width, 1, width, width}, 1);
  const auto normed = view(normed_, pass.rows, width);
  runner_.norm(back.norm, ModulationRows{.shift = 0, .scale = 1}, shift.data, hidden, normed);
  const auto made = view(prediction_, pass.rows, refinement_.outputs());
  backend_.matmul(normed, *back.head.matrix, made, {.bias = back.head.bias_data()});
  return made;
}

Buffer RefinementExecutor::make_carry() const {
  return backend_.allocate(static_cast<std::size_t>(limits_.max_rows * recipe_.hidden) * sizeof(float));
}

}  // namespace diffuse

#include "slice/executor.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "slice/expected_steps.hpp"
#include "slice/view.hpp"

namespace diffuse {
namespace {

// A page of every pool of these layers. Steps of one block may share a pool; a page is copied once for each.
void copy_page(Backend& backend, const std::vector<std::vector<LoadedStep>>& blocks, const PageCopy& copy) {
  for (const auto& block : blocks) {
    std::vector<const std::byte*> done;
    for (const auto& step : block) {
      const auto* attention = std::get_if<AttentionStep>(&step);
      if (attention == nullptr) continue;
      const auto& pool = attention->kv;
      if (std::find(done.begin(), done.end(), pool.memory.data()) != done.end()) continue;
      done.push_back(pool.memory.data());
      const auto floats = static_cast<std::int64_t>(backend.kv_page_bytes(pool.spec) / sizeof(float));
      auto* memory = pool.memory.floats();
      backend.copy({memory + copy.from * floats, 1, floats, floats},
                   {memory + copy.to * floats, 1, floats, floats});
    }
  }
}

// Of the watched heads of the stack those in a slice, in order.
std::vector<WatchedHead> heads_of(const RankSlice& slice, const std::vector<WatchedHead>& watched) {
  std::vector<WatchedHead> heads;
  for (const auto& head : watched)
    if (head.layer >= slice.first_layer && head.layer < slice.first_layer + slice.layers())
      heads.push_back(head);
  return heads;
}

// Positions of the stack, or of the memory that it reads.
std::int64_t longest_context(const Recipe& recipe) {
  return recipe.encoder ? std::max(recipe.max_positions, recipe.encoder->max_positions)
                        : recipe.max_positions;
}

}  // namespace

struct Executor::StepContext {
  BatchContext batch;
  std::vector<std::int32_t> slots;  // [rows]
};

Executor::Executor(const Recipe& recipe, RankSlice slice, Backend& backend, SliceWeights& weights,
                   const ExecutorLimits& limits)
    : recipe_(recipe),
      slice_(std::move(slice)),
      backend_(backend),
      weights_(weights),
      limits_(limits),
      heads_(heads_of(slice_, limits_.watched)),
      pages_(limits.kv_pages),
      runner_(backend, recipe.ropes, blocks_of(recipe, slice_), recipe.hidden, limits.max_rows) {
  if (weights_.back) {
    const auto rows_of = [&](std::int64_t width) {
      return backend_.allocate(static_cast<std::size_t>(limits_.max_samples * width) * sizeof(float));
    };
    sampled_ = rows_of(recipe_.hidden);
    logits_ = rows_of(recipe_.vocab);
  }
  const auto blocks = blocks_of(recipe_, slice_);
  for (std::size_t i = 0; i < weights_.blocks.size(); ++i)
    set_pools(backend_, blocks[i], weights_.blocks[i], limits_.kv_pages);
  if (recipe_.encoder)
    memory_ = backend_.allocate(static_cast<std::size_t>(limits_.max_rows * recipe_.encoder->hidden) *
                                sizeof(float));
  const auto expected = expected_steps(weights_.blocks, {.rows = limits_.max_rows,
                                                         .samples = limits_.max_samples,
                                                         .positions = longest_context(recipe_),
                                                         .pages = limits_.kv_pages});
  backend_.expect(expected);
  // Digests and watched heads are fetched behind each layer, and experts send the host their numbers of rows.
  if (!limits_.trace && heads_.empty() && expected.experts.empty())
    repetition_ = backend_.make_repetition(expected.attentions);
}

Executor::~Executor() = default;

void Executor::admit(std::int32_t slot, std::int64_t tokens, std::int64_t memory_rows,
                     std::int32_t memory_from, bool watch) {
  pages_.admit(slot, memory_rows, memory_from);
  const auto index = static_cast<std::size_t>(slot);
  if (watched_.size() <= index) watched_.resize(index + 1);
  watched_[index].clear();
  if (watch) watched_[index].resize(heads_.size());
  if (!limits_.trace) return;
  if (trace_.size() <= index) trace_.resize(index + 1);
  const auto layers = static_cast<std::size_t>(slice_.layers() + (slice_.front ? 1 : 0));
  trace_[index].assign(layers, std::vector<std::uint64_t>(static_cast<std::size_t>(tokens)));
}

void Executor::remember(std::int32_t slot, std::span<const float> memory) {
  const auto width = recipe_.encoder->hidden;
  const auto rows = static_cast<std::int64_t>(memory.size()) / width;
  if (rows != pages_.memory_rows(slot))
    throw_internal("a memory does not have the rows it was admitted with");
  const auto most = std::min(rows, limits_.max_rows);
  for (std::int64_t first = 0; first < rows; first += most) {
    const auto count = std::min(most, rows - first);
    const auto part =
        memory.subspan(static_cast<std::size_t>(first * width), static_cast<std::size_t>(count * width));
    backend_.upload(memory_.data(), std::as_bytes(part));
    const Segment segment{0, count, first, pages_.memory_of(slot)};
    for (auto& block : weights_.blocks) {
      for (const auto& step : block) {
        if (const auto* cross = std::get_if<CrossAttentionStep>(&step))
          runner_.remember(*cross, view(memory_, count, width), segment);
      }
    }
    backend_.synchronize();
  }
}

std::vector<float> Executor::take_watched(std::int32_t slot) {
  std::vector<float> all;
  for (const auto& head : watched_.at(static_cast<std::size_t>(slot)))
    all.insert(all.end(), head.begin(), head.end());
  watched_[static_cast<std::size_t>(slot)].clear();
  return all;
}

std::vector<std::uint64_t> Executor::release(std::int32_t slot, std::int64_t positions, bool keep_memory) {
  pages_.release(slot, keep_memory);
  std::vector<std::uint64_t> digests;
  if (!limits_.trace) return digests;
  for (const auto& layer : trace_.at(static_cast<std::size_t>(slot))) {
    digests.insert(digests.end(), layer.begin(), layer.begin() + positions);
  }
  return digests;
}

Buffer Executor::make_carry() const {
  return backend_.allocate(static_cast<std::size_t>(limits_.max_rows * recipe_.hidden) * sizeof(float));
}

// Lanes that go on from others take over their pages and digests: all of a step at once, for a lane may both
// give and take.
void Executor::move_lanes(const Descriptor& step) {
  std::vector<LaneMove> moves;
  for (int i = 0; i < step.entries; ++i) {
    const auto& entry = step.entry[static_cast<std::size_t>(i)];
    if (entry.from >= 0) moves.push_back({entry.slot, entry.from, entry.first_position});
  }
  for (const auto& copy : pages_.move(moves)) copy_page(backend_, weights_.blocks, copy);
  if (!limits_.trace) return;
  std::vector<std::vector<std::vector<std::uint64_t>>> taken;
  for (const auto& move : moves) taken.push_back(trace_[static_cast<std::size_t>(move.from)]);
  for (std::size_t i = 0; i < moves.size(); ++i)
    trace_[static_cast<std::size_t>(moves[i].slot)] = std::move(taken[i]);
}

void Executor::run(const Descriptor& step, std::span<const std::int32_t> ids, Rows hidden) {
  move_lanes(step);
  StepContext context;
  auto& batch = context.batch;
  std::int64_t row = 0;
  // Before the views of their tables.
  for (int i = 0; i < step.entries; ++i) {
    const auto& entry = step.entry[static_cast<std::size_t>(i)];
    pages_.grow(entry.slot, entry.first_position + entry.rows);
  }
  for (int i = 0; i < step.entries; ++i) {
    const auto& entry = step.entry[static_cast<std::size_t>(i)];
    batch.segments.push_back({row, entry.rows, entry.first_position, pages_.of(entry.slot)});
    if (recipe_.encoder) {
      batch.memory.push_back({row, entry.rows, entry.first_position, pages_.memory_of(entry.slot),
                              pages_.memory_rows(entry.slot)});
    }
    for (std::int32_t r = 0; r < entry.rows; ++r) {
      batch.positions.push_back(entry.first_position + r);
      context.slots.push_back(entry.slot);
    }
    row += entry.rows;
  }
  if (row != hidden.rows || row > limits_.max_rows) throw_internal("a step's rows do not fit its carry");
  runner_.begin(batch);
  if (slice_.front) {
    runner_.embed(*weights_.front, recipe_.front, ids, batch.positions, hidden);
    digest(context, hidden, 0);
  }
  if (repeats(step)) {
    repetition_->run({hidden, batch.segments, batch.memory}, [&] { run_blocks(context, hidden); });
  } else {
    run_blocks(context, hidden);
  }
  // The context's page tables and the ropes' host rows are in use until the queued work ran.
  backend_.synchronize();
}

bool Executor::repeats(const Descriptor& step) const {
  const auto entries = std::span(step.entry).first(step.entries);
  return repetition_ != nullptr && !entries.empty() &&
         std::all_of(entries.begin(), entries.end(), [](const Entry& entry) { return entry.rows == 1; });
}

void Executor::run_blocks(const StepContext& context, Rows hidden) {
  std::int64_t layer = slice_.front ? 1 : 0;
  for (auto& block : weights_.blocks) {
    if (heads_.empty()) {
      runner_.run(block, context.batch, hidden);
    } else {
      runner_.run(block, context.batch, hidden, [&](const CrossAttentionStep& cross, ConstRows q) {
        watch(context, cross, q, layer - (slice_.front ? 1 : 0));
      });
    }
    digest(context, hidden, layer++);
  }
}

// The cross-attention of the rows of watched slots, by the watched heads of an own layer.
void Executor::watch(const StepContext& context, const CrossAttentionStep& cross, ConstRows q,
                     std::int64_t layer) {
  for (const auto& segment : context.batch.memory) {
    const auto slot = static_cast<std::size_t>(context.slots[static_cast<std::size_t>(segment.first_row)]);
    for (std::size_t i = 0; i < watched_[slot].size(); ++i) {
      if (heads_[i].layer != slice_.first_layer + layer) continue;
      const auto& a = *cross.step;
      const auto buffer =
          backend_.allocate(static_cast<std::size_t>(segment.rows * segment.keys) * sizeof(float));
      backend_.attention_weights(
          {.q = {q.data + segment.first_row * q.stride, segment.rows, q.cols, q.stride},
           .out = view(buffer, segment.rows, segment.keys),
           .kv = &cross.kv,
           .pages = segment.pages,
           .heads = a.heads,
           .head = heads_[i].head,
           .scale = a.scale});
      auto& kept = watched_[slot][i];
      const auto before = kept.size();
      kept.resize(before + static_cast<std::size_t>(segment.rows * segment.keys));
      backend_.download(std::as_writable_bytes(std::span(kept).subspan(before)), buffer.data());
    }
  }
}

void Executor::digest(const StepContext& context, ConstRows hidden, std::int64_t layer) {
  if (!limits_.trace) return;
  const auto row_bytes = static_cast<std::size_t>(hidden.cols) * sizeof(float);
  std::vector<std::byte> copy;
  const auto* bytes = reinterpret_cast<const std::byte*>(hidden.data);
  if (backend_.host_addressable()) {
    backend_.synchronize();
  } else {
    copy.resize(static_cast<std::size_t>(hidden.rows) * row_bytes);
    backend_.download(copy, bytes);
    bytes = copy.data();
  }
  for (std::size_t row = 0; row < context.batch.positions.size(); ++row) {
    auto& of_slot = trace_[static_cast<std::size_t>(context.slots[row])];
    of_slot[static_cast<std::size_t>(layer)][static_cast<std::size_t>(context.batch.positions[row])] =
        digest64({bytes + row * row_bytes, row_bytes});
  }
}

Rows Executor::logits(ConstRows hidden, std::span<const std::int64_t> rows) {
  if (!weights_.back) throw_internal("logits were asked of a slice without the output head");
  if (static_cast<std::int64_t>(rows.size()) > limits_.max_samples)
    throw_internal("more rows are to be sampled than a step may have");
  const auto& back = *weights_.back;
  const Rows sampled = view(sampled_, static_cast<std::int64_t>(rows.size()), recipe_.hidden);
  for (std::size_t i = 0; i < rows.size();) {
    // Consecutive rows at once: in a decode step they all are.
    std::int64_t count = 1;
    while (i + static_cast<std::size_t>(count) < rows.size() &&
           rows[i + static_cast<std::size_t>(count)] == rows[i] + count)
      ++count;
    const auto to = static_cast<std::int64_t>(i);
    backend_.copy({hidden.data + rows[i] * hidden.stride, count, hidden.cols, hidden.stride},
                  {sampled.data + to * sampled.stride, count, sampled.cols, sampled.stride});
    i += static_cast<std::size_t>(count);
  }
  if (back.norm) runner_.norm(*back.norm, sampled, sampled);
  const Rows out = view(logits_, sampled.rows, recipe_.vocab);
  backend_.matmul(sampled, *back.head.matrix, out,
                  {.bias = back.head.bias_data(), .scale = recipe_.back.scale});
  if (recipe_.back.softcap != 0) backend_.softcap(out, recipe_.back.softcap);
  return out;
}

}  // namespace diffuse

#include "slice/executor.hpp"

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "core/exact_math.hpp"
#include "core/hash.hpp"
#include "core/overloaded.hpp"

namespace diffuse {
namespace {

Rows view(const Buffer& buffer, std::int64_t rows, std::int64_t cols) {
  return {buffer.floats(), rows, cols, cols};
}

Rows columns(Rows rows, std::int64_t first, std::int64_t count) {
  return {rows.data + first, rows.rows, count, rows.stride};
}

std::int64_t qkv_width(const Attention& a) {
  return a.heads * a.head_dim + a.kv_heads * (a.head_dim + a.value_dim);
}

// Widths of the scratch that a slice's steps need, in floats a row.
struct Widths {
  std::int64_t qkv = 0;
  std::int64_t attended = 0;
  std::int64_t inner = 0;

  void take(const Block& block, std::int64_t hidden) {
    for (const auto& step : block.steps) {
      if (const auto* attention = std::get_if<Attention>(&step)) {
        qkv = std::max(qkv, qkv_width(*attention));
        attended = std::max(attended, attention->heads * attention->value_dim);
      }
      if (const auto* mlp = std::get_if<Mlp>(&step))
        inner = std::max(inner, mlp->inner * (mlp->gate ? 3 : 1));
      if (std::get_if<Experts>(&step) != nullptr) inner = std::max(inner, hidden);
    }
  }
};

KvSpec kv_spec(const Attention& attention) {
  return {attention.kv_heads, attention.head_dim, attention.value_dim};
}

}  // namespace

// Cosines and sines grow with the longest position seen: a table over positions on the host, gathered a step.
struct Executor::Scratch {
  Buffer a, b, qkv, attended, inner, sampled, logits;
  struct Rope {
    std::vector<float> cos, sin;            // [positions seen, pairs]
    Buffer step_cos, step_sin;              // [rows, pairs] of the step under way
    std::vector<float> rows_cos, rows_sin;  // what is uploaded; must live until the step ran
  };
  std::vector<Rope> ropes;
};

struct Executor::StepContext {
  std::vector<Segment> segments;
  std::vector<std::int64_t> positions;  // [rows]
  std::vector<std::int32_t> slots;      // [rows]
};

std::uint64_t kv_page_bytes(const Recipe& recipe, const RankSlice& slice, const Backend& backend) {
  std::uint64_t bytes = 0;
  for (auto layer = slice.first_layer; layer < slice.end_layer; ++layer) {
    for (const auto& step : recipe.blocks[static_cast<std::size_t>(layer)].steps) {
      if (const auto* attention = std::get_if<Attention>(&step))
        bytes += backend.kv_page_bytes(kv_spec(*attention));
    }
  }
  return bytes;
}

Executor::Executor(const Recipe& recipe, RankSlice slice, Backend& backend, SliceWeights& weights,
                   const ExecutorLimits& limits)
    : recipe_(recipe),
      slice_(std::move(slice)),
      backend_(backend),
      weights_(weights),
      limits_(limits),
      pages_(limits.kv_pages),
      scratch_(std::make_unique<Scratch>()) {
  Widths widths;
  for (auto layer = slice_.first_layer; layer < slice_.end_layer; ++layer)
    widths.take(recipe_.blocks[static_cast<std::size_t>(layer)], recipe_.hidden);
  const auto floats = [&](std::int64_t width) {
    return backend_.allocate(static_cast<std::size_t>(limits_.max_rows * width) * sizeof(float));
  };
  scratch_->a = floats(recipe_.hidden);
  scratch_->b = floats(recipe_.hidden);
  scratch_->qkv = floats(widths.qkv);
  scratch_->attended = floats(widths.attended);
  scratch_->inner = floats(widths.inner);
  if (weights_.back) {
    const auto rows_of = [&](std::int64_t width) {
      return backend_.allocate(static_cast<std::size_t>(limits_.max_samples * width) * sizeof(float));
    };
    scratch_->sampled = rows_of(recipe_.hidden);
    scratch_->logits = rows_of(recipe_.vocab);
  }
  for (const auto& rope : recipe_.ropes) {
    const auto pairs = static_cast<std::int64_t>(rope.frequencies.size());
    scratch_->ropes.push_back({.cos = {},
                               .sin = {},
                               .step_cos = floats(pairs),
                               .step_sin = floats(pairs),
                               .rows_cos = {},
                               .rows_sin = {}});
  }
  for (auto& block : weights_.blocks) {
    for (auto& step : block) {
      auto* attention = std::get_if<AttentionStep>(&step);
      if (attention == nullptr) continue;
      attention->kv.spec = kv_spec(*attention->step);
      attention->kv.memory = backend_.allocate(static_cast<std::size_t>(limits_.kv_pages) *
                                               backend_.kv_page_bytes(attention->kv.spec));
    }
  }
}

Executor::~Executor() = default;

void Executor::admit(std::int32_t slot, std::int64_t tokens) {
  pages_.admit(slot, tokens);
  if (!limits_.trace) return;
  const auto index = static_cast<std::size_t>(slot);
  if (trace_.size() <= index) trace_.resize(index + 1);
  const auto layers = static_cast<std::size_t>(slice_.layers() + (slice_.front ? 1 : 0));
  trace_[index].assign(layers, std::vector<std::uint64_t>(static_cast<std::size_t>(tokens)));
}

std::vector<std::uint64_t> Executor::release(std::int32_t slot, std::int64_t positions) {
  pages_.release(slot);
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

Rows Executor::slot(Slot which, Rows hidden) const {
  switch (which) {
    case Slot::hidden:
      return hidden;
    case Slot::a:
      return view(scratch_->a, hidden.rows, hidden.cols);
    case Slot::b:
      return view(scratch_->b, hidden.rows, hidden.cols);
  }
  throw_internal("a step names a slot that does not exist");
}

void Executor::run(const Descriptor& step, std::span<const std::int32_t> ids, Rows hidden) {
  StepContext context;
  std::int64_t row = 0;
  for (int i = 0; i < step.entries; ++i) {
    const auto& entry = step.entry[static_cast<std::size_t>(i)];
    context.segments.push_back({row, entry.rows, entry.first_position, pages_.of(entry.slot)});
    for (std::int32_t r = 0; r < entry.rows; ++r) {
      context.positions.push_back(entry.first_position + r);
      context.slots.push_back(entry.slot);
    }
    row += entry.rows;
  }
  if (row != hidden.rows || row > limits_.max_rows) throw_internal("a step's rows do not fit its carry");
  prepare_ropes(context);
  std::int64_t layer = 0;
  if (slice_.front) {
    embed(ids, context, hidden);
    digest(context, hidden, layer++);
  }
  for (auto& block : weights_.blocks) {
    for (auto& loaded : block) {
      std::visit(
          Overloaded{
              [&](NormStep& s) { run_norm(s.norm, slot(s.step->in, hidden), slot(s.step->out, hidden), 1); },
              [&](AttentionStep& s) {
                attention(s, context, slot(s.step->in, hidden), slot(s.step->out, hidden));
              },
              [&](MlpStep& s) { mlp(s, slot(s.step->in, hidden), slot(s.step->out, hidden)); },
              [&](ExpertsStep& s) { experts(s, slot(s.step->in, hidden), slot(s.step->out, hidden)); },
              [&](AddStep& s) {
                backend_.add(slot(s.step->from, hidden), slot(s.step->to, hidden), s.step->scale);
              },
          },
          loaded);
    }
    digest(context, hidden, layer++);
  }
  // The context's page tables and the ropes' host rows are in use until the queued work ran.
  backend_.synchronize();
}

void Executor::embed(std::span<const std::int32_t> ids, const StepContext& context, Rows hidden) {
  const auto& front = *weights_.front;
  backend_.embed(*front.embedding, ids, recipe_.front.scale, hidden);
  if (front.positions.bytes() > 0) {
    std::vector<std::int32_t> rows;
    for (const auto position : context.positions)
      rows.push_back(static_cast<std::int32_t>(position + recipe_.front.position_offset));
    backend_.add_positions(front.positions.floats(), rows, hidden);
    backend_.synchronize();  // `rows` ends here
  }
  if (front.norm) run_norm(*front.norm, hidden, hidden, 1);
}

void Executor::run_norm(const LoadedNorm& norm, ConstRows in, Rows out, std::int64_t groups) {
  backend_.norm({.x = in,
                 .y = out,
                 .kind = norm.spec.kind,
                 .weight = norm.weight_data(),
                 .bias = norm.bias_data(),
                 .weight_offset = norm.spec.weight_offset,
                 .eps = norm.spec.eps,
                 .groups = groups});
}

void Executor::attention(AttentionStep& step, const StepContext& context, Rows in, Rows out) {
  const auto& a = *step.step;
  const Rows qkv = view(scratch_->qkv, in.rows, qkv_width(a));
  backend_.matmul(in, *step.qkv.matrix, qkv, {.bias = step.qkv.bias_data()});
  const Rows q = columns(qkv, 0, a.heads * a.head_dim);
  const Rows k = columns(qkv, q.cols, a.kv_heads * a.head_dim);
  const Rows v = columns(qkv, q.cols + k.cols, a.kv_heads * a.value_dim);
  if (step.query_norm) run_norm(*step.query_norm, q, q, a.norm_whole_row ? 1 : a.heads);
  if (step.key_norm) run_norm(*step.key_norm, k, k, a.norm_whole_row ? 1 : a.kv_heads);
  if (a.rope) {
    rotate(*a.rope, q, a.heads, a.head_dim);
    rotate(*a.rope, k, a.kv_heads, a.head_dim);
  }
  backend_.kv_write(step.kv, k, v, context.segments);
  const Rows attended = view(scratch_->attended, in.rows, a.heads * a.value_dim);
  backend_.attend({.q = q,
                   .out = attended,
                   .kv = &step.kv,
                   .segments = context.segments,
                   .heads = a.heads,
                   .scale = a.scale,
                   .window = a.window,
                   .softcap = a.softcap});
  backend_.matmul(attended, *step.output.matrix, out, {.bias = step.output.bias_data()});
}

void Executor::mlp(const MlpStep& step, Rows in, Rows out) {
  const auto& m = *step.step;
  if (m.gate) {
    const Rows both = view(scratch_->inner, in.rows, 2 * m.inner);
    const Rows gated{scratch_->inner.floats() + limits_.max_rows * 2 * m.inner, in.rows, m.inner, m.inner};
    backend_.matmul(in, *step.up.matrix, both, {.bias = step.up.bias_data()});
    backend_.gate(both, gated, m.activation);
    backend_.matmul(gated, *step.down.matrix, out, {.bias = step.down.bias_data()});
  } else {
    const Rows inner = view(scratch_->inner, in.rows, m.inner);
    backend_.matmul(in, *step.up.matrix, inner, {.bias = step.up.bias_data(), .activation = m.activation});
    backend_.matmul(inner, *step.down.matrix, out, {.bias = step.down.bias_data()});
  }
}

void Executor::experts(const ExpertsStep& step, Rows in, Rows out) {
  const auto& e = *step.step;
  // The experts' sum is built in `out` while `x` is still read: a step that works in place gets a copy.
  const Rows x = in.data == out.data ? view(scratch_->inner, in.rows, in.cols) : in;
  if (x.data != in.data) backend_.copy(in, x);
  backend_.experts({.x = x,
                    .out = out,
                    .router = step.router.matrix.get(),
                    .experts = step.experts,
                    .top_k = e.top_k,
                    .score = e.score,
                    .renormalize = e.renormalize,
                    .scale = e.scale,
                    .activation = e.activation,
                    .gated = !e.experts.empty() && e.experts.front().gate.has_value()});
}

void Executor::prepare_ropes(const StepContext& context) {
  const auto rows = context.positions.size();
  const auto longest =
      rows == 0 ? 0 : *std::max_element(context.positions.begin(), context.positions.end()) + 1;
  for (std::size_t i = 0; i < recipe_.ropes.size(); ++i) {
    const auto& spec = recipe_.ropes[i];
    auto& rope = scratch_->ropes[i];
    const auto pairs = spec.frequencies.size();
    for (auto position = static_cast<std::int64_t>(rope.cos.size() / pairs); position < longest; ++position) {
      for (const auto frequency : spec.frequencies) {
        const float angle = static_cast<float>(position) * frequency;  // in f32, as the reference has it
        rope.cos.push_back(static_cast<float>(exact::cos(angle)) * spec.attention_factor);
        rope.sin.push_back(static_cast<float>(exact::sin(angle)) * spec.attention_factor);
      }
    }
    rope.rows_cos.resize(rows * pairs);
    rope.rows_sin.resize(rows * pairs);
    for (std::size_t row = 0; row < rows; ++row) {
      const auto from = static_cast<std::size_t>(context.positions[row]) * pairs;
      std::copy_n(rope.cos.begin() + static_cast<std::ptrdiff_t>(from), pairs,
                  rope.rows_cos.begin() + static_cast<std::ptrdiff_t>(row * pairs));
      std::copy_n(rope.sin.begin() + static_cast<std::ptrdiff_t>(from), pairs,
                  rope.rows_sin.begin() + static_cast<std::ptrdiff_t>(row * pairs));
    }
    backend_.upload(rope.step_cos.data(), std::as_bytes(std::span(rope.rows_cos)));
    backend_.upload(rope.step_sin.data(), std::as_bytes(std::span(rope.rows_sin)));
  }
}

void Executor::rotate(std::int32_t rope, Rows rows, std::int64_t heads, std::int64_t head_dim) {
  const auto& spec = recipe_.ropes[static_cast<std::size_t>(rope)];
  const auto& tables = scratch_->ropes[static_cast<std::size_t>(rope)];
  backend_.rope({.x = rows,
                 .heads = heads,
                 .head_dim = head_dim,
                 .pairs = static_cast<std::int64_t>(spec.frequencies.size()),
                 .style = spec.style,
                 .cos = tables.step_cos.floats(),
                 .sin = tables.step_sin.floats()});
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
  for (std::size_t row = 0; row < context.positions.size(); ++row) {
    auto& of_slot = trace_[static_cast<std::size_t>(context.slots[row])];
    of_slot[static_cast<std::size_t>(layer)][static_cast<std::size_t>(context.positions[row])] =
        digest64({bytes + row * row_bytes, row_bytes});
  }
}

Rows Executor::logits(ConstRows hidden, std::span<const std::int64_t> rows) {
  if (!weights_.back) throw_internal("logits were asked of a slice without the output head");
  if (static_cast<std::int64_t>(rows.size()) > limits_.max_samples)
    throw_internal("more rows are to be sampled than a step may have");
  const auto& back = *weights_.back;
  const Rows sampled = view(scratch_->sampled, static_cast<std::int64_t>(rows.size()), recipe_.hidden);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto to = static_cast<std::int64_t>(i);
    backend_.copy({hidden.data + rows[i] * hidden.stride, 1, hidden.cols, hidden.stride},
                  {sampled.data + to * sampled.stride, 1, sampled.cols, sampled.stride});
  }
  if (back.norm) run_norm(*back.norm, sampled, sampled, 1);
  const Rows out = view(scratch_->logits, sampled.rows, recipe_.vocab);
  backend_.matmul(sampled, *back.head.matrix, out,
                  {.bias = back.head.bias_data(), .scale = recipe_.back.scale});
  if (recipe_.back.softcap != 0) backend_.softcap(out, recipe_.back.softcap);
  return out;
}

}  // namespace diffuse

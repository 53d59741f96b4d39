#include "slice/block_runner.hpp"

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "core/exact_math.hpp"
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

std::int64_t key_value_width(const CrossAttention& a) {
  return a.kv_heads * (a.head_dim + a.value_dim);
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
      if (const auto* cross = std::get_if<CrossAttention>(&step)) {
        qkv = std::max(qkv, std::max(cross->heads * cross->head_dim, key_value_width(*cross)));
        attended = std::max(attended, cross->heads * cross->value_dim);
      }
      if (const auto* mlp = std::get_if<Mlp>(&step))
        inner = std::max(inner, mlp->inner * (mlp->gate ? 3 : 1));
      if (std::get_if<Experts>(&step) != nullptr) inner = std::max(inner, hidden);
    }
  }
};

}  // namespace

KvSpec kv_spec(const Attention& attention) {
  return {attention.kv_heads, attention.head_dim, attention.value_dim};
}

KvSpec kv_spec(const CrossAttention& attention) {
  return {attention.kv_heads, attention.head_dim, attention.value_dim};
}

// Cosines and sines grow with the longest position seen: a table over positions on the host, gathered a step.
struct BlockRunner::Scratch {
  Buffer a, b, qkv, attended, inner;
  struct Rope {
    std::vector<float> cos, sin;            // [positions seen, pairs]
    Buffer step_cos, step_sin;              // [rows, pairs] of the pass under way
    std::vector<float> rows_cos, rows_sin;  // what is uploaded; must live until the pass ran
  };
  std::vector<Rope> ropes;
};

BlockRunner::BlockRunner(Backend& backend, std::span<const RopeSpec> ropes, std::span<const Block> blocks,
                         std::int64_t hidden, std::int64_t max_rows)
    : backend_(backend), ropes_(ropes), max_rows_(max_rows), scratch_(std::make_unique<Scratch>()) {
  Widths widths;
  for (const auto& block : blocks) widths.take(block, hidden);
  const auto floats = [&](std::int64_t width) {
    return backend_.allocate(static_cast<std::size_t>(max_rows * width) * sizeof(float));
  };
  scratch_->a = floats(hidden);
  scratch_->b = floats(hidden);
  scratch_->qkv = floats(widths.qkv);
  scratch_->attended = floats(widths.attended);
  scratch_->inner = floats(widths.inner);
  for (const auto& rope : ropes) {
    const auto pairs = static_cast<std::int64_t>(rope.frequencies.size());
    scratch_->ropes.push_back({.cos = {},
                               .sin = {},
                               .step_cos = floats(pairs),
                               .step_sin = floats(pairs),
                               .rows_cos = {},
                               .rows_sin = {}});
  }
}

BlockRunner::~BlockRunner() = default;

Rows BlockRunner::slot(Slot which, Rows hidden) const {
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

void BlockRunner::run(std::span<LoadedStep> block, const BatchContext& context, Rows hidden,
                      const Watch& watch) {
  for (auto& loaded : block) {
    std::visit(Overloaded{
                   [&](NormStep& s) { norm(s.norm, slot(s.step->in, hidden), slot(s.step->out, hidden)); },
                   [&](AttentionStep& s) {
                     attention(s, context, slot(s.step->in, hidden), slot(s.step->out, hidden));
                   },
                   [&](CrossAttentionStep& s) {
                     const auto q = queries(s, slot(s.step->in, hidden));
                     if (watch) watch(s, q);
                     cross_attention(s, context, q, slot(s.step->out, hidden));
                   },
                   [&](MlpStep& s) { mlp(s, slot(s.step->in, hidden), slot(s.step->out, hidden)); },
                   [&](ExpertsStep& s) { experts(s, slot(s.step->in, hidden), slot(s.step->out, hidden)); },
                   [&](AddStep& s) {
                     backend_.add(slot(s.step->from, hidden), slot(s.step->to, hidden), s.step->scale);
                   },
               },
               loaded);
  }
}

void BlockRunner::embed_ids(const LoadedFront& loaded, const Front& front, std::span<const std::int32_t> ids,
                            Rows hidden) {
  const auto codebooks = 1 + loaded.further.size();
  const auto rows = static_cast<std::size_t>(hidden.rows);
  if (ids.size() != rows * codebooks)
    throw_internal("a step has " + std::to_string(ids.size()) + " ids for " + std::to_string(rows) +
                   " rows of " + std::to_string(codebooks) + " codebooks");
  if (codebooks == 1) {
    backend_.embed(*loaded.embedding, ids, front.scale, hidden);
    return;
  }
  std::vector<std::int32_t> of_codebook(rows);
  for (std::size_t codebook = 0; codebook < codebooks; ++codebook) {
    for (std::size_t row = 0; row < rows; ++row) of_codebook[row] = ids[row * codebooks + codebook];
    const bool first = codebook == 0;
    const auto& table = first ? loaded.embedding : loaded.further[codebook - 1];
    const Rows out = first ? hidden : slot(Slot::a, hidden);
    backend_.embed(*table, of_codebook, front.scale, out);
    if (!first) backend_.add(out, hidden, 1);
    backend_.synchronize();  // `of_codebook` is written again
  }
}

void BlockRunner::embed(const LoadedFront& loaded, const Front& front, std::span<const std::int32_t> ids,
                        std::span<const std::int64_t> positions, Rows hidden) {
  embed_ids(loaded, front, ids, hidden);
  if (loaded.positions.bytes() > 0) {
    std::vector<std::int32_t> rows;
    for (const auto position : positions)
      rows.push_back(static_cast<std::int32_t>(position + front.position_offset));
    backend_.add_positions(loaded.positions.floats(), rows, hidden);
    backend_.synchronize();  // `rows` ends here
  }
  if (loaded.norm) norm(*loaded.norm, hidden, hidden);
}

void BlockRunner::norm(const LoadedNorm& norm, ConstRows in, Rows out, std::int64_t groups) {
  backend_.norm({.x = in,
                 .y = out,
                 .kind = norm.spec.kind,
                 .weight = norm.weight_data(),
                 .bias = norm.bias_data(),
                 .weight_offset = norm.spec.weight_offset,
                 .eps = norm.spec.eps,
                 .groups = groups});
}

void BlockRunner::attention(AttentionStep& step, const BatchContext& context, Rows in, Rows out) {
  const auto& a = *step.step;
  const Rows qkv = view(scratch_->qkv, in.rows, qkv_width(a));
  backend_.matmul(in, *step.qkv.matrix, qkv, {.bias = step.qkv.bias_data()});
  const Rows q = columns(qkv, 0, a.heads * a.head_dim);
  const Rows k = columns(qkv, q.cols, a.kv_heads * a.head_dim);
  const Rows v = columns(qkv, q.cols + k.cols, a.kv_heads * a.value_dim);
  if (step.query_norm) norm(*step.query_norm, q, q, a.norm_whole_row ? 1 : a.heads);
  if (step.key_norm) norm(*step.key_norm, k, k, a.norm_whole_row ? 1 : a.kv_heads);
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
                   .softcap = a.softcap,
                   .causal = a.causal,
                   .position_bias = a.position_bias ? step.position_bias.floats() : nullptr,
                   .bias_reach = a.position_bias ? a.position_bias->max_distance : 0});
  backend_.matmul(attended, *step.output.matrix, out, {.bias = step.output.bias_data()});
}

Rows BlockRunner::queries(const CrossAttentionStep& step, ConstRows in) {
  const auto& a = *step.step;
  const Rows q = view(scratch_->qkv, in.rows, a.heads * a.head_dim);
  backend_.matmul(in, *step.query.matrix, q, {.bias = step.query.bias_data()});
  return q;
}

void BlockRunner::cross_attention(CrossAttentionStep& step, const BatchContext& context, ConstRows q,
                                  Rows out) {
  const auto& a = *step.step;
  const Rows attended = view(scratch_->attended, q.rows, a.heads * a.value_dim);
  backend_.attend({.q = q,
                   .out = attended,
                   .kv = &step.kv,
                   .segments = context.memory,
                   .heads = a.heads,
                   .scale = a.scale,
                   .causal = false});
  backend_.matmul(attended, *step.output.matrix, out, {.bias = step.output.bias_data()});
}

void BlockRunner::remember(const CrossAttentionStep& step, ConstRows memory, const Segment& segment) {
  const auto& a = *step.step;
  const Rows both = view(scratch_->qkv, memory.rows, key_value_width(a));
  backend_.matmul(memory, *step.key_value.matrix, both, {.bias = step.key_value.bias_data()});
  const Rows k = columns(both, 0, a.kv_heads * a.head_dim);
  const Rows v = columns(both, k.cols, a.kv_heads * a.value_dim);
  backend_.kv_write(step.kv, k, v, std::span(&segment, 1));
}

void BlockRunner::mlp(const MlpStep& step, Rows in, Rows out) {
  const auto& m = *step.step;
  if (m.gate) {
    const Rows both = view(scratch_->inner, in.rows, 2 * m.inner);
    const Rows gated{scratch_->inner.floats() + max_rows_ * 2 * m.inner, in.rows, m.inner, m.inner};
    backend_.matmul(in, *step.up.matrix, both, {.bias = step.up.bias_data()});
    backend_.gate(both, gated, m.activation);
    backend_.matmul(gated, *step.down.matrix, out, {.bias = step.down.bias_data()});
  } else {
    const Rows inner = view(scratch_->inner, in.rows, m.inner);
    backend_.matmul(in, *step.up.matrix, inner, {.bias = step.up.bias_data(), .activation = m.activation});
    backend_.matmul(inner, *step.down.matrix, out, {.bias = step.down.bias_data()});
  }
}

void BlockRunner::experts(const ExpertsStep& step, Rows in, Rows out) {
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

void BlockRunner::begin(const BatchContext& context) {
  const auto rows = context.positions.size();
  const auto longest =
      rows == 0 ? 0 : *std::max_element(context.positions.begin(), context.positions.end()) + 1;
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    const auto& spec = ropes_[i];
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

void BlockRunner::rotate(std::int32_t rope, Rows rows, std::int64_t heads, std::int64_t head_dim) {
  const auto& spec = ropes_[static_cast<std::size_t>(rope)];
  const auto& tables = scratch_->ropes[static_cast<std::size_t>(rope)];
  backend_.rope({.x = rows,
                 .heads = heads,
                 .head_dim = head_dim,
                 .pairs = static_cast<std::int64_t>(spec.frequencies.size()),
                 .style = spec.style,
                 .cos = tables.step_cos.floats(),
                 .sin = tables.step_sin.floats()});
}

}  // namespace diffuse

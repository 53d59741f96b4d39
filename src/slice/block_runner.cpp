#include "slice/block_runner.hpp"

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "core/exact_math.hpp"
#include "core/overloaded.hpp"
#include "slice/view.hpp"

namespace diffuse {
namespace {

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
  std::int64_t modulation = 0;  // rows of the longest table, of a pass and not of each of its rows

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
      if (const auto* modulate = std::get_if<Modulate>(&step))
        modulation = std::max(modulation, modulate->table.rows);
    }
  }
};

// Cosines and sines of positions up to `positions`, behind those that are there; along one axis, where the
// rope is of a grid.
void extend(const RopeSpec& spec, std::size_t axis, std::int64_t positions, std::vector<float>& cosines,
            std::vector<float>& sines) {
  const auto push = [&](double angle) {
    cosines.push_back(static_cast<float>(exact::cos(angle)) * spec.attention_factor);
    sines.push_back(static_cast<float>(exact::sin(angle)) * spec.attention_factor);
  };
  const auto pairs = spec.of_grid() ? spec.axes[axis].size() : spec.frequencies.size();
  if (pairs == 0) return;
  for (auto position = static_cast<std::int64_t>(cosines.size() / pairs); position < positions; ++position) {
    if (spec.of_grid()) {
      for (const auto frequency : spec.axes[axis]) push(static_cast<double>(position) * frequency);
    } else {
      // In f32, as the reference has it.
      for (const auto frequency : spec.frequencies) push(static_cast<float>(position) * frequency);
    }
  }
}

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
  Buffer modulation;  // [rows of the block's table, hidden]
  // Of one run of positions: of a sequence, or along an axis of a grid.
  struct Angles {
    std::vector<float> cos, sin;  // [positions seen, pairs]
  };
  struct Rope {
    std::array<Angles, kAxes> axes;         // the first alone, where there is no grid
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
  scratch_->modulation =
      backend_.allocate(static_cast<std::size_t>(widths.modulation * hidden) * sizeof(float));
  for (const auto& rope : ropes) {
    const auto pairs = rope.pairs();
    scratch_->ropes.push_back(
        {.axes = {}, .step_cos = floats(pairs), .step_sin = floats(pairs), .rows_cos = {}, .rows_sin = {}});
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
                   [&](NormStep& s) {
                     const auto in = slot(s.step->in, hidden);
                     const auto out = slot(s.step->out, hidden);
                     if (s.step->modulation) {
                       norm(s.norm, *s.step->modulation, scratch_->modulation.floats(), in, out);
                     } else {
                       norm(s.norm, in, out);
                     }
                   },
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
                     const auto from = slot(s.step->from, hidden);
                     const auto to = slot(s.step->to, hidden);
                     if (s.step->gate) {
                       backend_.add_gated(from, scratch_->modulation.floats() + *s.step->gate * hidden.cols,
                                          to);
                     } else {
                       backend_.add(from, to, s.step->scale);
                     }
                   },
                   [&](ModulateStep& s) {
                     const auto rows = s.step->table.rows;
                     const auto made = view(scratch_->modulation, rows, hidden.cols);
                     backend_.copy({context.condition, rows, hidden.cols, hidden.cols}, made);
                     backend_.add(view(s.table, rows, hidden.cols), made, 1);
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

void BlockRunner::norm(const LoadedNorm& norm, const ModulationRows& rows, const float* modulation,
                       ConstRows in, Rows out) {
  backend_.norm({.x = in,
                 .y = out,
                 .kind = norm.spec.kind,
                 .weight = modulation + rows.scale * in.cols,
                 .bias = modulation + rows.shift * in.cols,
                 .weight_offset = 1,
                 .eps = norm.spec.eps});
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
  if (step.query_norm) norm(*step.query_norm, q, q);
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
                   .causal = false,
                   .of_memory = true});
  backend_.matmul(attended, *step.output.matrix, out, {.bias = step.output.bias_data()});
}

void BlockRunner::remember(const CrossAttentionStep& step, ConstRows memory, const Segment& segment) {
  const auto& a = *step.step;
  const Rows both = view(scratch_->qkv, memory.rows, key_value_width(a));
  backend_.matmul(memory, *step.key_value.matrix, both, {.bias = step.key_value.bias_data()});
  const Rows k = columns(both, 0, a.kv_heads * a.head_dim);
  const Rows v = columns(both, k.cols, a.kv_heads * a.value_dim);
  if (step.key_norm) norm(*step.key_norm, k, k);
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
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    const auto& spec = ropes_[i];
    auto& rope = scratch_->ropes[i];
    const auto axes = spec.of_grid() ? kAxes : 1;
    const auto rows = spec.of_grid() ? context.places.size() : context.positions.size();
    const auto position = [&](std::size_t row, std::size_t axis) {
      return spec.of_grid() ? context.places[row][axis] : context.positions[row];
    };
    const auto pairs = static_cast<std::size_t>(spec.pairs());
    rope.rows_cos.resize(rows * pairs);
    rope.rows_sin.resize(rows * pairs);
    std::size_t first = 0;  // pair
    for (std::size_t axis = 0; axis < axes; ++axis) {
      auto& angles = rope.axes[axis];
      const auto count = spec.of_grid() ? spec.axes[axis].size() : pairs;
      std::int64_t longest = 0;
      for (std::size_t row = 0; row < rows; ++row) longest = std::max(longest, position(row, axis) + 1);
      extend(spec, axis, longest, angles.cos, angles.sin);
      for (std::size_t row = 0; row < rows; ++row) {
        const auto from = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(position(row, axis)) * count);
        const auto to = static_cast<std::ptrdiff_t>(row * pairs + first);
        std::copy_n(angles.cos.begin() + from, count, rope.rows_cos.begin() + to);
        std::copy_n(angles.sin.begin() + from, count, rope.rows_sin.begin() + to);
      }
      first += count;
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
                 .pairs = spec.pairs(),
                 .style = spec.style,
                 .cos = tables.step_cos.floats(),
                 .sin = tables.step_sin.floats()});
}

}  // namespace diffuse

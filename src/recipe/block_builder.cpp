#include "recipe/block_builder.hpp"

#include <array>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "recipe/dictionary.hpp"

namespace diffuse {
namespace {

// The norms of a block by the place they stand at; empty: none there.
struct BlockNorms {
  std::span<const std::string_view> before_attention, after_attention, before_mlp, after_mlp;
};

BlockNorms norms_of(NormPlace place) {
  switch (place) {
    case NormPlace::before:
      return {names::kNormBeforeAttention, {}, names::kNormBeforeMlp, {}};
    case NormPlace::around:
      return {names::kNormBeforeAttention, names::kNormAfterAttention, names::kNormBetween,
              names::kNormAfterMlp};
  }
  throw_internal("building a recipe: unknown place of norms");
}

}  // namespace

BlockBuilder::BlockBuilder(TensorBook& book, const Facts& facts, const ModelConfig& model,
                           std::string_view layers)
    : book_(book), facts_(facts), model_(model), layers_(layers) {}

bool BlockBuilder::has_module(const std::string& prefix, std::span<const std::string_view> candidates) const {
  return book_.has(module(prefix, candidates) + ".weight");
}

std::string BlockBuilder::module(const std::string& prefix,
                                 std::span<const std::string_view> candidates) const {
  for (const auto candidate : candidates) {
    auto name = prefix + std::string(candidate);
    if (book_.has(name + ".weight")) return name;
  }
  return prefix + std::string(candidates.front());
}

std::vector<BlockBuilder::Linear> BlockBuilder::linear(const std::string& module,
                                                       std::span<const std::int64_t> parts, std::int64_t cols,
                                                       Presence bias) {
  const auto total = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
  const auto weight = module + ".weight";
  const auto shape = facts_.linear_stored_transposed ? std::vector{cols, total} : std::vector{total, cols};
  book_.take(weight, shape);
  const auto bias_name = module + ".bias";
  const bool has_bias = bias == Presence::always || (bias == Presence::stored && book_.has(bias_name));
  if (has_bias) book_.take(bias_name, {total});
  std::vector<Linear> made;
  std::int64_t first = 0;
  for (const auto rows : parts) {
    auto& one = made.emplace_back();
    one.weight = facts_.linear_stored_transposed ? matrix_columns(weight, first, rows, cols, total)
                                                 : matrix_rows(weight, first, rows, cols);
    if (has_bias) one.bias = vector_part(bias_name, first, rows);
    first += rows;
  }
  return made;
}

BlockBuilder::Linear BlockBuilder::linear(const std::string& module, std::int64_t rows, std::int64_t cols,
                                          Presence bias) {
  const std::array parts = {rows};
  return std::move(linear(module, parts, cols, bias).front());
}

NormSpec BlockBuilder::norm(const std::string& module, std::int64_t size) {
  NormSpec spec;
  book_.take(module + ".weight", {size});
  spec.weight = vector_part(module + ".weight", 0, size);
  const auto bias = module + ".bias";
  if (facts_.norm_bias == Presence::always || (facts_.norm_bias == Presence::stored && book_.has(bias))) {
    book_.take(bias, {size});
    spec.bias = vector_part(bias, 0, size);
  }
  spec.kind = facts_.norm.value_or(spec.bias ? NormKind::layer : NormKind::rms);
  spec.weight_offset = facts_.norm_weight_offset;
  spec.eps = model_.norm_eps;
  return spec;
}

std::optional<NormSpec> BlockBuilder::head_norm(const std::string& prefix,
                                                std::span<const std::string_view> candidates,
                                                std::int64_t heads, bool& whole_row) {
  const auto name = module(prefix, candidates);
  const auto found = book_.headers().find(name + ".weight");
  const bool is_stored = found != book_.headers().end();
  if (facts_.query_key_norm == Presence::absent || (facts_.query_key_norm == Presence::stored && !is_stored))
    return std::nullopt;
  const std::vector all = {heads * model_.head_dim};
  whole_row = is_stored && heads > 1 && found->second.shape == all;
  return norm(name, whole_row ? all.front() : model_.head_dim);
}

Attention BlockBuilder::attention(const std::string& prefix, std::int64_t layer) {
  const auto& placed = model_.layers[static_cast<std::size_t>(layer)];
  const auto query_rows = model_.heads * model_.head_dim;
  const auto kv_rows = model_.kv_heads * model_.head_dim;
  std::vector<Linear> inputs;
  if (has_module(prefix, names::kFusedQueryKeyValue)) {
    const std::array parts = {query_rows, kv_rows, kv_rows};
    inputs = linear(module(prefix, names::kFusedQueryKeyValue), parts, model_.hidden, model_.qkv_bias);
  } else {
    inputs.push_back(linear(module(prefix, names::kQuery), query_rows, model_.hidden, model_.qkv_bias));
    inputs.push_back(linear(module(prefix, names::kKey), kv_rows, model_.hidden, model_.qkv_bias));
    inputs.push_back(linear(module(prefix, names::kValue), kv_rows, model_.hidden, model_.qkv_bias));
  }
  auto output = linear(module(prefix, names::kAttentionOutput), model_.hidden, query_rows,
                       model_.attention_output_bias);
  Attention step;
  step.query = std::move(inputs[0].weight);
  step.key = std::move(inputs[1].weight);
  step.value = std::move(inputs[2].weight);
  step.output = std::move(output.weight);
  step.query_bias = std::move(inputs[0].bias);
  step.key_bias = std::move(inputs[1].bias);
  step.value_bias = std::move(inputs[2].bias);
  step.output_bias = std::move(output.bias);
  bool whole_query = false;
  bool whole_key = false;
  step.query_norm = head_norm(prefix, names::kQueryNorm, model_.heads, whole_query);
  step.key_norm = head_norm(prefix, names::kKeyNorm, model_.kv_heads, whole_key);
  step.norm_whole_row = whole_query || whole_key;
  step.heads = model_.heads;
  step.kv_heads = model_.kv_heads;
  step.head_dim = model_.head_dim;
  step.value_dim = model_.head_dim;
  step.scale = model_.score_scale;
  step.rope = placed.rope;
  step.window = placed.window;
  step.softcap = model_.attention_softcap;
  return step;
}

Mlp BlockBuilder::mlp(const std::string& prefix) {
  Mlp step;
  step.inner = model_.inner;
  step.activation = model_.activation;
  const bool is_fused = has_module(prefix, names::kFusedGateUp);
  const bool is_gated = is_fused || has_module(prefix, names::kGate);
  if (is_fused) {
    const std::array parts = {model_.inner, model_.inner};
    auto both = linear(module(prefix, names::kFusedGateUp), parts, model_.hidden, model_.mlp_bias);
    step.gate = std::move(both[0].weight);
    step.gate_bias = std::move(both[0].bias);
    step.up = std::move(both[1].weight);
    step.up_bias = std::move(both[1].bias);
  } else {
    if (is_gated) {
      auto gate = linear(module(prefix, names::kGate), model_.inner, model_.hidden, model_.mlp_bias);
      step.gate = std::move(gate.weight);
      step.gate_bias = std::move(gate.bias);
    }
    const auto name = is_gated ? module(prefix, names::kGatedUp) : module(prefix, names::kUngatedUp);
    auto up = linear(name, model_.inner, model_.hidden, model_.mlp_bias);
    step.up = std::move(up.weight);
    step.up_bias = std::move(up.bias);
  }
  const auto name = is_gated ? module(prefix, names::kGatedDown) : module(prefix, names::kUngatedDown);
  auto down = linear(name, model_.hidden, model_.inner, model_.mlp_bias);
  step.down = std::move(down.weight);
  step.down_bias = std::move(down.bias);
  return step;
}

Expert BlockBuilder::stored_expert(const std::string& prefix) {
  Expert expert;
  expert.gate =
      linear(module(prefix, names::kExpertGate), model_.inner, model_.hidden, Presence::absent).weight;
  expert.up = linear(module(prefix, names::kExpertUp), model_.inner, model_.hidden, Presence::absent).weight;
  expert.down =
      linear(module(prefix, names::kExpertDown), model_.hidden, model_.inner, Presence::absent).weight;
  return expert;
}

Experts BlockBuilder::experts(const std::string& prefix) {
  Experts step;
  const auto router = module(prefix, names::kRouter);
  step.router = linear(router, model_.experts, model_.hidden, Presence::absent).weight;
  step.inner = model_.inner;
  step.top_k = model_.experts_per_token;
  step.renormalize = facts_.renormalize_experts;
  step.activation = model_.activation;
  const auto owner = router.substr(0, router.rfind('.') + 1);
  const auto gate_up = owner + std::string(names::kFusedExpertsGateUp);
  const auto down = owner + std::string(names::kFusedExpertsDown);
  const bool is_fused = book_.has(gate_up);
  if (is_fused) {
    book_.take(gate_up, {model_.experts, 2 * model_.inner, model_.hidden});
    book_.take(down, {model_.experts, model_.hidden, model_.inner});
  }
  for (std::int64_t number = 0; number < model_.experts; ++number) {
    if (is_fused) {
      const auto gate_row = number * 2 * model_.inner;
      step.experts.push_back({matrix_rows(gate_up, gate_row, model_.inner, model_.hidden),
                              matrix_rows(gate_up, gate_row + model_.inner, model_.inner, model_.hidden),
                              matrix_rows(down, number * model_.hidden, model_.hidden, model_.inner)});
    } else {
      step.experts.push_back(stored_expert(owner + "experts." + std::to_string(number) + "."));
    }
  }
  return step;
}

Block BlockBuilder::block(std::int64_t layer) {
  const auto prefix = layers_ + std::to_string(layer) + ".";
  const auto norms = norms_of(facts_.norm_place);
  Block made;
  const auto add_norm = [&](std::span<const std::string_view> candidates, Slot in) {
    if (!candidates.empty())
      made.steps.emplace_back(Norm{in, Slot::a, norm(module(prefix, candidates), model_.hidden)});
  };
  add_norm(norms.before_attention, Slot::hidden);
  made.steps.emplace_back(attention(prefix, layer));
  add_norm(norms.after_attention, Slot::a);
  made.steps.emplace_back(Add{});
  add_norm(norms.before_mlp, Slot::hidden);
  if (facts_.has_experts) {
    made.steps.emplace_back(experts(prefix));
  } else {
    made.steps.emplace_back(mlp(prefix));
  }
  add_norm(norms.after_mlp, Slot::a);
  made.steps.emplace_back(Add{});
  return made;
}

}  // namespace diffuse

#include "recipe/block_builder.hpp"

#include <array>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "core/overloaded.hpp"
#include "recipe/dictionary.hpp"

namespace diffuse {

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
  return norm(module, size, facts_.norm, facts_.norm_bias);
}

NormSpec BlockBuilder::norm(const std::string& module, std::int64_t size, std::optional<NormKind> kind,
                            Presence bias_presence) {
  NormSpec spec;
  book_.take(module + ".weight", {size});
  spec.weight = vector_part(module + ".weight", 0, size);
  const auto bias = module + ".bias";
  if (bias_presence == Presence::always || (bias_presence == Presence::stored && book_.has(bias))) {
    book_.take(bias, {size});
    spec.bias = vector_part(bias, 0, size);
  }
  spec.kind = kind.value_or(spec.bias ? NormKind::layer : NormKind::rms);
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
  const auto size = whole_row ? all.front() : model_.head_dim;
  return facts_.query_key_norm_is_rms ? norm(name, size, NormKind::rms, Presence::absent) : norm(name, size);
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
    inputs.push_back(linear(module(prefix, names::kKey), kv_rows, model_.hidden, model_.key_bias));
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
  step.causal = model_.causal;
  step.position_bias = position_bias(prefix);
  return step;
}

CrossAttention BlockBuilder::cross_attention(const std::string& prefix) {
  const auto query_rows = model_.heads * model_.head_dim;
  const auto kv_rows = model_.kv_heads * model_.head_dim;
  auto query = linear(module(prefix, names::kCrossQuery), query_rows, model_.hidden, model_.qkv_bias);
  auto key = linear(module(prefix, names::kCrossKey), kv_rows, model_.memory_width, model_.key_bias);
  auto value = linear(module(prefix, names::kCrossValue), kv_rows, model_.memory_width, model_.qkv_bias);
  auto output =
      linear(module(prefix, names::kCrossOutput), model_.hidden, query_rows, model_.attention_output_bias);
  CrossAttention step;
  step.query = std::move(query.weight);
  step.query_bias = std::move(query.bias);
  step.key = std::move(key.weight);
  step.key_bias = std::move(key.bias);
  step.value = std::move(value.weight);
  step.value_bias = std::move(value.bias);
  step.output = std::move(output.weight);
  step.output_bias = std::move(output.bias);
  bool whole_query = false;
  bool whole_key = false;
  step.query_norm = head_norm(prefix, names::kCrossQueryNorm, model_.heads, whole_query);
  step.key_norm = head_norm(prefix, names::kCrossKeyNorm, model_.kv_heads, whole_key);
  const bool each_head = (step.query_norm && !whole_query) || (step.key_norm && !whole_key);
  if (each_head && model_.heads > 1)
    throw_refused("cannot run yet: the heads of its cross-attention are normed one by one");
  step.heads = model_.heads;
  step.kv_heads = model_.kv_heads;
  step.head_dim = model_.head_dim;
  step.value_dim = model_.head_dim;
  step.scale = model_.score_scale;
  return step;
}

std::optional<PositionBias> BlockBuilder::position_bias(const std::string& prefix) {
  if (model_.bias_buckets == 0) return std::nullopt;
  if (shared_bias_) return shared_bias_;
  const auto tensor = module(prefix, names::kPositionBias) + ".weight";
  book_.take(tensor, {model_.bias_buckets, model_.heads});
  const PositionBias bias{matrix_rows(tensor, 0, model_.bias_buckets, model_.heads), model_.bias_distance,
                          !model_.causal};
  if (facts_.memory->positions == PositionKind::relative_bias) shared_bias_ = bias;
  return bias;
}

Mlp BlockBuilder::mlp(const std::string& prefix) {
  Mlp step;
  step.inner = model_.inner;
  step.activation = model_.activation;
  const bool is_fused = has_module(prefix, names::kFusedGateUp);
  const bool is_gated = model_.gated.value_or(is_fused || has_module(prefix, names::kGate));
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

void BlockBuilder::add_branch(Block& block, const std::string& prefix, Step step, const BranchNorms& norms) {
  const auto norm_of = [&](std::span<const std::string_view> candidates) {
    return norm(module(prefix, candidates), model_.hidden);
  };
  const bool behind_sum = facts_.norm_place == NormPlace::after;
  const auto in = behind_sum ? Slot::hidden : Slot::a;
  if (!behind_sum) block.steps.emplace_back(Norm{Slot::hidden, Slot::a, norm_of(norms.before)});
  std::visit(Overloaded{[](Norm&) {}, [](Add&) {}, [](Modulate&) {}, [in](auto& branch) { branch.in = in; }},
             step);
  block.steps.push_back(std::move(step));
  if (!norms.after.empty()) block.steps.emplace_back(Norm{Slot::a, Slot::a, norm_of(norms.after)});
  block.steps.emplace_back(Add{});
  if (behind_sum) block.steps.emplace_back(Norm{Slot::hidden, Slot::hidden, norm_of(norms.before)});
}

// Rows of the table: shift, scale and gate of self attention, then those of the MLP.
Block BlockBuilder::modulated_block(const std::string& prefix, std::int64_t layer) {
  constexpr std::int64_t kRows = 6;
  const NormSpec plain{.kind = NormKind::layer, .weight = {}, .bias = {}, .eps = model_.norm_eps};
  Block made;
  const auto table = prefix + std::string(names::kModulation);
  book_.take(table, {1, kRows, model_.hidden});
  made.steps.emplace_back(Modulate{matrix_rows(table, 0, kRows, model_.hidden)});
  made.steps.emplace_back(Norm{.norm = plain, .modulation = ModulationRows{.shift = 0, .scale = 1}});
  made.steps.emplace_back(attention(prefix, layer));
  made.steps.emplace_back(Add{.gate = 2});
  auto cross = cross_attention(prefix);
  if (model_.cross_norm) {
    made.steps.emplace_back(Norm{.norm = norm(module(prefix, names::kNormBeforeCross), model_.hidden)});
  } else {
    cross.in = Slot::hidden;
  }
  made.steps.emplace_back(std::move(cross));
  made.steps.emplace_back(Add{});
  made.steps.emplace_back(Norm{.norm = plain, .modulation = ModulationRows{.shift = 3, .scale = 4}});
  made.steps.emplace_back(mlp(prefix));
  made.steps.emplace_back(Add{.gate = 5});
  return made;
}

Block BlockBuilder::block(std::int64_t layer) {
  const auto prefix = layers_ + std::to_string(layer) + ".";
  if (facts_.norm_place == NormPlace::modulated) return modulated_block(prefix, layer);
  const bool around = facts_.norm_place == NormPlace::around;
  Block made;
  add_branch(made, prefix, attention(prefix, layer),
             {names::kNormBeforeAttention, around ? Names(names::kNormAfterAttention) : Names()});
  if (model_.memory_width != 0)
    add_branch(made, prefix, cross_attention(prefix), {names::kNormBeforeCross, {}});
  add_branch(made, prefix, facts_.has_experts ? Step(experts(prefix)) : Step(mlp(prefix)),
             {around ? Names(names::kNormBetween) : Names(names::kNormBeforeMlp),
              around ? Names(names::kNormAfterMlp) : Names()});
  return made;
}

}  // namespace diffuse

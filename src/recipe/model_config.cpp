#include "recipe/model_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "recipe/dictionary.hpp"
#include "recipe/rope.hpp"

namespace diffuse {
namespace {

// Dimensions are checked against real tensors later; until then this keeps their products inside 64 bits.
constexpr double kMostNumber = 1e12;

constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kSliding = "sliding_attention";

struct NamedActivation {
  std::string_view name;
  Activation activation;
};
// transformers' ACT2FN, those whose formula a kernel has.
constexpr std::array kActivations = {
    NamedActivation{"silu", Activation::silu},
    NamedActivation{"swish", Activation::silu},
    NamedActivation{"gelu", Activation::gelu_erf},
    NamedActivation{"gelu_python", Activation::gelu_erf},
    NamedActivation{"gelu_new", Activation::gelu_tanh},
    NamedActivation{"gelu_fast", Activation::gelu_tanh},
    NamedActivation{"gelu_pytorch_tanh", Activation::gelu_tanh},
    NamedActivation{"gelu_python_tanh", Activation::gelu_tanh},
    NamedActivation{"quick_gelu", Activation::quick_gelu},
    NamedActivation{"relu", Activation::relu},
    NamedActivation{"relu2", Activation::relu_squared},
};

// A class default stands where the key is absent; a key that is null means none.
std::int64_t size_or(ConfigReader& config, Names names, std::int64_t where_absent, std::int64_t where_none) {
  if (!config.states(names) && where_absent != 0) return where_absent;
  return config.integer(names, 1, kMostSize).value_or(where_none);
}

float number_of(ConfigReader& config, Names names, const NumberRule& rule, double least) {
  if (!rule.is_read) return 0;
  const double value =
      config.states(names) ? config.number(names, least, kMostNumber).value_or(0) : rule.where_key_is_absent;
  return static_cast<float>(value);
}

Presence resolved(ConfigReader& config, const PresenceRule& rule) {
  if (rule.presence != Presence::keyed) return rule.presence;
  const std::array key = {rule.key};
  return config.boolean(key).value_or(rule.where_key_is_absent) ? Presence::always : Presence::absent;
}

Activation activation_of(ConfigReader& config, const Facts& facts) {
  return activation_named(config.text(keys::kActivation).value_or(std::string(facts.activation)));
}

std::int64_t head_dim_of(ConfigReader& config, const Facts& facts, const ModelConfig& model) {
  const auto stated = size_or(config, keys::kHeadDim, facts.head_dim, 0);
  if (stated != 0) return stated;
  if (model.hidden % model.heads != 0) {
    throw_bad_data("config.json: hidden size " + std::to_string(model.hidden) + " is no multiple of " +
                   std::to_string(model.heads) + " attention heads and no head_dim is stated");
  }
  return model.hidden / model.heads;
}

// The layers' types as config.json lists them, or as the family's rule makes them.
class Windows {
 public:
  Windows(ConfigReader& config, const Facts& facts) : facts_(facts) {
    if (facts.reads_layer_types) types_ = config.texts(keys::kLayerTypes);
    if (facts.window_rule == WindowRule::none && !types_) return;
    window_ = size_or(config, keys::kWindow, facts.window, 0);
    if (facts.window_rule != WindowRule::from_max_window_layers) return;
    const bool used = config.boolean(keys::kUseWindow).value_or(false);
    first_ = config.integer(keys::kMaxWindowLayers, 0, kMostSize).value_or(facts.max_window_layers);
    if (!used) window_ = 0;
  }

  void check(std::int64_t depth) const {
    if (!types_) return;
    if (static_cast<std::int64_t>(types_->size()) != depth) {
      throw_bad_data("config.json: layer_types has " + std::to_string(types_->size()) + " entries for " +
                     std::to_string(depth) + " layers");
    }
    for (const auto& type : *types_) {
      if (type != kFull && type != kSliding)
        throw_refused("cannot run yet: config.json has layers of type " + shown(type) + " in layer_types");
      if (type == kSliding && window_ == 0)
        throw_bad_data("config.json: layer_types has sliding_attention and no sliding_window is in effect");
    }
  }

  std::string_view type(std::int64_t layer) const {
    if (types_) return (*types_)[static_cast<std::size_t>(layer)];
    return slides(layer) ? kSliding : kFull;
  }
  std::int64_t window(std::int64_t layer) const { return type(layer) == kSliding ? window_ : 0; }

 private:
  bool slides(std::int64_t layer) const {
    if (window_ == 0) return false;
    switch (facts_.window_rule) {
      case WindowRule::none:
        return false;
      case WindowRule::every_layer:
        return true;
      case WindowRule::even_layers:
        return layer % 2 == 0;
      case WindowRule::from_max_window_layers:
        return layer >= first_;
    }
    return false;
  }

  const Facts& facts_;
  std::optional<std::vector<std::string>> types_;
  std::int64_t window_ = 0;
  std::int64_t first_ = 0;
};

void read_layers(ConfigReader& config, const Facts& facts, std::int64_t depth, ModelConfig& model) {
  const Windows windows(config, facts);
  windows.check(depth);
  const RopeDefaults defaults = {.theta = facts.rope_theta};
  std::map<std::string_view, std::int32_t> ropes;  // layer type -> index
  const auto stated_positions = model.max_positions;
  for (std::int64_t layer = 0; layer < depth; ++layer) {
    auto& made = model.layers.emplace_back();
    made.window = windows.window(layer);
    if (!facts.rotary) continue;
    const auto type = windows.type(layer);
    const auto known = ropes.find(type);
    if (known != ropes.end()) {
      made.rope = known->second;
      continue;
    }
    const auto rope = make_rope(config, type, model.head_dim, stated_positions, defaults);
    model.max_positions = std::max(model.max_positions, rope.max_positions);
    const auto same = std::find(model.ropes.begin(), model.ropes.end(), rope.spec);
    made.rope = static_cast<std::int32_t>(same - model.ropes.begin());
    if (same == model.ropes.end()) model.ropes.push_back(rope.spec);
    ropes.emplace(type, *made.rope);
  }
}

}  // namespace

std::int64_t required_size(ConfigReader& config, Names names) {
  const auto value = config.integer(names, 1, kMostSize);
  if (!value) throw_bad_data("config.json does not state '" + std::string(names.front()) + "'");
  return *value;
}

void refuse_looking_ahead(ConfigReader& config) {
  if (!config.boolean(keys::kCausal).value_or(true))
    throw_refused("cannot run yet: its attention looks ahead ('is_causal' is false in config.json)");
}

Activation activation_named(const std::string& name) {
  const auto* const known = std::find_if(kActivations.begin(), kActivations.end(),
                                         [&](const auto& activation) { return activation.name == name; });
  if (known == kActivations.end())
    throw_refused("cannot run yet: activation " + shown(name) + " is not one that this build has");
  return known->activation;
}

ModelConfig read_model_config(ConfigReader& config, const Facts& facts, std::int64_t layers_in_weights) {
  const auto depth = required_size(config, keys::kDepth);
  if (depth != layers_in_weights) {
    throw_refused("config.json states " + std::to_string(depth) + " layers and the weights have " +
                  std::to_string(layers_in_weights) +
                  "; the two are not of one checkpoint, or it has more than a stack");
  }
  refuse_looking_ahead(config);
  ModelConfig model;
  model.hidden = required_size(config, keys::kHidden);
  model.vocab = required_size(config, keys::kVocab);
  model.heads = required_size(config, keys::kHeads);
  model.kv_heads = size_or(config, keys::kKvHeads, facts.kv_heads, model.heads);
  if (model.heads % model.kv_heads != 0) {
    throw_bad_data("config.json: " + std::to_string(model.heads) + " attention heads are no multiple of " +
                   std::to_string(model.kv_heads) + " key-value heads");
  }
  model.head_dim = head_dim_of(config, facts, model);
  if (facts.inner_factor != 0) {
    model.inner = size_or(config, keys::kInner, 0, model.hidden * facts.inner_factor);
  } else {
    model.inner = required_size(config, keys::kInner);
  }
  if (facts.has_experts) {
    model.experts = required_size(config, keys::kExperts);
    model.experts_per_token = required_size(config, keys::kExpertsPerToken);
    if (model.experts_per_token > model.experts) {
      throw_bad_data("config.json: " + std::to_string(model.experts_per_token) + " experts a token out of " +
                     std::to_string(model.experts));
    }
  }
  model.max_positions = size_or(config, keys::kMaxPositions, facts.max_positions, facts.max_positions);
  model.activation = activation_of(config, facts);
  model.norm_eps = static_cast<float>(config.number(keys::kNormEps, 0, 1).value_or(facts.norm_eps));
  model.tied = config.boolean(keys::kTied).value_or(facts.tied);
  if (facts.embedding_times_sqrt_hidden)
    model.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(model.hidden)));

  const float query_scalar = number_of(config, keys::kQueryScalar, facts.query_scalar, 1e-6);
  const double scalar = query_scalar != 0 ? query_scalar : static_cast<double>(model.head_dim);
  const bool is_scaled = !facts.reads_scale_attention || config.boolean(keys::kScaleAttention).value_or(true);
  model.score_scale = is_scaled ? static_cast<float>(1 / std::sqrt(scalar)) : 1;
  model.attention_softcap = number_of(config, keys::kAttentionSoftcap, facts.attention_softcap, 1e-6);
  model.logits_softcap = number_of(config, keys::kLogitsSoftcap, facts.logits_softcap, 1e-6);
  model.qkv_bias = resolved(config, facts.qkv_bias);
  model.key_bias = model.qkv_bias;
  model.attention_output_bias = resolved(config, facts.attention_output_bias);
  model.mlp_bias = resolved(config, facts.mlp_bias);
  read_layers(config, facts, depth, model);
  return model;
}

}  // namespace diffuse

#pragma once
// The numbers of a model, read once from config.json with the family's facts, and checked. Plain values: what
// is left to the block builder is finding the tensors.

#include <cstdint>
#include <optional>
#include <vector>

#include "recipe/config_reader.hpp"
#include "recipe/facts.hpp"
#include "recipe/recipe.hpp"

namespace diffuse {

struct LayerConfig {
  std::int64_t window = 0;           // 0: full
  std::optional<std::int32_t> rope;  // index into ModelConfig::ropes
};

struct ModelConfig {
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads
  std::int64_t head_dim = 0;
  std::int64_t inner = 0;  // of the MLP, or of one expert
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;  // at most `experts`
  std::int64_t max_positions = 0;
  Activation activation = Activation::silu;
  float norm_eps = 0;
  bool tied = false;
  float embedding_scale = 1;
  float score_scale = 1;
  float attention_softcap = 0;
  float logits_softcap = 0;
  // Never keyed any more.
  Presence qkv_bias = Presence::absent;
  Presence attention_output_bias = Presence::absent;
  Presence mlp_bias = Presence::absent;
  std::vector<RopeSpec> ropes;
  std::vector<LayerConfig> layers;

  // Of the halves of an encoder-decoder.
  bool causal = true;
  Presence key_bias = Presence::absent;
  std::int64_t memory_width = 0;  // of the memory that each block looks at; 0: it looks at none
  std::int64_t bias_buckets = 0;  // of the relative position bias; 0: none
  std::int64_t bias_distance = 0;
  bool cross_norm = true;     // where norms are modulated: whether one stands before cross-attention
  std::optional<bool> gated;  // the MLP, where the config says it; absent: as the tensors' names say
};

// `layers_in_weights`: how many layers the headers have; a config that says another number is refused.
ModelConfig read_model_config(ConfigReader& config, const Facts& facts, std::int64_t layers_in_weights);

// transformers' name of an activation. Throws refused where no kernel has it.
Activation activation_named(const std::string& name);
// Throws refused where is_causal is false: a stack that answers would look at what comes after.
void refuse_looking_ahead(ConfigReader& config);
// Of a value that must be there and be at least 1.
std::int64_t required_size(ConfigReader& config, Names names);

}  // namespace diffuse

#include "recipe/memory_config.hpp"

#include <cmath>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "recipe/dictionary.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kBuckets = 32;  // T5's own, where the config says nothing
constexpr std::int64_t kDistance = 128;

void check_depth(std::string_view half, std::int64_t stated, std::int64_t in_weights) {
  if (stated == in_weights) return;
  throw_refused("config.json states " + std::to_string(stated) + " " + std::string(half) +
                " layers and the weights have " + std::to_string(in_weights) +
                "; the two are not of one checkpoint");
}

// "gated-gelu" is a gate with the tanh form of gelu, as T5 1.1 was trained; other names are as they are.
void read_feed_forward(ConfigReader& config, const Facts& facts, ModelConfig& model) {
  auto name = config.text(keys::kFeedForwardProj).value_or(std::string(facts.activation));
  constexpr std::string_view kGated = "gated-";
  model.gated = name.starts_with(kGated);
  if (*model.gated) name.erase(0, kGated.size());
  if (*model.gated && name == "gelu") name = "gelu_new";
  model.activation = activation_named(name);
  // What transformers derives from it and stores beside it; where the two differ it follows these.
  const auto activation = config.text(keys::kDenseActivation);
  const auto gated = config.boolean(keys::kIsGated);
  if ((activation && activation_named(*activation) != model.activation) || (gated && *gated != *model.gated))
    throw_refused(
        "cannot run yet: 'feed_forward_proj' and what is stored beside it ('dense_act_fn', 'is_gated_act') "
        "contradict one another");
}

// What both halves share.
ModelConfig read_common(ConfigReader& config, const Facts& facts) {
  const auto& memory = *facts.memory;
  ModelConfig model;
  model.hidden = required_size(config, keys::kHidden);
  model.vocab = required_size(config, keys::kVocab);
  if (memory.feed_forward_proj) {
    read_feed_forward(config, facts, model);
  } else {
    model.activation =
        activation_named(config.text(keys::kActivation).value_or(std::string(facts.activation)));
  }
  model.norm_eps = static_cast<float>(config.number(keys::kNormEps, 0, 1).value_or(facts.norm_eps));
  model.tied = config.boolean(keys::kTied).value_or(facts.tied) || memory.always_tied;
  const bool scaled = memory.positions != PositionKind::relative_bias &&
                      memory.positions != PositionKind::relative_bias_each &&
                      config.boolean(keys::kScaleEmbedding).value_or(facts.embedding_times_sqrt_hidden);
  if (scaled) model.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(model.hidden)));
  model.qkv_bias = facts.qkv_bias.presence;
  model.key_bias = memory.key_bias;
  model.attention_output_bias = facts.attention_output_bias.presence;
  model.mlp_bias = facts.mlp_bias.presence;
  return model;
}

void read_heads(ConfigReader& config, const Facts& facts, Names heads, ModelConfig& model) {
  model.heads = required_size(config, heads);
  model.kv_heads = model.heads;
  const auto stated = config.integer(keys::kKvDim, 1, kMostSize);
  if (!stated && facts.head_dim == 0 && model.hidden % model.heads != 0) {
    throw_bad_data("config.json: hidden size " + std::to_string(model.hidden) + " is no multiple of " +
                   std::to_string(model.heads) + " attention heads");
  }
  model.head_dim = stated ? *stated : facts.head_dim != 0 ? facts.head_dim : model.hidden / model.heads;
  if (!facts.memory->scores_unscaled)
    model.score_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(model.head_dim)));
}

void read_positions(ConfigReader& config, const Facts& facts, Names names, ModelConfig& model) {
  const auto kind = facts.memory->positions;
  if (kind != PositionKind::relative_bias && kind != PositionKind::relative_bias_each) {
    model.max_positions = config.integer(names, 1, kMostSize).value_or(facts.max_positions);
    return;
  }
  model.max_positions = kMostSize;  // a bias by distance has no end
  config.mark_read("n_positions");
  model.bias_buckets = config.integer(keys::kBiasBuckets, 1, kMostSize).value_or(kBuckets);
  model.bias_distance = config.integer(keys::kBiasDistance, 1, 1 << 20).value_or(kDistance);
  if (model.bias_buckets < 4 || model.bias_buckets % 4 != 0 ||
      model.bias_distance <= model.bias_buckets / 2) {
    throw_refused("cannot run yet: relative positions in " + std::to_string(model.bias_buckets) +
                  " buckets up to a distance of " + std::to_string(model.bias_distance));
  }
}

// Where positions start behind the padding's row, padding takes none: an answer that starts with it would.
std::int64_t position_offset(ConfigReader& config, const Facts& facts) {
  const auto& memory = *facts.memory;
  if (memory.positions != PositionKind::sinusoids_single) return memory.position_offset;
  const auto pad = config.integer(keys::kPad, 0, kMostSize);
  if (!pad) return memory.position_offset;
  if (config.integer(keys::kDecoderStart, 0, kMostSize) == pad)
    throw_refused("cannot run yet: answers start with the padding token, which takes no position");
  return *pad + 1;
}

// Two vocabularies need two tokenizers.
void refuse_parted_tables(ConfigReader& config, const Facts& facts, std::int64_t vocab) {
  if (!facts.memory->reads_sharing) {
    config.mark_read(keys::kShared.front());  // by name alone: such a class does not read it
    return;
  }
  if (!config.boolean(keys::kShared).value_or(true)) {
    throw_refused(
        "cannot run yet: its halves have tables and vocabularies of their own "
        "('share_encoder_decoder_embeddings' is false in config.json)");
  }
  const auto stated = config.integer(keys::kDecoderVocab, 0, kMostSize).value_or(0);  // 0: as vocab_size
  if (stated != 0 && stated != vocab) {
    throw_refused("cannot run yet: config.json states a vocab_size of " + std::to_string(vocab) +
                  " and a decoder_vocab_size of " + std::to_string(stated) +
                  " for a table that halves share");
  }
}

// As T5's class decides it.
float logits_scale(ConfigReader& config, const Facts& facts, const ModelConfig& model) {
  if (!facts.memory->scales_logits) return 1;
  const auto tied = config.boolean(keys::kTied);
  const bool scaled = config.boolean(keys::kScaleDecoderOutputs).value_or(tied.value_or(true));
  return scaled ? static_cast<float>(1 / std::sqrt(static_cast<double>(model.hidden))) : 1.0F;
}

}  // namespace

MemoryConfig read_memory_config(ConfigReader& config, const Facts& facts, std::int64_t encoder_layers,
                                std::int64_t decoder_layers) {
  config.mark_read(keys::kReadsEncoder.front());
  refuse_looking_ahead(config);
  const auto encoder_depth = required_size(config, keys::kEncoderDepth);
  check_depth("encoder", encoder_depth, encoder_layers);
  check_depth("decoder", config.integer(keys::kDecoderDepth, 1, kMostSize).value_or(encoder_depth),
              decoder_layers);
  MemoryConfig made;
  made.encoder = made.decoder = read_common(config, facts);
  auto& encoder = made.encoder;
  auto& decoder = made.decoder;
  read_heads(config, facts, keys::kEncoderHeads, encoder);
  read_heads(config, facts, keys::kDecoderHeads, decoder);
  encoder.inner = required_size(config, keys::kEncoderInner);
  decoder.inner = required_size(config, keys::kDecoderInner);
  read_positions(config, facts, keys::kSourcePositions, encoder);
  read_positions(config, facts, keys::kTargetPositions, decoder);
  refuse_parted_tables(config, facts, decoder.vocab);
  encoder.causal = false;
  decoder.memory_width = encoder.hidden;
  encoder.layers.resize(static_cast<std::size_t>(encoder_layers));
  decoder.layers.resize(static_cast<std::size_t>(decoder_layers));
  if (facts.memory->reads_frames) made.features = required_size(config, keys::kFeatures);
  made.position_offset = position_offset(config, facts);
  made.logits_scale = logits_scale(config, facts, decoder);
  return made;
}

ModelConfig read_text_encoder(ConfigReader& section, const Facts& facts, std::int64_t layers) {
  check_depth("encoder", required_size(section, keys::kEncoderDepth), layers);
  auto model = read_common(section, facts);
  read_heads(section, facts, keys::kEncoderHeads, model);
  model.inner = required_size(section, keys::kEncoderInner);
  read_positions(section, facts, keys::kSourcePositions, model);
  model.causal = false;
  model.layers.resize(static_cast<std::size_t>(layers));
  // Of the decoder that such an encoder is trained with, and that is not here.
  for (const auto name :
       {keys::kReadsEncoder[0], keys::kDecoderDepth[1], keys::kScaleDecoderOutputs[0], keys::kCausal[0]})
    section.mark_read(name);
  return model;
}

ModelConfig read_codebook_decoder(ConfigReader& section, const Facts& facts, std::int64_t layers) {
  refuse_looking_ahead(section);
  check_depth("decoder", required_size(section, keys::kDepth), layers);
  auto model = read_common(section, facts);
  model.embedding_scale = 1;  // the class reads scale_embedding and does not use it
  read_heads(section, facts, keys::kHeads, model);
  model.inner = required_size(section, keys::kInner);
  read_positions(section, facts, keys::kMaxPositions, model);
  model.memory_width = model.hidden;
  model.layers.resize(static_cast<std::size_t>(layers));
  // It is one and has it, whatever they say.
  section.mark_read("is_decoder");
  section.mark_read("add_cross_attention");
  return model;
}

}  // namespace diffuse

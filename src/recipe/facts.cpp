#include "recipe/facts.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "recipe/build.hpp"

namespace diffuse {
namespace {

constexpr PresenceRule kAlways = {.presence = Presence::always};
constexpr PresenceRule kAttentionBias = {.presence = Presence::keyed, .key = "attention_bias"};
constexpr PresenceRule kMlpBias = {.presence = Presence::keyed, .key = "mlp_bias"};

// What the classes' configurations read, their attribute_map included. Their base reads rope_theta and
// partial_rotary_factor for all that turn positions.
using Key = std::string_view;
template <std::size_t A, std::size_t B>
constexpr std::array<Key, A + B> joined(const std::array<Key, A>& first, const std::array<Key, B>& second) {
  std::array<Key, A + B> all;
  std::copy(first.begin(), first.end(), all.begin());
  std::copy(second.begin(), second.end(), all.begin() + A);
  return all;
}
constexpr std::array kDecoderKeys = {
    Key("hidden_size"),           Key("num_hidden_layers"), Key("num_attention_heads"),
    Key("num_key_value_heads"),   Key("head_dim"),          Key("intermediate_size"),
    Key("rms_norm_eps"),          Key("rope_theta"),        Key("max_position_embeddings"),
    Key("partial_rotary_factor"),
};
constexpr auto kLlamaKeys = joined(kDecoderKeys, std::array{Key("hidden_act")});
constexpr auto kMixtralKeys = joined(kLlamaKeys, std::array{Key("num_local_experts"), Key("num_experts")});
constexpr auto kGemma2Keys = joined(kDecoderKeys, std::array{Key("hidden_activation")});
constexpr std::array kGpt2Keys = {
    Key("n_embd"),
    Key("hidden_size"),
    Key("n_layer"),
    Key("num_hidden_layers"),
    Key("n_head"),
    Key("num_attention_heads"),
    Key("n_inner"),
    Key("n_positions"),
    Key("max_position_embeddings"),
    Key("layer_norm_epsilon"),
    Key("activation_function"),
};
constexpr std::array kT5Keys = {
    Key("d_model"),
    Key("hidden_size"),
    Key("num_layers"),
    Key("num_hidden_layers"),
    Key("num_heads"),
    Key("num_attention_heads"),
    Key("d_kv"),
    Key("head_dim"),
    Key("d_ff"),
    Key("num_decoder_layers"),
    Key("layer_norm_epsilon"),
};
// The eps of their norms is torch's own, whatever a config says.
constexpr std::array kHalvesKeys = {
    Key("d_model"),
    Key("hidden_size"),
    Key("encoder_layers"),
    Key("num_hidden_layers"),
    Key("decoder_layers"),
    Key("encoder_attention_heads"),
    Key("num_attention_heads"),
    Key("decoder_attention_heads"),
    Key("encoder_ffn_dim"),
    Key("decoder_ffn_dim"),
    Key("activation_function"),
};
constexpr auto kBartKeys = joined(kHalvesKeys, std::array{Key("max_position_embeddings")});
constexpr auto kMarianKeys = joined(kBartKeys, std::array{Key("decoder_vocab_size")});
constexpr auto kWhisperKeys =
    joined(kHalvesKeys,
           std::array{Key("num_key_value_heads"), Key("max_source_positions"), Key("max_target_positions")});
// Of the decoder's section; those beside it are other classes'.
constexpr std::array kMusicgenKeys = {
    Key("hidden_size"), Key("num_hidden_layers"),       Key("num_attention_heads"),
    Key("ffn_dim"),     Key("max_position_embeddings"), Key("activation_function"),
};

constexpr MemoryFacts kT5 = {
    .positions = PositionKind::relative_bias,
    .final_norm = true,
    .key_bias = Presence::absent,
    .scores_unscaled = true,
    .feed_forward_proj = true,
    .scales_logits = true,
    .always_tied = true,
};
constexpr MemoryFacts kBart = {
    .positions = PositionKind::learned,
    .position_offset = 2,
    .embedding_norm = true,
    .logits_bias = Presence::stored,
};
constexpr MemoryFacts kBlenderbot = {
    .positions = PositionKind::learned,
    .final_norm = true,
    .logits_bias = Presence::stored,
};
constexpr MemoryFacts kPegasus = {
    .positions = PositionKind::sinusoids,
    .final_norm = true,
    .logits_bias = Presence::stored,
};
constexpr MemoryFacts kMarian = {
    .positions = PositionKind::sinusoids,
    .logits_bias = Presence::stored,
    .reads_sharing = true,
};
constexpr MemoryFacts kM2m = {
    .positions = PositionKind::sinusoids_single,
    .position_offset = 2,
    .final_norm = true,
};
constexpr MemoryFacts kWhisper = {
    .positions = PositionKind::learned,
    .final_norm = true,
    .reads_frames = true,
    .key_bias = Presence::absent,
};

constexpr MemoryFacts kMusicgen = {
    .positions = PositionKind::sinusoids_cosines,
    .final_norm = true,
    .key_bias = Presence::absent,
    .walks_codebooks = true,
};

constexpr MemoryFacts unscaled_logits(MemoryFacts facts) {
  facts.scales_logits = false;
  return facts;
}
constexpr MemoryFacts each_layer(MemoryFacts facts) {
  facts.positions = PositionKind::relative_bias_each;
  return facts;
}
constexpr MemoryFacts with_final_norm(MemoryFacts facts) {
  facts.final_norm = true;
  return facts;
}

// BART and its kin: layer norms, biases everywhere, a plain MLP.
constexpr Facts bart_like(std::string_view model_type, std::int64_t max_positions, NormPlace norm_place,
                          const MemoryFacts& memory, std::string_view activation = "gelu") {
  Facts facts;
  facts.model_type = model_type;
  facts.keys = kBartKeys;
  facts.max_positions = max_positions;
  facts.activation = activation;
  facts.norm_eps = 1e-5;
  facts.tied = true;
  facts.norm = NormKind::layer;
  facts.norm_bias = Presence::always;
  facts.norm_place = norm_place;
  facts.rotary = false;
  facts.qkv_bias = kAlways;
  facts.attention_output_bias = kAlways;
  facts.mlp_bias = kAlways;
  facts.memory = memory;
  return facts;
}

constexpr Facts reading(std::span<const std::string_view> keys, Facts facts) {
  facts.keys = keys;
  return facts;
}

// What scale_embedding says where it is absent.
constexpr Facts scaled_embeddings(Facts facts) {
  facts.embedding_times_sqrt_hidden = true;
  return facts;
}

// Biases of the norms alone.
constexpr Facts without_linear_biases(Facts facts) {
  facts.qkv_bias = {};
  facts.attention_output_bias = {};
  facts.mlp_bias = {};
  facts.tied = false;
  return facts;
}

// Read from transformers 5.24, models/<model_type>/configuration_… and modeling_….py.
constexpr std::array kFacts = {
    Facts{
        .model_type = "qwen2",
        .keys = kLlamaKeys,
        .kv_heads = 32,
        .max_positions = 32768,
        .norm = NormKind::rms,
        .qkv_bias = kAlways,
        .window_rule = WindowRule::from_max_window_layers,
        .window = 4096,
        .max_window_layers = 28,
        .reads_layer_types = true,
    },
    Facts{
        .model_type = "qwen3",
        .keys = kLlamaKeys,
        .kv_heads = 32,
        .head_dim = 128,
        .max_positions = 32768,
        .norm = NormKind::rms,
        .qkv_bias = kAttentionBias,
        .attention_output_bias = kAttentionBias,
        .query_key_norm = Presence::always,
        .window_rule = WindowRule::from_max_window_layers,
        .window = 4096,
        .max_window_layers = 28,
        .reads_layer_types = true,
    },
    Facts{
        .model_type = "llama",
        .keys = kLlamaKeys,
        .max_positions = 2048,
        .norm = NormKind::rms,
        .qkv_bias = kAttentionBias,
        .attention_output_bias = kAttentionBias,
        .mlp_bias = kMlpBias,
    },
    Facts{
        .model_type = "mistral",
        .keys = kLlamaKeys,
        .kv_heads = 8,
        .max_positions = 131072,
        .norm = NormKind::rms,
        .window_rule = WindowRule::every_layer,
        .window = 4096,
    },
    Facts{
        .model_type = "mixtral",
        .keys = kMixtralKeys,
        .kv_heads = 8,
        .max_positions = 131072,
        .norm_eps = 1e-5,
        .norm = NormKind::rms,
        .rope_theta = 1e6,
        .window_rule = WindowRule::every_layer,
        .has_experts = true,
    },
    Facts{
        .model_type = "gemma2",
        .keys = kGemma2Keys,
        .kv_heads = 4,
        .head_dim = 256,
        .max_positions = 8192,
        .activation = "gelu_pytorch_tanh",
        .tied = true,
        .norm = NormKind::rms,
        .norm_weight_offset = 1,
        .norm_place = NormPlace::around,
        .embedding_times_sqrt_hidden = true,
        .qkv_bias = kAttentionBias,
        .attention_output_bias = kAttentionBias,
        .query_scalar = {.is_read = true, .where_key_is_absent = 256},
        .attention_softcap = {.is_read = true, .where_key_is_absent = 50},
        .logits_softcap = {.is_read = true, .where_key_is_absent = 30},
        .window_rule = WindowRule::even_layers,
        .window = 4096,
        .reads_layer_types = true,
    },
    Facts{
        .model_type = "gpt2",
        .keys = kGpt2Keys,
        .inner_factor = 4,
        .max_positions = 1024,
        .activation = "gelu_new",
        .norm_eps = 1e-5,
        .tied = true,
        .norm = NormKind::layer,
        .norm_bias = Presence::always,
        .learned_positions = true,
        .rotary = false,
        .linear_stored_transposed = true,
        .qkv_bias = kAlways,
        .attention_output_bias = kAlways,
        .mlp_bias = kAlways,
        .reads_scale_attention = true,
    },
    // Encoder-decoders. T5's norms are RMS norms; its products have no biases.
    Facts{
        .model_type = "t5",
        .keys = kT5Keys,
        .head_dim = 64,
        .activation = "relu",
        .tied = true,
        .norm = NormKind::rms,
        .rotary = false,
        .memory = kT5,
    },
    Facts{
        .model_type = "mt5",
        .keys = kT5Keys,
        .head_dim = 64,
        .activation = "gated-gelu",
        .tied = true,
        .norm = NormKind::rms,
        .rotary = false,
        .memory = unscaled_logits(kT5),
    },
    Facts{
        .model_type = "umt5",
        .keys = kT5Keys,
        .head_dim = 64,
        .activation = "gated-gelu",
        .tied = true,
        .norm = NormKind::rms,
        .rotary = false,
        .memory = each_layer(kT5),
    },
    bart_like("bart", 1024, NormPlace::after, kBart),
    scaled_embeddings(bart_like("plbart", 1024, NormPlace::after, kBart)),
    bart_like("mbart", 1024, NormPlace::before, with_final_norm(kBart)),
    bart_like("blenderbot", 128, NormPlace::before, kBlenderbot),
    reading(kMarianKeys, bart_like("marian", 1024, NormPlace::after, kMarian)),
    bart_like("pegasus", 1024, NormPlace::before, kPegasus),
    scaled_embeddings(bart_like("m2m_100", 1024, NormPlace::before, kM2m, "relu")),
    reading(kWhisperKeys, bart_like("whisper", 448, NormPlace::before, kWhisper)),
    reading(kMusicgenKeys, without_linear_biases(bart_like("musicgen", 2048, NormPlace::before, kMusicgen))),
    Facts{
        .model_type = "musicgen_melody",
        .obstacle = "its stack starts with rows made of a melody's chroma features and of the text, in place "
                    "of reading the text's encoder at every layer, and this build does not make them",
    },
};

constexpr PresenceRule kStored = {.presence = Presence::stored};
constexpr Facts kPlain = {
    .max_positions = 2048,
    .norm_bias = Presence::stored,
    .qkv_bias = kStored,
    .attention_output_bias = kStored,
    .mlp_bias = kStored,
    .query_key_norm = Presence::stored,
    .reads_layer_types = true,
};

}  // namespace

const Facts* facts_of(std::string_view model_type) {
  const auto* const row = std::find_if(kFacts.begin(), kFacts.end(),
                                       [&](const auto& facts) { return facts.model_type == model_type; });
  return row == kFacts.end() ? nullptr : row;
}

std::vector<std::string_view> known_model_types() {
  std::vector<std::string_view> names;
  for (const auto& row : kFacts) names.push_back(row.model_type);
  return names;
}

const Facts& plain_facts() {
  return kPlain;
}

}  // namespace diffuse

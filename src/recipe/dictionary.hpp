#pragma once
// The names that the field uses for the same role: keys of config.json, and parts of tensors' names. The
// usual name stands first. A further name is a further entry here, nothing else.

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace diffuse {

namespace keys {

using Key = std::string_view;

inline constexpr std::array kModelType = {Key("model_type")};
inline constexpr std::array kHidden = {Key("hidden_size"), Key("n_embd"), Key("d_model")};
inline constexpr std::array kDepth = {Key("num_hidden_layers"), Key("n_layer"), Key("n_layers")};
inline constexpr std::array kVocab = {Key("vocab_size")};
inline constexpr std::array kHeads = {Key("num_attention_heads"), Key("n_head"), Key("n_heads")};
inline constexpr std::array kKvHeads = {Key("num_key_value_heads"), Key("num_kv_heads"), Key("n_head_kv")};
inline constexpr std::array kHeadDim = {Key("head_dim")};
inline constexpr std::array kInner = {Key("intermediate_size"), Key("n_inner"), Key("ffn_dim")};
inline constexpr std::array kMaxPositions = {Key("max_position_embeddings"), Key("n_positions"), Key("n_ctx"),
                                             Key("max_sequence_length")};
inline constexpr std::array kNormEps = {Key("rms_norm_eps"), Key("layer_norm_epsilon"), Key("layer_norm_eps"),
                                        Key("norm_epsilon"), Key("norm_eps")};
inline constexpr std::array kActivation = {Key("hidden_act"), Key("hidden_activation"),
                                           Key("activation_function")};
inline constexpr std::array kCausal = {Key("is_causal")};
inline constexpr std::array kTied = {Key("tie_word_embeddings")};
inline constexpr std::array kRopeTheta = {Key("rope_theta"), Key("rotary_emb_base")};
inline constexpr std::array kRopeType = {Key("rope_type"), Key("type")};
inline constexpr std::array kPartialRotary = {Key("partial_rotary_factor"), Key("rotary_pct")};
inline constexpr std::array kOriginalPositions = {Key("original_max_position_embeddings")};
inline constexpr std::array kWindow = {Key("sliding_window")};
inline constexpr std::array kUseWindow = {Key("use_sliding_window")};
inline constexpr std::array kMaxWindowLayers = {Key("max_window_layers")};
inline constexpr std::array kLayerTypes = {Key("layer_types")};
inline constexpr std::array kAttentionSoftcap = {Key("attn_logit_softcapping")};
inline constexpr std::array kLogitsSoftcap = {Key("final_logit_softcapping")};
inline constexpr std::array kQueryScalar = {Key("query_pre_attn_scalar")};
inline constexpr std::array kScaleAttention = {Key("scale_attn_weights")};
inline constexpr std::array kExperts = {Key("num_local_experts"), Key("num_experts"),
                                        Key("n_routed_experts")};
inline constexpr std::array kExpertsPerToken = {Key("num_experts_per_tok")};

// Encoder-decoders name the sizes of their halves one by one; where one name serves both, it stands in both.
// BART's num_hidden_layers is its encoder's depth.
inline constexpr std::array kReadsEncoder = {Key("is_encoder_decoder")};
inline constexpr std::array kEncoderDepth = {Key("encoder_layers"), Key("num_layers"),
                                             Key("num_hidden_layers")};
inline constexpr std::array kDecoderDepth = {Key("decoder_layers"), Key("num_decoder_layers")};
inline constexpr std::array kEncoderHeads = {Key("encoder_attention_heads"), Key("num_heads"),
                                             Key("num_attention_heads"), Key("num_key_value_heads")};
inline constexpr std::array kDecoderHeads = {Key("decoder_attention_heads"), Key("num_heads")};
inline constexpr std::array kEncoderInner = {Key("encoder_ffn_dim"), Key("d_ff")};
inline constexpr std::array kDecoderInner = {Key("decoder_ffn_dim"), Key("d_ff")};
inline constexpr std::array kKvDim = {Key("d_kv"), Key("head_dim")};
inline constexpr std::array kDecoderVocab = {Key("decoder_vocab_size")};
inline constexpr std::array kShared = {Key("share_encoder_decoder_embeddings")};
inline constexpr std::array kSourcePositions = {Key("max_source_positions"), Key("max_position_embeddings")};
inline constexpr std::array kTargetPositions = {Key("max_target_positions"), Key("max_position_embeddings")};
inline constexpr std::array kFeatures = {Key("num_mel_bins")};
inline constexpr std::array kScaleEmbedding = {Key("scale_embedding")};
inline constexpr std::array kFeedForwardProj = {Key("feed_forward_proj")};
inline constexpr std::array kDenseActivation = {Key("dense_act_fn")};
inline constexpr std::array kIsGated = {Key("is_gated_act")};
inline constexpr std::array kScaleDecoderOutputs = {Key("scale_decoder_outputs")};
inline constexpr std::array kPad = {Key("pad_token_id")};
inline constexpr std::array kDecoderStart = {Key("decoder_start_token_id")};
inline constexpr std::array kCodebooks = {Key("num_codebooks")};
inline constexpr std::array kChannels = {Key("audio_channels")};
inline constexpr std::array kBiasBuckets = {Key("relative_attention_num_buckets")};
inline constexpr std::array kBiasDistance = {Key("relative_attention_max_distance")};

// Of stacks that refine, as diffusers' classes name them.
inline constexpr std::array kRefiningDepth = {Key("num_layers")};
inline constexpr std::array kRefiningHeads = {Key("num_attention_heads")};
inline constexpr std::array kRefiningHeadDim = {Key("attention_head_dim")};
inline constexpr std::array kRefiningInner = {Key("ffn_dim")};
inline constexpr std::array kRefiningEps = {Key("eps")};
inline constexpr std::array kLatentChannels = {Key("in_channels")};
inline constexpr std::array kPredictedChannels = {Key("out_channels")};
inline constexpr std::array kTextWidth = {Key("text_dim")};
inline constexpr std::array kTimeWidth = {Key("freq_dim")};
inline constexpr std::array kMostPatches = {Key("rope_max_seq_len")};
inline constexpr std::array kCrossNorm = {Key("cross_attn_norm")};
inline constexpr std::array kQueryKeyNorm = {Key("qk_norm")};
inline constexpr std::string_view kPatchSize = "patch_size";

// The roles of which a family's class reads some names, or none, and passes over the others. Which ones it
// reads is a stated fact (Facts::keys).
inline constexpr std::array kDisputed = {
    std::span<const Key>(kHidden),          std::span<const Key>(kDepth),
    std::span<const Key>(kHeads),           std::span<const Key>(kKvHeads),
    std::span<const Key>(kHeadDim),         std::span<const Key>(kInner),
    std::span<const Key>(kMaxPositions),    std::span<const Key>(kNormEps),
    std::span<const Key>(kActivation),      std::span<const Key>(kRopeTheta),
    std::span<const Key>(kPartialRotary),   std::span<const Key>(kExperts),
    std::span<const Key>(kEncoderDepth),    std::span<const Key>(kDecoderDepth),
    std::span<const Key>(kEncoderHeads),    std::span<const Key>(kDecoderHeads),
    std::span<const Key>(kEncoderInner),    std::span<const Key>(kDecoderInner),
    std::span<const Key>(kKvDim),           std::span<const Key>(kDecoderVocab),
    std::span<const Key>(kSourcePositions), std::span<const Key>(kTargetPositions),
};
constexpr bool is_disputed(std::string_view name) {
  return std::any_of(kDisputed.begin(), kDisputed.end(), [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  });
}

}  // namespace keys

// Parts of tensors' names. `.weight` and `.bias` are added to what stands here.
namespace names {

using Name = std::string_view;

// What stands in front of a layer's number, and in front of the tensors of front and back.
struct Stack {
  Name layers;
  Name root;
};
inline constexpr std::array kStacks = {
    Stack{"model.layers.", "model."},
    Stack{"transformer.h.", "transformer."},
    Stack{"model.decoder.layers.", "model.decoder."},
    Stack{"gpt_neox.layers.", "gpt_neox."},
    Stack{"layers.", ""},
    Stack{"h.", ""},
};

// The same for the two halves of an encoder-decoder, and the table of embeddings that both may use.
struct MemoryStack {
  Stack decoder;
  Stack encoder;
  Name shared;
};
inline constexpr std::array kMemoryStacks = {
    MemoryStack{{"model.decoder.layers.", "model.decoder."},
                {"model.encoder.layers.", "model.encoder."},
                "model.shared"},
    MemoryStack{{"decoder.layers.", "decoder."}, {"encoder.layers.", "encoder."}, "shared"},
    MemoryStack{{"decoder.block.", "decoder."}, {"encoder.block.", "encoder."}, "shared"},
};

// A decoder of codebooks, its text encoder and its codec, each a model of its own.
inline constexpr Stack kCodebookDecoder = {"decoder.model.decoder.layers.", "decoder.model.decoder."};
inline constexpr Stack kTextEncoder = {"text_encoder.encoder.block.", "text_encoder.encoder."};
inline constexpr Name kTextEncoderShared = "text_encoder.shared";
inline constexpr Name kCodebookHeads = "decoder.lm_heads.";  // in front of a codebook's number
inline constexpr Name kMemoryProjection = "enc_to_dec_proj";
inline constexpr Name kCodec = "audio_encoder.";

// Behind the root.
inline constexpr std::array kEmbedding = {Name("embed_tokens"), Name("wte"), Name("embed_in"),
                                          Name("word_embeddings")};
inline constexpr std::array kPositions = {Name("wpe"), Name("embed_positions")};
inline constexpr std::array kFinalNorm = {Name("norm"), Name("ln_f"), Name("final_layer_norm"),
                                          Name("final_layernorm"), Name("layer_norm")};
inline constexpr std::array kEmbeddingNorm = {Name("layernorm_embedding")};
inline constexpr std::array kConvolutions = {Name("conv1"), Name("conv2")};
// From the start of the name.
inline constexpr std::array kHead = {Name("lm_head"), Name("embed_out"), Name("proj_out")};
inline constexpr Name kLogitsBias = "final_logits_bias";

// Behind a layer's number and a dot.
inline constexpr std::array kQuery = {
    Name("self_attn.q_proj"),        Name("attn.q_proj"), Name("attention.wq"), Name("attention.q_proj"),
    Name("layer.0.SelfAttention.q"), Name("attn1.to_q")};
inline constexpr std::array kKey = {
    Name("self_attn.k_proj"),        Name("attn.k_proj"), Name("attention.wk"), Name("attention.k_proj"),
    Name("layer.0.SelfAttention.k"), Name("attn1.to_k")};
inline constexpr std::array kValue = {
    Name("self_attn.v_proj"),        Name("attn.v_proj"), Name("attention.wv"), Name("attention.v_proj"),
    Name("layer.0.SelfAttention.v"), Name("attn1.to_v")};
inline constexpr std::array kAttentionOutput = {Name("self_attn.o_proj"),        Name("self_attn.out_proj"),
                                                Name("self_attn.dense"),         Name("attn.c_proj"),
                                                Name("attn.out_proj"),           Name("attention.wo"),
                                                Name("attention.dense"),         Name("attention.o_proj"),
                                                Name("layer.0.SelfAttention.o"), Name("attn1.to_out.0")};
inline constexpr std::array kPositionBias = {Name("layer.0.SelfAttention.relative_attention_bias")};
inline constexpr std::array kCrossQuery = {Name("encoder_attn.q_proj"), Name("layer.1.EncDecAttention.q"),
                                           Name("attn2.to_q")};
inline constexpr std::array kCrossKey = {Name("encoder_attn.k_proj"), Name("layer.1.EncDecAttention.k"),
                                         Name("attn2.to_k")};
inline constexpr std::array kCrossValue = {Name("encoder_attn.v_proj"), Name("layer.1.EncDecAttention.v"),
                                           Name("attn2.to_v")};
inline constexpr std::array kCrossOutput = {Name("encoder_attn.out_proj"), Name("layer.1.EncDecAttention.o"),
                                            Name("attn2.to_out.0")};
// Of layer 0 in T5's first checkpoints; no class has it.
inline constexpr Name kCrossPositionBias = "0.layer.1.EncDecAttention.relative_attention_bias.weight";
inline constexpr std::array kCrossQueryNorm = {Name("attn2.norm_q")};
inline constexpr std::array kCrossKeyNorm = {Name("attn2.norm_k")};
// All query rows, then all key rows, then all value rows.
inline constexpr std::array kFusedQueryKeyValue = {Name("attn.c_attn"), Name("self_attn.qkv_proj")};
inline constexpr std::array kQueryNorm = {Name("self_attn.q_norm"), Name("self_attn.q_layernorm"),
                                          Name("attn1.norm_q")};
inline constexpr std::array kKeyNorm = {Name("self_attn.k_norm"), Name("self_attn.k_layernorm"),
                                        Name("attn1.norm_k")};

// T5 numbers a block's branches: its MLP is the second in the encoder and the third in the decoder.
inline constexpr std::array kGate = {Name("mlp.gate_proj"), Name("mlp.w1"), Name("feed_forward.w1"),
                                     Name("layer.2.DenseReluDense.wi_0"),
                                     Name("layer.1.DenseReluDense.wi_0")};
inline constexpr std::array kGatedUp = {Name("mlp.up_proj"), Name("mlp.w3"), Name("feed_forward.w3"),
                                        Name("layer.2.DenseReluDense.wi_1"),
                                        Name("layer.1.DenseReluDense.wi_1")};
inline constexpr std::array kUngatedUp = {Name("mlp.c_fc"),
                                          Name("mlp.up_proj"),
                                          Name("mlp.fc1"),
                                          Name("fc1"),
                                          Name("mlp.dense_h_to_4h"),
                                          Name("layer.2.DenseReluDense.wi"),
                                          Name("layer.1.DenseReluDense.wi"),
                                          Name("ffn.net.0.proj")};
inline constexpr std::array kGatedDown = {Name("mlp.down_proj"), Name("mlp.w2"), Name("feed_forward.w2"),
                                          Name("layer.2.DenseReluDense.wo"),
                                          Name("layer.1.DenseReluDense.wo")};
inline constexpr std::array kUngatedDown = {Name("mlp.c_proj"),
                                            Name("mlp.down_proj"),
                                            Name("mlp.fc2"),
                                            Name("fc2"),
                                            Name("mlp.dense_4h_to_h"),
                                            Name("layer.2.DenseReluDense.wo"),
                                            Name("layer.1.DenseReluDense.wo"),
                                            Name("ffn.net.2")};
// All gate rows, then all up rows.
inline constexpr std::array kFusedGateUp = {Name("mlp.gate_up_proj")};

inline constexpr std::array kRouter = {Name("block_sparse_moe.gate"), Name("mlp.gate")};
// Behind the router's module ("mlp."): one tensor an expert ("experts.3.w1.weight") …
inline constexpr std::array kExpertGate = {Name("w1"), Name("gate_proj")};
inline constexpr std::array kExpertUp = {Name("w3"), Name("up_proj")};
inline constexpr std::array kExpertDown = {Name("w2"), Name("down_proj")};
// … or one for all: [experts, 2 * inner, hidden], gate rows first, and [experts, hidden, inner].
inline constexpr Name kFusedExpertsGateUp = "experts.gate_up_proj";
inline constexpr Name kFusedExpertsDown = "experts.down_proj";

// Norms of a block whose branches are normed before they run, after they ran, or both. The same name can mean
// two places: what Llama calls post_attention_layernorm stands before its MLP.
inline constexpr std::array kNormBeforeAttention = {Name("input_layernorm"), Name("ln_1"),
                                                    Name("self_attn_layer_norm"), Name("attention_norm"),
                                                    Name("layer.0.layer_norm")};
inline constexpr std::array kNormBeforeCross = {Name("encoder_attn_layer_norm"), Name("layer.1.layer_norm"),
                                                Name("norm2")};
inline constexpr std::array kNormBeforeMlp = {Name("post_attention_layernorm"), Name("ln_2"),
                                              Name("final_layer_norm"),         Name("ffn_norm"),
                                              Name("layer.2.layer_norm"),       Name("layer.1.layer_norm")};
inline constexpr std::array kNormAfterAttention = {Name("post_attention_layernorm")};
inline constexpr std::array kNormBetween = {Name("pre_feedforward_layernorm")};
inline constexpr std::array kNormAfterMlp = {Name("post_feedforward_layernorm")};

// Of stacks that refine, behind the component's name and a dot. The first is in front of a layer's number.
inline constexpr Name kRefiningLayers = "blocks.";
inline constexpr Name kModulation = "scale_shift_table";  // of a block, and of the end
inline constexpr Name kPatchEmbedding = "patch_embedding";
inline constexpr Name kTimeFirst = "condition_embedder.time_embedder.linear_1";
inline constexpr Name kTimeSecond = "condition_embedder.time_embedder.linear_2";
inline constexpr Name kTimeCondition = "condition_embedder.time_proj";
inline constexpr Name kTextFirst = "condition_embedder.text_embedder.linear_1";
inline constexpr Name kTextSecond = "condition_embedder.text_embedder.linear_2";
inline constexpr Name kRefinedOutput = "proj_out";

}  // namespace names

}  // namespace diffuse

#include "recipe/known_keys.hpp"

#include <algorithm>
#include <array>

#include "recipe/config_reader.hpp"

namespace diffuse {
namespace {

using Key = std::string_view;

constexpr std::array kTraining = {
    Key("attention_dropout"),
    Key("attn_pdrop"),
    Key("embd_pdrop"),
    Key("resid_pdrop"),
    Key("hidden_dropout"),
    Key("embedding_dropout"),
    Key("residual_dropout"),
    Key("dropout"),
    Key("activation_dropout"),
    Key("classifier_dropout"),
    Key("layerdrop"),
    Key("initializer_range"),
    Key("router_aux_loss_coef"),
    Key("router_jitter_noise"),
    Key("summary_first_dropout"),
    Key("gradient_checkpointing"),
    Key("dropout_rate"),
    Key("decoder_layerdrop"),
    Key("encoder_layerdrop"),
    Key("init_std"),
    Key("initializer_factor"),
    Key("classif_dropout"),
    Key("apply_spec_augment"),
    Key("mask_time_prob"),
    Key("mask_time_length"),
    Key("mask_time_min_masks"),
    Key("mask_feature_prob"),
    Key("mask_feature_length"),
    Key("mask_feature_min_masks"),
    Key("replacing_rate"),
};
// What other programs' configs said of BART, T5 and their kin; no class of transformers reads it.
constexpr std::array kConverted = {
    Key("scalable_attention"),  // of UMT5's training program
    Key("do_blenderbot_90_layernorm"),
    Key("extra_layer_norm"),
    Key("layernorm_variant"),
    Key("normalize_before"),
    Key("normalize_embedding"),
    Key("add_final_layer_norm"),
    Key("add_bias_logits"),
    Key("static_position_embeddings"),
    Key("extra_pos_embeddings"),
    Key("save_step"),
    Key("force_bos_token_to_be_generated"),
};
// What a call returns or keeps beside the logits.
constexpr std::array kOutput = {
    Key("use_cache"),
    Key("output_attentions"),
    Key("output_hidden_states"),
    Key("output_router_logits"),
    Key("output_scores"),
    Key("output_past"),
    Key("return_dict"),
    Key("return_dict_in_generate"),
    Key("cache_implementation"),
    Key("chunk_size_feed_forward"),
};
// Heads of other classes of the family: classification, summaries.
constexpr std::array kOtherHeads = {
    Key("id2label"),
    Key("label2id"),
    Key("num_labels"),
    Key("problem_type"),
    Key("summary_type"),
    Key("summary_use_proj"),
    Key("summary_activation"),
    Key("summary_proj_to_labels"),
    Key("classifier_proj_size"),
};
constexpr std::array kIdentity = {
    Key("architectures"),
    Key("model_type"),
    Key("_name_or_path"),
    Key("name_or_path"),
    Key("_commit_hash"),
    Key("_model_name_or_path"),
    Key("_num_labels"),
    Key("_flash_attn_2_enabled"),
    Key("transformers_version"),
    Key("torch_dtype"),
    Key("dtype"),
    Key("finetuning_task"),
    Key("unsloth_version"),
    Key("unsloth_fixed"),
    Key("is_llama_config"),
    Key("transformers.js_config"),
};
constexpr std::array kTokens = {
    Key("bos_token_id"), Key("eos_token_id"),           Key("pad_token_id"),  Key("sep_token_id"),
    Key("unk_token_id"), Key("cls_token_id"),           Key("mask_token_id"), Key("tokenizer_class"),
    Key("prefix"),       Key("decoder_start_token_id"),
};
// Defaults of generate() that old files keep here: a job states its own.
constexpr std::array kGeneration = {
    Key("max_length"),
    Key("min_length"),
    Key("do_sample"),
    Key("early_stopping"),
    Key("num_beams"),
    Key("num_beam_groups"),
    Key("diversity_penalty"),
    Key("temperature"),
    Key("top_k"),
    Key("top_p"),
    Key("typical_p"),
    Key("repetition_penalty"),
    Key("length_penalty"),
    Key("no_repeat_ngram_size"),
    Key("encoder_no_repeat_ngram_size"),
    Key("bad_words_ids"),
    Key("num_return_sequences"),
    Key("forced_bos_token_id"),
    Key("forced_eos_token_id"),
    Key("remove_invalid_values"),
    Key("exponential_decay_length_penalty"),
    Key("suppress_tokens"),
    Key("begin_suppress_tokens"),
    Key("task_specific_params"),
    Key("forced_decoder_ids"),
};
// How somebody's program is to compute or place it, not what.
constexpr std::array kPlacement = {
    Key("_attn_implementation"),
    Key("use_flash_attention_2"),
    Key("_attn_implementation_autoset"),
    Key("attn_implementation"),
    Key("_experts_implementation"),
    Key("reorder_and_upcast_attn"),
    Key("torchscript"),
    Key("use_bfloat16"),
    Key("tf_legacy_loss"),
    Key("pruned_heads"),
    Key("tp_plan"),
};

template <std::size_t N>
bool contains(const std::array<Key, N>& list, Key key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

struct HarmlessValue {
  Key key;
  double value;
};
constexpr std::array kHarmlessValues = {
    HarmlessValue{"pretraining_tp", 1},         // another value cuts each product into a sum of parts
    HarmlessValue{"partial_rotary_factor", 1},  // the whole head
    HarmlessValue{"median_filter_width", 7},    // of the times of words; another one is not computed
};

// Each says what a config with such a key has; the key stands where its value is not null, false or empty.
struct Obstacle {
  Key key;
  std::string_view reason;
};
constexpr std::array kObstacles = {
    Obstacle{"quantization_config", "its weights are quantized"},
    Obstacle{"is_encoder_decoder", "its stack reads an encoder"},
    Obstacle{"add_cross_attention", "its layers read another model's output"},
    Obstacle{"text_config", "its text model stands behind a front end"},
    Obstacle{"vision_config", "it has a vision tower"},
    Obstacle{"audio_config", "it has an audio tower"},
    Obstacle{"use_bidirectional_attention", "its attention looks ahead"},
    Obstacle{"scale_attn_by_inverse_layer_idx", "its attention scores are scaled layer by layer"},
    Obstacle{"per_layer_config", "its layers have configs of their own"},
};

}  // namespace

bool is_harmless(std::string_view key, const Json& value) {
  if (contains(kTraining, key) || contains(kOutput, key) || contains(kOtherHeads, key) ||
      contains(kIdentity, key) || contains(kTokens, key) || contains(kGeneration, key) ||
      contains(kPlacement, key) || contains(kConverted, key))
    return true;
  return std::any_of(kHarmlessValues.begin(), kHarmlessValues.end(), [&](const auto& known) {
    return known.key == key && value.is_number() && value.get<double>() == known.value;
  });
}

std::optional<std::string> obstacle(std::string_view key, const Json& value) {
  const auto* const known =
      std::find_if(kObstacles.begin(), kObstacles.end(), [&](const auto& one) { return one.key == key; });
  if (known == kObstacles.end() || says_nothing(value)) return std::nullopt;
  return std::string(known->reason) + " ('" + std::string(key) + "' in config.json)";
}

}  // namespace diffuse

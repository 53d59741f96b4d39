#include <functional>

#include "support.hpp"

namespace diffuse {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// An edit to a golden model that makes it one that must not run, and what is said about it.
struct Bad {
  std::string name;
  std::string golden;
  std::function<void(Model&)> edit;
  std::string code;
  std::string found;
};

void PrintTo(const Bad& bad, std::ostream* out) {
  *out << bad.name;
}

std::function<void(Model&)> with(const std::string& key, const Json& value) {
  return [=](Model& model) { model.config[key] = value; };
}
std::function<void(Model&)> without(const std::string& key) {
  return [=](Model& model) { model.config.erase(key); };
}
std::function<void(Model&)> rope(const Json& parameters) {
  return with("rope_parameters", parameters);
}
std::function<void(Model&)> tensor(const std::string& name, const TensorHeader& header) {
  return [=](Model& model) { model.headers[name] = header; };
}

const std::vector<Bad> kBad = {
    // Left over.
    {"unknown_key", "llama", with("something_new", true), "69", R"(does not know: "something_new" = true)"},
    {"unknown_number", "llama", with("something_new", 0), "69", R"("something_new" = 0)"},
    {"unknown_rope_key", "llama", [](Model& model) { model.config["rope_parameters"]["twist"] = 2; }, "69",
     R"("rope_parameters.twist" = 2)"},
    {"extra_tensor", "llama", tensor("model.layers.1.mlp.extra.weight", {DType::f32, {3}}), "69",
     R"(no step uses the tensors "model.layers.1.mlp.extra.weight")"},
    {"bias_that_the_config_denies", "llama",
     tensor("model.layers.1.self_attn.q_proj.bias", {DType::f32, {16}}), "69",
     R"("model.layers.1.self_attn.q_proj.bias")"},
    {"a_second_name_for_a_tensor", "llama", tensor("model.layers.1.mlp.w1.weight", {DType::f32, {101, 16}}),
     "69", R"("model.layers.1.mlp.w1.weight")"},
    {"a_mask_that_is_none", "gpt2", tensor("transformer.h.1.attn.bias", {DType::f32, {32}}), "69",
     R"("transformer.h.1.attn.bias")"},
    {"softcap_of_a_family_that_has_none", "llama", with("attn_logit_softcapping", 50.0), "69",
     "attn_logit_softcapping"},
    {"query_scalar_of_a_family_that_has_none", "qwen2", with("query_pre_attn_scalar", 10), "69",
     "query_pre_attn_scalar"},
    {"window_of_a_family_that_has_none", "llama", with("sliding_window", 7), "69", "sliding_window"},
    {"layer_types_of_a_family_that_reads_none", "mistral-window", with("layer_types", {"full_attention"}),
     "69", "layer_types"},
    {"part_of_a_head", "llama", with("partial_rotary_factor", 0.5), "69", "partial_rotary_factor"},
    {"experts_of_a_family_that_has_none", "llama", with("num_local_experts", 8), "69", "num_local_experts"},
    {"sums_of_parts", "llama", with("pretraining_tp", 2), "69", "pretraining_tp"},
    // Known and not run.
    {"quantized", "llama", with("quantization_config", {{"bits", 4}}), "69", "its weights are quantized"},
    {"encoder", "llama", with("is_encoder_decoder", true), "69", "reads an encoder"},
    {"cross_attention", "gpt2", with("add_cross_attention", true), "69", "read another model's output"},
    {"text_model_inside", "llama", with("text_config", {{"hidden_size", 3}}), "69", "behind a front end"},
    {"vision", "llama", with("vision_config", {{"hidden_size", 3}}), "69", "vision tower"},
    {"audio", "llama", with("audio_config", {{"hidden_size", 3}}), "69", "audio tower"},
    {"bidirectional", "gemma2", with("use_bidirectional_attention", true), "69", "looks ahead"},
    {"scaled_by_layer", "gpt2", with("scale_attn_by_inverse_layer_idx", true), "69", "layer by layer"},
    {"configs_by_layer", "llama", with("per_layer_config", {{"0", 1}}), "69", "configs of their own"},
    {"unknown_family", "llama", with("model_type", "lama2"), "69", R"(no facts about model_type "lama2")"},
    {"no_family", "llama", without("model_type"), "69", "does not state 'model_type'"},
    {"unknown_activation", "llama", with("hidden_act", "mish"), "69", R"(activation "mish")"},
    {"unknown_layer_type", "qwen2",
     with("layer_types", {"full_attention", "linear_attention", "full_attention", "full_attention"}), "69",
     R"(layers of type "linear_attention")"},
    {"dynamic_rope", "llama", rope({{"rope_type", "dynamic"}, {"factor", 2}}), "69",
     "cannot run yet: rope type 'dynamic'"},
    {"longrope", "llama", rope({{"rope_type", "longrope"}, {"factor", 2}}), "69",
     "cannot run yet: rope type 'longrope'"},
    {"unknown_rope", "llama", rope({{"rope_type", "spiral"}}), "69", R"(rope type "spiral")"},
    {"rope_for_other_layers", "llama", rope({{"sliding_attention", {{"rope_type", "default"}}}}), "69",
     "none for 'full_attention'"},
    {"weights_of_another_type", "llama", tensor("model.norm.weight", {DType::f64, {16}}), "69",
     R"(tensor "model.norm.weight" is stored as f64)"},
    {"no_layers", "llama", [](Model& model) { model.headers.clear(); }, "69", "no stack of layers"},
    {"two_stacks", "llama", tensor("transformer.h.0.ln_1.weight", {DType::f32, {16}}), "69", "two stacks"},
    {"a_layer_is_missing", "llama", tensor("model.layers.6.mlp.up_proj.weight", {DType::f32, {101, 16}}),
     "69", "layer 6 and only 6 layers"},
    // Two things that do not agree.
    {"depth", "llama", with("num_hidden_layers", 6), "69", "states 6 layers and the weights have 5"},
    {"endless_depth", "llama", with("num_hidden_layers", 1000000000), "69", "states 1000000000 layers"},
    {"two_names", "gpt2", with("hidden_size", 16), "69", "'hidden_size' is 16 and 'n_embd' is 32"},
    {"two_ropes", "llama", with("rope_scaling", {{"type", "linear"}, {"factor", 2}}), "69",
     "both rope_parameters and rope_scaling"},
    {"shape", "llama", with("intermediate_size", 100), "65",
     R"(tensor "model.layers.0.mlp.gate_proj.weight" has shape [101, 16], config.json makes it [100, 16])"},
    {"vocab", "llama", with("vocab_size", 255), "65", "has shape [256, 16], config.json makes it [255, 16]"},
    {"tensor_missing", "llama",
     [](Model& model) { model.headers.erase("model.layers.2.mlp.up_proj.weight"); }, "65",
     R"(no tensor "model.layers.2.mlp.up_proj.weight")"},
    {"bias_missing", "llama", with("attention_bias", true), "65",
     R"("model.layers.0.self_attn.q_proj.bias")"},
    {"head_missing", "qwen2-tied", with("tie_word_embeddings", false), "65", R"(no tensor "lm_head.weight")"},
    {"query_norm_missing", "qwen3",
     [](Model& model) { model.headers.erase("model.layers.0.self_attn.q_norm.weight"); }, "65",
     "q_norm.weight"},
    {"kv_heads", "llama", with("num_key_value_heads", 3), "65", "2 attention heads are no multiple of 3"},
    {"no_head_dim", "qwen2", with("num_attention_heads", 6), "65", "no head_dim is stated"},
    {"too_few_layer_types", "qwen2", with("layer_types", {"full_attention"}), "65", "1 entries for 4 layers"},
    {"window_that_is_not_there", "qwen2",
     with("layer_types", {"full_attention", "sliding_attention", "full_attention", "full_attention"}), "65",
     "no sliding_window is in effect"},
    {"more_experts_a_token_than_experts", "mixtral", with("num_experts_per_tok", 5), "65",
     "5 experts a token out of 4"},
    // Values.
    {"no_hidden_size", "llama", without("hidden_size"), "65", "does not state 'hidden_size'"},
    {"text_for_a_number", "llama", with("hidden_size", "16"), "65",
     R"('hidden_size' is "16", not a whole number)"},
    {"fraction", "llama", with("num_attention_heads", 2.5), "65", "'num_attention_heads' is 2.5"},
    {"negative", "llama", with("intermediate_size", -1), "65", "'intermediate_size' is -1"},
    {"nothing", "llama", with("num_key_value_heads", 0), "65", "'num_key_value_heads' is 0"},
    {"over_63_bits", "llama", with("hidden_size", 18446744073709551615U), "65",
     "18446744073709551615, not a whole"},
    {"number_for_a_text", "llama", with("hidden_act", 3), "65", "'hidden_act' is 3, not a text"},
    {"number_for_a_bool", "llama", with("tie_word_embeddings", 1), "65",
     "'tie_word_embeddings' is 1, not true or false"},
    {"text_for_a_list", "qwen2", with("layer_types", "full_attention"), "65", "not a list of texts"},
    {"numbers_in_a_list", "qwen2", with("layer_types", {1, 2, 3, 4}), "65", "not a list of texts"},
    {"window_of_nothing", "mistral-window", with("sliding_window", 0), "65", "'sliding_window' is 0"},
    {"eps", "llama", with("rms_norm_eps", -1e-6), "65", "'rms_norm_eps' is -1e-06, not a number from 0"},
    {"text_for_eps", "llama", with("rms_norm_eps", "1e-6"), "65",
     R"('rms_norm_eps' is "1e-6", not a number)"},
    {"softcap", "gemma2", with("attn_logit_softcapping", -1), "65", "'attn_logit_softcapping' is -1"},
    {"rope_is_no_object", "llama", with("rope_parameters", 3), "65", "'rope_parameters' is 3, not an object"},
    {"theta", "llama", rope({{"rope_theta", 0}}), "65", "'rope_parameters.rope_theta' is 0"},
    {"no_factor", "llama", rope({{"rope_type", "linear"}}), "65", "rope scaling 'linear' needs 'factor'"},
    {"factor", "llama", rope({{"rope_type", "linear"}, {"factor", 0}}), "65",
     "'rope_parameters.factor' is 0"},
    {"llama3_factors", "llama3-rope",
     [](Model& model) { model.config["rope_parameters"]["low_freq_factor"] = 4.0; }, "65",
     "high_freq_factor over low_freq_factor"},
    {"odd_head", "llama", with("head_dim", 7), "65", "turns 7 of 7 elements"},
    {"config_is_no_object", "llama", [](Model& model) { model.config = Json::array(); }, "65",
     "not an object"},
};

class BadModel : public ::testing::TestWithParam<Bad> {};
INSTANTIATE_TEST_SUITE_P(Refused, BadModel, ::testing::ValuesIn(kBad),
                         [](const auto& made) { return made.param.name; });

TEST_P(BadModel, IsRefusedInOneLineThatNamesIt) {
  auto model = golden(GetParam().golden);
  GetParam().edit(model);
  const auto message = model.refusal();
  EXPECT_THAT(message, AllOf(StartsWith(GetParam().code + ": "), HasSubstr(GetParam().found)));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(Refusal, NamesEverythingThatIsLeftOver) {
  auto model = golden("llama");
  model.config["first_new"] = 1;
  model.config["second_new"] = "x";
  model.headers["model.layers.0.new.weight"] = {DType::f32, {1}};
  EXPECT_THAT(model.refusal(), AllOf(HasSubstr(R"("first_new" = 1, "second_new" = "x")"),
                                     HasSubstr(R"("model.layers.0.new.weight")")));
  for (int i = 0; i < 20; ++i) model.headers["model.layers.0.new." + std::to_string(i)] = {DType::f32, {1}};
  EXPECT_THAT(model.refusal(), HasSubstr("and 13 more"));
}

TEST(Refusal, WhatIsKnownNotToRunCannotBeAccepted) {
  auto model = golden("llama");
  model.config["quantization_config"] = {{"bits", 4}};
  EXPECT_THAT(model.refusal({"quantization_config"}), HasSubstr("quantized"));
}

TEST(Refusal, StrangersTextIsShortAndPrintable) {
  auto model = golden("llama");
  model.config["\x1b[2J\n"] = std::string(1000, 'x');
  const auto message = model.refusal();
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_LT(message.size(), 400U);
}

}  // namespace
}  // namespace diffuse

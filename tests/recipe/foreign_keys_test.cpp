// A config key that families name differently is read by the names that the family's own class reads, never
// by another family's.

#include "support.hpp"

namespace diffuse {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Foreign {
  std::string golden;
  std::string key;
  Json value;
};

void PrintTo(const Foreign& foreign, std::ostream* out) {
  *out << foreign.golden << " " << foreign.key;
}

// What a class of transformers passes over, and what another class would take it for.
const std::vector<Foreign> kForeign = {
    {"llama", "layer_norm_eps", 0.25},
    {"llama", "layer_norm_epsilon", 0.25},
    {"llama", "n_ctx", 8},
    {"llama", "hidden_activation", "relu"},
    {"llama", "activation_function", "relu"},
    {"llama", "rotary_emb_base", 500},
    {"llama", "n_embd", 32},
    {"llama", "num_kv_heads", 2},
    {"llama", "ffn_dim", 7},
    {"qwen2", "norm_eps", 0.25},
    {"qwen3", "layer_norm_eps", 0.25},
    {"mistral-window", "max_sequence_length", 8},
    {"mixtral", "n_routed_experts", 2},
    {"gemma2", "hidden_act", "relu"},
    {"gpt2", "layer_norm_eps", 0.25},
    {"gpt2", "hidden_act", "relu"},
    {"gpt2", "n_ctx", 8},
    {"gpt2", "head_dim", 16},
    {"gpt2", "num_key_value_heads", 2},
    {"gpt2", "intermediate_size", 7},
    {"t5", "rms_norm_eps", 0.25},
    {"t5", "layer_norm_eps", 0.25},
    {"t5", "n_embd", 7},
    {"t5", "decoder_attention_heads", 2},
    {"bart", "layer_norm_eps", 0.25},
    {"bart", "layer_norm_epsilon", 0.25},
    {"bart", "hidden_act", "relu"},
    {"bart", "head_dim", 4},
    {"bart", "decoder_vocab_size", 149},
    {"bart", "max_source_positions", 8},
    {"marian", "layer_norm_eps", 0.25},
    {"marian", "d_ff", 3},
    {"whisper", "layer_norm_eps", 0.25},
    {"whisper", "max_position_embeddings", 8},
    {"whisper", "hidden_act", "relu"},
};

class ForeignKey : public ::testing::TestWithParam<Foreign> {};
INSTANTIATE_TEST_SUITE_P(Families, ForeignKey, ::testing::ValuesIn(kForeign), [](const auto& made) {
  auto name = made.param.golden + "_" + made.param.key;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(ForeignKey, IsRefusedByNameOrAcceptedAndNotRead) {
  const auto& [name, key, value] = GetParam();
  auto model = golden(name);
  const auto plain = Description::of(model.build());
  model.config[key] = value;
  EXPECT_THAT(model.refusal(),
              AllOf(StartsWith("69: "), HasSubstr('"' + key + "\" = "), HasSubstr("another family's name")));
  EXPECT_EQ(Description::of(model.build({key})), plain);
}

// So that the class's default counts, and not what stands by another name.
TEST(ForeignKeys, StandInForNothing) {
  auto model = golden("llama");
  model.config["rms_norm_eps"] = nullptr;
  model.config["layer_norm_eps"] = 0.25;
  EXPECT_THAT(model.refusal(), HasSubstr("layer_norm_eps"));
  const auto accepted = Description::of(model.build({"layer_norm_eps"}));
  model.config.erase("layer_norm_eps");
  EXPECT_EQ(accepted, Description::of(model.build()));
  auto gpt2 = golden("gpt2");
  gpt2.config.erase("activation_function");
  gpt2.config["hidden_act"] = "relu";
  EXPECT_THAT(gpt2.refusal(), HasSubstr("hidden_act"));
}

TEST(ForeignKeys, ThatSayTheSamePass) {
  auto gpt2 = golden("gpt2");
  gpt2.config["n_ctx"] = gpt2.config["n_positions"];
  EXPECT_EQ(gpt2.refusal(), "nothing");
  auto gemma = golden("gemma2");
  gemma.config["hidden_act"] = gemma.config["hidden_activation"];
  EXPECT_EQ(gemma.refusal(), "nothing");
}

// What a class calls by two names itself.
TEST(ForeignKeys, NamesThatTheClassMapsAreItsOwn) {
  auto gpt2 = golden("gpt2");
  const auto plain = Description::of(gpt2.build());
  for (const auto& [own, mapped] : std::vector<std::pair<std::string, std::string>>{
           {"n_embd", "hidden_size"}, {"n_head", "num_attention_heads"}, {"n_layer", "num_hidden_layers"}}) {
    gpt2.config[mapped] = gpt2.config[own];
    gpt2.config.erase(own);
  }
  EXPECT_EQ(Description::of(gpt2.build()), plain);
  auto whisper = golden("whisper");
  whisper.config["num_key_value_heads"] = whisper.config["encoder_attention_heads"];
  EXPECT_EQ(whisper.refusal(), "nothing");
}

TEST(ForeignKeys, InsideRopeParametersToo) {
  auto model = golden("llama");
  const auto plain = Description::of(model.build());
  model.config["rope_parameters"].erase("rope_theta");
  model.config["rope_parameters"]["rotary_emb_base"] = 500;
  EXPECT_THAT(model.refusal(), HasSubstr("rope_parameters.rotary_emb_base"));
  EXPECT_EQ(Description::of(model.build({"rope_parameters.rotary_emb_base"})), plain);
}

// What published configs of these families hold beside what their classes read today.
TEST(PublishedConfigs, AreRead) {
  const std::map<std::string, Json> beside = {
      {"llama",
       {{"pretraining_tp", 1},
        {"max_sequence_length", nullptr},
        {"mlp_bias", false},
        {"use_flash_attention_2", true},
        {"unsloth_version", "2024.9"}}},
      {"qwen2",
       {{"max_window_layers", 28},
        {"use_sliding_window", false},
        {"use_mrope", false},
        {"typical_p", 1.0},
        {"num_beam_groups", 1},
        {"chunk_size_feed_forward", 0}}},
      {"mixtral",
       {{"output_router_logits", false}, {"router_aux_loss_coef", 0.02}, {"router_jitter_noise", 0.1}}},
      {"gpt2",
       {{"n_ctx", nullptr},
        {"summary_type", "cls_index"},
        {"summary_use_proj", true},
        {"summary_first_dropout", 0.1},
        {"output_past", true},
        {"task_specific_params", {{"text-generation", {{"do_sample", true}, {"max_length", 50}}}}}}},
      {"gemma2", {{"cache_implementation", "hybrid"}, {"attention_bias", false}}},
      {"t5",
       {{"output_past", true},
        {"n_positions", 512},
        {"initializer_factor", 1.0},
        {"task_specific_params", {{"summarization", {{"num_beams", 4}}}}}}},
      {"bart",
       {{"classif_dropout", 0.1},
        {"add_bias_logits", false},
        {"normalize_embedding", true},
        {"force_bos_token_to_be_generated", true},
        {"replacing_rate", 0},
        {"extra_pos_embeddings", 2},
        {"student_decoder_layers", nullptr},
        {"prefix", " "}}},
      {"marian", {{"static_position_embeddings", true}, {"normalize_before", false}, {"_num_labels", 3}}},
      {"whisper",
       {{"apply_spec_augment", false},
        {"mask_feature_length", 10},
        {"classifier_proj_size", 256},
        {"use_weighted_layer_sum", false},
        {"max_length", 448}}},
  };
  for (const auto& [name, keys] : beside) {
    auto model = golden(name);
    const auto plain = Description::of(model.build());
    model.config.update(keys);
    EXPECT_EQ(model.refusal(), "nothing") << name;
    EXPECT_EQ(Description::of(model.build()), plain) << name;
  }
}

TEST(ForeignKeys, OfAFamilyWithoutARowAreTakenForWhatTheyAre) {
  auto model = golden("llama");
  model.config["model_type"] = "lama2";
  model.config.erase("rms_norm_eps");
  model.config["layer_norm_eps"] = 1e-6;
  EXPECT_EQ(model.refusal({"model_type"}), "nothing");
}

TEST(ForeignKeys, OfSectionsAreTheSectionsOwn) {
  auto model = golden("musicgen");
  model.config["text_encoder"]["rms_norm_eps"] = 0.25;
  EXPECT_THAT(model.refusal(), HasSubstr("text_encoder.rms_norm_eps"));
  model = golden("musicgen");
  model.config["decoder"]["layer_norm_eps"] = 0.25;
  EXPECT_THAT(model.refusal(), HasSubstr("decoder.layer_norm_eps"));
}

// As hub files of UMT5 and Blenderbot have them.
TEST(KeysOfNoClass, ArePassedOver) {
  auto model = golden("t5");
  model.config["scalable_attention"] = true;
  EXPECT_EQ(model.refusal(), "nothing");
  model = golden("bart");
  model.config["do_blenderbot_90_layernorm"] = true;
  model.config["layernorm_variant"] = "prelayernorm";
  EXPECT_EQ(model.refusal(), "nothing");
}

// A key of which false says a lot.
TEST(Causal, AStackThatLooksAheadIsRefused) {
  for (const auto* const name : {"llama", "gpt2", "t5", "bart", "whisper"}) {
    auto model = golden(name);
    model.config["is_causal"] = false;
    EXPECT_THAT(model.refusal(), AllOf(StartsWith("69: "), HasSubstr("is_causal"))) << name;
    model.config["is_causal"] = true;
    EXPECT_EQ(model.refusal(), "nothing") << name;
  }
  auto model = golden("musicgen");
  model.config["decoder"]["is_causal"] = false;
  EXPECT_THAT(model.refusal(), AllOf(StartsWith("69: "), HasSubstr("is_causal")));
}

// Of T5's kin, where a key is absent: a key's width is 64 whatever the rest is, and two of them have a gate.
TEST(Defaults, OfT5AndItsKin) {
  auto model = golden("t5");
  model.config.erase("d_kv");
  EXPECT_THAT(model.refusal(), HasSubstr("config.json makes it [256, 32]"));  // 4 heads of 64
  model = golden("t5");
  model.config["model_type"] = "mt5";
  for (const auto* const key : {"feed_forward_proj", "dense_act_fn", "is_gated_act", "scale_decoder_outputs"})
    model.config.erase(key);
  EXPECT_EQ(model.refusal(), "nothing");
}

}  // namespace
}  // namespace diffuse

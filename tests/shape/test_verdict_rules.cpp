// The rules one by one, on configs as hub files spell them: older names, defaults left out, and plain
// nonsense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

#include "shape/verdict.hpp"

namespace diffuse {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json config_of(const char* class_name, json keys) {
  keys["architectures"] = json::array({class_name});
  return keys;
}

json eight_layers(const char* class_name) {
  return config_of(class_name, {{"num_hidden_layers", 8}});
}

struct DepthRow {
  const char* config;
  int64_t depth;
  const char* depth_at;
  Shape shape;
};

TEST(VerdictRules, DepthIsTheAnsweringStacks) {
  const DepthRow rows[] = {
      {R"({"architectures":["RWForCausalLM"],"n_layer":32,"n_head":71})", 32, "n_layer",
       Shape::autoregressive},
      {R"({"architectures":["OpenELMForCausalLM"],"num_transformer_layers":16})", 16,
       "num_transformer_layers", Shape::autoregressive},
      // Flat, with the tower's section beside it.
      {R"({"architectures":["Qwen2VLForConditionalGeneration"],"num_hidden_layers":28,"image_token_id":151655,
           "vision_config":{"depth":32,"embed_dim":1280}})",
       28, "num_hidden_layers", Shape::autoregressive},
      {R"({"architectures":["FooForConditionalGeneration"],"vision_config":{"num_hidden_layers":24},
           "language_config":{"num_hidden_layers":12}})",
       12, "language_config.num_hidden_layers", Shape::autoregressive},
      {R"({"architectures":["FooForCausalLM"],"novel_part":{"n_layers":5},"audio_encoder":{"n_layers":9}})",
       5, "novel_part.n_layers", Shape::autoregressive},
      {R"({"architectures":["OmniForConditionalGeneration"],"thinker_config":{"audio_config":{"encoder_layers":32},
           "text_config":{"num_hidden_layers":28}},"talker_config":{"num_hidden_layers":24}})",
       28, "thinker_config.text_config.num_hidden_layers", Shape::autoregressive},
      {R"({"architectures":["T5ForConditionalGeneration"],"is_encoder_decoder":true,"num_layers":12})", 12,
       "num_layers", Shape::encoder_memory},
      {R"({"architectures":["T5WithLMHeadModel"],"is_encoder_decoder":true,"num_layers":6,"num_decoder_layers":3})",
       3, "num_decoder_layers", Shape::encoder_memory},
      {R"({"architectures":["MarianMTModel"],"is_encoder_decoder":true,"encoder_layers":6,"decoder_layers":2,
           "num_hidden_layers":6})",
       2, "decoder_layers", Shape::encoder_memory},
      {R"({"architectures":["MusicgenForConditionalGeneration"],"text_encoder":{"num_layers":12,"num_decoder_layers":12},
           "audio_encoder":{"num_hidden_layers":8},"decoder":{"num_hidden_layers":24}})",
       24, "decoder.num_hidden_layers", Shape::encoder_memory},
      {R"({"architectures":["VisionEncoderDecoderModel"],"is_encoder_decoder":true,"encoder":{"num_layers":4,"depths":[2]},
           "decoder":{"encoder_layers":12,"decoder_layers":4}})",
       4, "decoder.decoder_layers", Shape::encoder_memory},
      {R"({"architectures":["Blip2ForConditionalGeneration"],"use_decoder_only_language_model":false,
           "qformer_config":{"num_hidden_layers":12},"text_config":{"num_layers":24,"num_decoder_layers":20}})",
       20, "text_config.num_decoder_layers", Shape::encoder_memory},
      {R"({"architectures":["FooForCausalLM"],"is_encoder_decoder":true,"encoder_layers":6,"decoder_layers":7})",
       7, "decoder_layers", Shape::autoregressive},
  };
  for (const DepthRow& row : rows) {
    SCOPED_TRACE(row.config);
    const Verdict verdict = judge(json::parse(row.config));
    EXPECT_EQ(verdict.verdict, Outcome::runs);
    EXPECT_EQ(verdict.depth, row.depth);
    EXPECT_EQ(verdict.depth_at, row.depth_at);
    EXPECT_EQ(verdict.shape, row.shape);
    EXPECT_EQ(verdict.reads_encoder, row.shape == Shape::encoder_memory);
  }
}

TEST(VerdictRules, AnEncodersDepthIsNeverTheDecoders) {
  const Verdict verdict =
      judge(config_of("FooForConditionalGeneration",
                      {{"is_encoder_decoder", true}, {"encoder_layers", 32}, {"num_hidden_layers", 32}}));
  EXPECT_EQ(verdict.refusal, Refusal::no_depth);
  EXPECT_EQ(verdict.depth, std::nullopt);
  EXPECT_THAT(verdict.reason, HasSubstr("encoder's depth"));
}

TEST(VerdictRules, PairedLayerTypesCountHalves) {
  json config = eight_layers("FooForCausalLM");
  config["layer_types"] = json::array();
  for (int i = 0; i < 4; ++i) {
    config["layer_types"].push_back("full_attention");
    config["layer_types"].push_back("mlp");
  }
  EXPECT_EQ(judge(config).depth, 4);
  config["layer_types"][7] = "full_attention";
  EXPECT_EQ(judge(config).depth, 8);
}

TEST(VerdictRules, WhatIsNoDepthRefuses) {
  const json not_depths[] = {"32", -4, 0,     12.0, 1e300, 18446744073709551615u, json::array({1, 2}),
                             true, "", 10'001};
  for (const json& value : not_depths) {
    SCOPED_TRACE(value.dump());
    const Verdict verdict = judge(config_of("FooForCausalLM", {{"num_hidden_layers", value}}));
    EXPECT_EQ(verdict.refusal, Refusal::no_depth);
    EXPECT_EQ(verdict.depth, std::nullopt);
    EXPECT_EQ(verdict.depth_at, "num_hidden_layers");
    EXPECT_THAT(verdict.reason, HasSubstr("num_hidden_layers is"));
  }
  EXPECT_EQ(judge(config_of("FooForCausalLM", json::object())).refusal, Refusal::no_depth);
  EXPECT_EQ(judge(config_of("FooForCausalLM", {{"num_hidden_layers", nullptr}})).refusal, Refusal::no_depth);
}

TEST(VerdictRules, NonsenseIsRefusedAndNeverThrows) {
  const char* configs[] = {
      R"({})",
      R"({"architectures":null})",
      R"({"architectures":"FooForCausalLM","num_hidden_layers":2})",
      R"({"architectures":[1,null,{}],"num_hidden_layers":2})",
      R"({"architectures":[""],"num_hidden_layers":2})",
      R"({"architectures":["For"],"text_config":{"text_config":{"text_config":{"text_config":{
                               "text_config":{"text_config":{"num_hidden_layers":1}}}}}}})",
      R"({"model_type":7,"auto_map":[],"layer_types":"x","text_config":[],"decoder":3})",
      R"({"_class_name":[]})",
      R"({"_class_name":"Transformer","num_layers":{}})",
      R"({"_class_name":"FooTransformer2DModel","num_layers":-1,"num_single_layers":"9"})",
      R"({"_class_name":"FooPipeline","transformer":["diffusers"],"scheduler":[1,2]})",
      R"({"_class_name":"FooPipeline","transformer":[null,null]})"};
  for (const char* config : configs) {
    SCOPED_TRACE(config);
    const Verdict verdict = judge(json::parse(config));
    EXPECT_EQ(verdict.verdict, Outcome::refused);
    EXPECT_NE(verdict.refusal, Refusal::none);
    EXPECT_FALSE(verdict.reason.empty());
    EXPECT_NO_THROW((void)to_json(verdict).dump());
  }
  EXPECT_THROW((void)judge(json::array()), std::invalid_argument);
  EXPECT_THROW((void)judge(json("text")), std::invalid_argument);
  EXPECT_THROW((void)judge(json()), std::invalid_argument);
}

struct StateRow {
  const char* keys;
  bool recurrent;
};

TEST(VerdictRules, RunningStateIsSeen) {
  const StateRow rows[] = {
      {R"({"state_size":16,"conv_kernel":4})", true},
      {R"({"mamba_d_state":64})", true},
      {R"({"rescale_every":6})", true},
      {R"({"rescale_every":0})", false},
      {R"({"use_mamba_kernels":true,"mamba_conv_bias":true})", false},
      {R"({"lru_width":2560})", true},
      {R"({"linear_attn_config":{"kda_layers":[1,2,3]}})", true},
      {R"({"hybrid_override_pattern":"M-M*M-M-"})", true},
      {R"({"hybrid_override_pattern":"*-*-*-*-","ssm_state_size":128})", false},
      {R"({"attn_type_list":[0,0,0,1,0,0,0,1]})", true},
      {R"({"attn_type_list":[1,1,1,1,1,1,1,1]})", false},
      {R"({"attn_layer_indices":[3,7],"mamba_d_conv":4})", true},
      {R"({"full_attn_idxs":[0,1,2,3,4,5,6,7],"conv_L_cache":3})", false},
      {R"({"full_attn_idxs":[2,5],"conv_L_cache":3})", true},
      // The list says more than the key, unless it uses a word that nobody knows.
      {R"({"layer_types":["full_attention","sliding_attention"],"conv_L_cache":3})", false},
      {R"({"layer_types":["full_attention","zigzag"],"conv_L_cache":3})", true},
      {R"({"layer_types":["full_attention","linear_attention"]})", true},
      {R"({"layers_block_type":["hybrid","attention"]})", true},
      {R"({"layer_types":[],"layers_block_type":["attention","mamba"]})", true},
      // Other sections say nothing about the stack.
      {R"({"vision_config":{"layer_types":["conv"],"state_size":4},"audio_config":{"conv_kernel":9}})",
       false},
      {R"({"conv_kernel":[10,3,3]})", false},
      {R"({"mlp_layer_types":["dense","sparse"]})", false},
  };
  for (const StateRow& row : rows) {
    SCOPED_TRACE(row.keys);
    json config = eight_layers("FooForCausalLM");
    config.update(json::parse(row.keys));
    const Verdict verdict = judge(config);
    EXPECT_EQ(verdict.recurrent, row.recurrent);
    EXPECT_EQ(verdict.refusal, row.recurrent ? Refusal::recurrent : Refusal::none);
    EXPECT_EQ(verdict.depth, 8);
  }
}

TEST(VerdictRules, SpeechEncodersOfFlatConfigsConvolve) {
  json config = eight_layers("FooForConditionalGeneration");
  config.update({{"is_encoder_decoder", true}, {"conv_kernel_size", 5}});
  EXPECT_EQ(judge(config).verdict, Outcome::runs);
  config["is_encoder_decoder"] = false;
  EXPECT_EQ(judge(config).refusal, Refusal::recurrent);
}

struct ClassRow {
  const char* name;
  Refusal refusal;
};

TEST(VerdictRules, TheEndingOfTheClassDecides) {
  const ClassRow rows[] = {
      {"FooForCausalLM", Refusal::none},
      {"FooLMHeadModel", Refusal::none},
      {"FooWithLMHeadModel", Refusal::none},
      {"FooForConditionalGeneration", Refusal::none},
      {"FooForSpeechToText", Refusal::none},
      {"FooForMaskedLM", Refusal::encoder_alone},
      {"FooForSequenceClassification", Refusal::encoder_alone},
      {"FooForQuestionAnswering", Refusal::encoder_alone},
      {"FooForCTC", Refusal::encoder_alone},
      {"FooEncoderModel", Refusal::encoder_alone},
      {"FooModel", Refusal::encoder_alone},
      {"FooForBlockDiffusion", Refusal::unknown_class},
      {"Foo", Refusal::unknown_class},
  };
  for (const ClassRow& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(judge(eight_layers(row.name)).refusal, row.refusal);
  }
  // Of several classes, the one that generates.
  json config = eight_layers("FooModel");
  config["architectures"].push_back("FooForCausalLM");
  EXPECT_EQ(judge(config).refusal, Refusal::none);
  // Parts without one stack are no encoder.
  EXPECT_EQ(judge(config_of("FooModel", {{"semantic_config", {{"num_layers", 12}}}})).refusal,
            Refusal::unknown_class);
}

TEST(VerdictRules, OwnPythonIsRefusedUnlessTheFamilyIsStated) {
  json config = eight_layers("FooForCausalLM");
  config.update(
      {{"model_type", "foo"}, {"auto_map", {{"AutoModelForCausalLM", "modeling_foo.FooForCausalLM"}}}});
  const Verdict refused = judge(config);
  EXPECT_EQ(refused.refusal, Refusal::remote_code);
  EXPECT_EQ(refused.shape, Shape::autoregressive);

  const std::array<std::string_view, 2> known = {"bar", "foo"};
  const Verdict runs = judge(config, {.known_families = known});
  EXPECT_EQ(runs.verdict, Outcome::runs);
  EXPECT_THAT(runs.reason, HasSubstr("is ignored"));

  config["architectures"] = {"FooChatModel"};
  EXPECT_EQ(judge(config).refusal, Refusal::remote_code);
  config["architectures"] = {"FooForMaskedLM"};
  EXPECT_EQ(judge(config).refusal, Refusal::encoder_alone);
  config["architectures"] = {"FooForCausalLM"};
  config["state_size"] = 16;
  EXPECT_EQ(judge(config).refusal, Refusal::recurrent);
}

TEST(VerdictRules, MediaAreSeenBySectionsAndPlaceholders) {
  const auto media_of = [](json keys) {
    json config = eight_layers("FooForConditionalGeneration");
    config.update(keys);
    return judge(config).media;
  };
  EXPECT_EQ(media_of({{"vision_config", {{"depth", 3}}}}), (Media{.image = true}));
  EXPECT_EQ(media_of({{"image_token_id", 5}, {"video_token_id", 6}}), (Media{.image = true, .video = true}));
  EXPECT_EQ(media_of({{"image_token_index", -200}, {"mm_vision_tower", "clip"}}), (Media{.image = true}));
  EXPECT_EQ(media_of({{"audio_config", {{"depth", 3}}}}), (Media{.audio = true}));
  EXPECT_EQ(media_of({{"num_mel_bins", 80}, {"is_encoder_decoder", true}}), (Media{.audio = true}));
  EXPECT_EQ(media_of({{"vision_config", nullptr}, {"image_size", 224}, {"is_encoder_decoder", true}}),
            Media{});
}

struct RefinerRow {
  const char* config;
  Refusal refusal;
  std::optional<int64_t> depth;
  size_t kinds;
};

TEST(VerdictRules, DiffusionTransformers) {
  const RefinerRow rows[] = {
      {R"({"_class_name":"AuraTransformer2DModel","num_mmdit_layers":4,"num_single_dit_layers":32})",
       Refusal::none, 36, 2},
      {R"({"_class_name":"LumTransformer2DModel","num_layers":26,"num_refiner_layers":2})", Refusal::none, 26,
       0},
      {R"({"_class_name":"FluTransformer2DModel","num_layers":8,"num_single_layers":0})", Refusal::none, 8,
       0},
      {R"({"_class_name":"LatTransformer3DModel","num_layers":14,"video_length":16})", Refusal::none, 28, 2},
      {R"({"_class_name":"FooDiTModel","depth":24})", Refusal::none, 24, 0},
      {R"({"_class_name":"FooTransformer2DModel","num_layers":"28"})", Refusal::no_depth, std::nullopt, 0},
      {R"({"_class_name":"FooTransformer2DModel"})", Refusal::no_depth, std::nullopt, 0},
      {R"({"_class_name":"FooDiT2DModel","num_layers":40,"text_len_t5":256})", Refusal::long_skips, 40, 0},
      {R"({"_class_name":"FooAudioDiTTransformer","dit_depth":24,"long_skip":true})", Refusal::long_skips, 24,
       0},
      {R"({"_class_name":"FooAudioDiTTransformer","dit_depth":24,"long_skip":false})", Refusal::none, 24, 0},
      {R"({"_class_name":"NovelNet","block_out_channels":[8,16],"layers_per_block":3})", Refusal::u_net,
       std::nullopt, 0},
      {R"({"_class_name":"AutoencoderKL","block_out_channels":[8],"latent_channels":4})",
       Refusal::unknown_class, std::nullopt, 0},
      {R"({"_class_name":"FooTransformer3DModel","num_layers":40,"latent_channels":16})", Refusal::none, 40,
       0},
      {R"({"_class_name":"FooControlNetModel","num_layers":5})", Refusal::unknown_class, std::nullopt, 0},
      {R"({"_class_name":"SomethingElse","num_layers":5})", Refusal::unknown_class, std::nullopt, 0},
  };
  for (const RefinerRow& row : rows) {
    SCOPED_TRACE(row.config);
    const Verdict verdict = judge(json::parse(row.config));
    EXPECT_EQ(verdict.refusal, row.refusal);
    EXPECT_EQ(verdict.depth, row.depth);
    EXPECT_EQ(verdict.stacks.size(), row.kinds);
  }
}

TEST(VerdictRules, DiffusersFolders) {
  const json transformer = {{"_class_name", "FooTransformer3DModel"}, {"num_layers", 30}};
  json index = {{"_class_name", "FooPipeline"},
                {"scheduler", {"diffusers", "FlowScheduler"}},
                {"transformer", {"diffusers", "FooTransformer3DModel"}}};
  const Verdict runs = judge(index, {.transformer = &transformer});
  EXPECT_EQ(runs.verdict, Outcome::runs);
  EXPECT_EQ(runs.shape, Shape::iterative_refinement);
  EXPECT_EQ(runs.depth, 30);
  EXPECT_EQ(runs.depth_at, "transformer.num_layers");
  EXPECT_EQ(runs.media, (Media{.video = true}));
  EXPECT_EQ(judge(index).refusal, Refusal::no_depth);

  index["transformer"] = {"transformer_foo", "FooTransformer3DModel"};
  EXPECT_EQ(judge(index, {.transformer = &transformer}).refusal, Refusal::remote_code);
  index["_class_name"] = {"pipeline_foo", "FooPipeline"};
  EXPECT_EQ(judge(index, {.transformer = &transformer}).refusal, Refusal::remote_code);
  index.erase("transformer");
  index["_class_name"] = "FooPipeline";
  EXPECT_EQ(judge(index).refusal, Refusal::unknown_class);
  index["unet"] = {"diffusers", "UNet2DConditionModel"};
  EXPECT_EQ(judge(index).refusal, Refusal::u_net);
  const json not_an_object = 3;
  EXPECT_THROW((void)judge(index, {.transformer = &not_an_object}), std::invalid_argument);
}

TEST(VerdictRules, JsonForm) {
  const json runs = to_json(judge(
      config_of("FooForConditionalGeneration", {{"text_config", {{"n_layer", 3}}}, {"image_token_id", 9}})));
  EXPECT_EQ(runs.at("verdict"), "runs");
  EXPECT_TRUE(runs.at("refusal").is_null());
  EXPECT_EQ(runs.at("shape"), "autoregressive");
  EXPECT_EQ(runs.at("depth"), 3);
  EXPECT_EQ(runs.at("depth_at"), "text_config.n_layer");
  EXPECT_EQ(runs.at("media"), json::array({"image"}));
  EXPECT_EQ(runs.at("generates"), true);
  EXPECT_EQ(runs.at("reads_encoder"), false);
  EXPECT_FALSE(runs.contains("stacks"));
  const json refused = to_json(judge(json::object()));
  EXPECT_EQ(refused.at("refusal"), "unknown-class");
  EXPECT_TRUE(refused.at("shape").is_null());
  EXPECT_TRUE(refused.at("depth").is_null());
  EXPECT_TRUE(refused.at("depth_at").is_null());
}

}  // namespace
}  // namespace diffuse

// The depth against the layer indices of the weights' tensor names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "shape/verdict.hpp"

namespace diffuse {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

void add_layers(std::vector<std::string>& names, const std::string& path, int count) {
  for (int layer = 0; layer < count; ++layer) {
    for (const char* part : {"q_proj.weight", "mlp.experts.11.weight", "norm.weight"})
      names.push_back(path + "." + std::to_string(layer) + "." + part);
  }
}

json config_of(const char* class_name, json keys) {
  keys["architectures"] = json::array({class_name});
  return keys;
}

TEST(VerdictWeights, TheHighestIndexMustBeTheDepths) {
  const json config = config_of("FooForCausalLM", {{"num_hidden_layers", 6}});
  for (const int held : {5, 6, 7}) {
    std::vector<std::string> names = {"model.embed_tokens.weight", "lm_head.weight"};
    add_layers(names, "model.layers", held);
    const Verdict verdict = judge(config, {.tensor_names = names});
    EXPECT_EQ(verdict.refusal, held == 6 ? Refusal::none : Refusal::no_depth) << held;
    if (held != 6) {
      EXPECT_THAT(verdict.reason, HasSubstr("the highest layer index in the weights is " +
                                            std::to_string(held - 1) + " (model.layers)"));
    }
  }
  const std::vector<std::string> unnumbered = {"embedding.weight", "head.weight"};
  EXPECT_EQ(judge(config, {.tensor_names = unnumbered}).refusal, Refusal::no_depth);
}

TEST(VerdictWeights, DeclaredHeadsMayLieBeyondTheDepth) {
  std::vector<std::string> names;
  add_layers(names, "model.layers", 7);
  json config = config_of("FooForCausalLM", {{"num_hidden_layers", 6}, {"num_nextn_predict_layers", 1}});
  EXPECT_EQ(judge(config, {.tensor_names = names}).verdict, Outcome::runs);
  add_layers(names, "model.layers", 8);
  EXPECT_EQ(judge(config, {.tensor_names = names}).refusal, Refusal::no_depth);
  config["num_nextn_predict_layers"] = "2";
  EXPECT_EQ(judge(config, {.tensor_names = names}).refusal, Refusal::no_depth);
}

TEST(VerdictWeights, TowersAndEncodersDoNotCount) {
  std::vector<std::string> names;
  add_layers(names, "vision_tower.encoder.layers", 27);
  add_layers(names, "model.visual.blocks", 32);
  add_layers(names, "model.language_model.layers", 4);
  add_layers(names, "depth_decoder.model.layers", 9);
  const json config = config_of("FooForConditionalGeneration", {{"text_config", {{"num_hidden_layers", 4}}},
                                                                {"vision_config", {{"depth", 27}}}});
  EXPECT_EQ(judge(config, {.tensor_names = names}).verdict, Outcome::runs);

  std::vector<std::string> seq2seq;
  add_layers(seq2seq, "model.encoder.layers", 32);
  add_layers(seq2seq, "model.decoder.layers", 4);
  json turbo = config_of("FooForConditionalGeneration",
                         {{"is_encoder_decoder", true}, {"encoder_layers", 32}, {"decoder_layers", 4}});
  EXPECT_EQ(judge(turbo, {.tensor_names = seq2seq}).verdict, Outcome::runs);
  turbo["decoder_layers"] = 32;
  EXPECT_EQ(judge(turbo, {.tensor_names = seq2seq}).refusal, Refusal::no_depth);
}

TEST(VerdictWeights, ADecoderMayCallItselfAnEncoder) {
  std::vector<std::string> names;
  add_layers(names, "bert.encoder.layer", 12);
  const json config = config_of("FooLMHeadModel", {{"num_hidden_layers", 12}});
  EXPECT_EQ(judge(config, {.tensor_names = names}).verdict, Outcome::runs);
  const json other =
      config_of("FooForConditionalGeneration", {{"num_hidden_layers", 12}, {"is_encoder_decoder", true}});
  EXPECT_EQ(judge(other, {.tensor_names = names}).refusal, Refusal::no_depth);
}

TEST(VerdictWeights, BothKindsOfDiffusionBlocksAreCounted) {
  std::vector<std::string> names;
  add_layers(names, "transformer_blocks", 3);
  add_layers(names, "single_transformer_blocks", 5);
  json config = {{"_class_name", "FooTransformer2DModel"}, {"num_layers", 3}, {"num_single_layers", 5}};
  EXPECT_EQ(judge(config, {.tensor_names = names}).verdict, Outcome::runs);
  config["num_single_layers"] = 6;
  const Verdict verdict = judge(config, {.tensor_names = names});
  EXPECT_EQ(verdict.refusal, Refusal::no_depth);
  EXPECT_THAT(verdict.reason, HasSubstr("num_single_layers says 6"));
}

TEST(VerdictWeights, ALongSkipShowsInTheNames) {
  std::vector<std::string> names;
  add_layers(names, "blocks", 8);
  const json config = {{"_class_name", "FooTransformer2DModel"}, {"num_layers", 8}};
  EXPECT_EQ(judge(config, {.tensor_names = names}).verdict, Outcome::runs);
  names.push_back("blocks.6.skip_linear.weight");
  EXPECT_EQ(judge(config, {.tensor_names = names}).refusal, Refusal::long_skips);
}

TEST(VerdictWeights, AbsurdNamesAreHarmless) {
  const std::vector<std::string> names = {
      "", ".", "..", "7", "7.weight", ".5", "a.", "a..1", "layers.99999999999999999.w", "layers.-1.w"};
  const json config = config_of("FooForCausalLM", {{"num_hidden_layers", 6}});
  EXPECT_EQ(judge(config, {.tensor_names = names}).refusal, Refusal::no_depth);
}

}  // namespace
}  // namespace diffuse

// Recipes of stacks that refine, and the folders that none is made of.

#include <functional>
#include <set>

#include "recipe/refinement_recipe.hpp"
#include "support.hpp"

namespace diffuse {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Pipeline {
  PipelineConfig config;
  TensorHeaders headers;

  Json& stack() { return config.components.at(kStackComponent); }
  Json& text() { return config.components.at(kTextComponent); }
  Recipe build(const std::vector<std::string>& accept = {}) const {
    return build_refinement(config, headers, {.accept = accept});
  }
  std::string refusal(const std::vector<std::string>& accept = {}) const {
    try {
      build(accept);
    } catch (const Error& error) {
      return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
    }
    return "nothing";
  }
};

Pipeline pipeline(const std::string& name) {
  const auto folder = std::filesystem::path(DIFFUSE_TEST_DATA) / "refinement" / name;
  const auto checkpoint =
      Checkpoint::open_components(folder, std::vector<std::string>{kStackComponent, kTextComponent});
  return {{checkpoint.config(), checkpoint.component_configs()}, checkpoint.headers()};
}

TEST(RefinementRecipe, UsesEachTensorOnce) {
  const auto model = pipeline("wan");
  const auto recipe = model.build();
  std::multiset<std::string> used;
  const auto add = [&](const std::vector<std::string>& names) { used.insert(names.begin(), names.end()); };
  add(front_tensors(recipe));
  add(common_tensors(recipe));
  for (const auto& block : recipe.blocks) add(tensors_of(block));
  add(back_tensors(recipe));
  add(tensors_of(*recipe.encoder));
  std::multiset<std::string> expected;
  for (const auto& [name, header] : model.headers) expected.insert(name);
  EXPECT_EQ(used, expected);
}

TEST(RefinementRecipe, ReadsTheStack) {
  const auto recipe = pipeline("wan").build();
  const auto& made = *recipe.refinement;
  EXPECT_EQ(recipe.shape, "iterative refinement");
  EXPECT_EQ(recipe.depth(), 6);
  EXPECT_EQ(recipe.hidden, 24);
  EXPECT_EQ(made.channels, 16);
  EXPECT_EQ(made.out_channels, 16);
  EXPECT_EQ(made.patch, (PatchSize{1, 2, 2}));
  EXPECT_EQ(made.most_patches, (std::array<std::int64_t, kAxes>{64, 64, 64}));
  EXPECT_EQ(made.text_rows, 512);
  EXPECT_EQ(made.front.weight.cols, 64);
  EXPECT_EQ(made.back.weight.rows, 64);
  EXPECT_EQ(made.time.frequencies.size(), 16U);
  EXPECT_EQ(made.time.frequencies[0], 1);
  EXPECT_FLOAT_EQ(made.time.frequencies[8], 0.01F);
  EXPECT_EQ(recipe.encoder->width, 32);
  EXPECT_EQ(recipe.encoder->hidden, 24);
  ASSERT_EQ(recipe.encoder->projections.size(), 2U);
  EXPECT_EQ(recipe.encoder->projections[0].activation, Activation::gelu_tanh);
}

// A head of 12 elements has two pairs for each.
TEST(RefinementRecipe, SharesAHeadAmongTheAxes) {
  const auto rope = pipeline("wan").build().ropes.at(0);
  EXPECT_TRUE(rope.of_grid());
  EXPECT_EQ(rope.style, RopeStyle::interleaved);
  EXPECT_EQ(rope.pairs(), 6);
  for (const auto& axis : rope.axes) EXPECT_THAT(axis, ::testing::ElementsAre(1, ::testing::DoubleEq(0.01)));
}

TEST(RefinementRecipe, ModulatesItsBlocks) {
  const auto block = Description::of(pipeline("wan").build().blocks[1]);
  EXPECT_THAT(block, HasSubstr("modulate transformer.blocks.1.scale_shift_table 6 24"));
  EXPECT_THAT(block, HasSubstr("modulated by 0 1"));
  EXPECT_THAT(block, HasSubstr("modulated by 3 4"));
  EXPECT_THAT(block, HasSubstr("gated by 2"));
  EXPECT_THAT(block, HasSubstr("gated by 5"));
  EXPECT_THAT(block, HasSubstr("norm hidden a layer transformer.blocks.1.norm2.weight"));
  EXPECT_THAT(block, HasSubstr("normed rms transformer.blocks.1.attn2.norm_q.weight"));
  EXPECT_THAT(block, HasSubstr("not causal"));
}

TEST(RefinementRecipe, DoesWithoutANormBeforeCrossAttention) {
  auto model = pipeline("wan");
  model.stack()["cross_attn_norm"] = false;
  EXPECT_THAT(model.refusal(), HasSubstr("norm2.bias"));
  std::erase_if(model.headers,
                [](const auto& entry) { return entry.first.find(".norm2.") != std::string::npos; });
  EXPECT_THAT(Description::of(model.build().blocks[0]), HasSubstr("cross attention hidden a"));
}

TEST(RefinementRecipe, TakesDefaultsOfTheClass) {
  auto model = pipeline("wan");
  for (const auto* const key :
       {"cross_attn_norm", "eps", "in_channels", "out_channels", "patch_size", "qk_norm"})
    model.stack().erase(key);
  EXPECT_EQ(Description::of(model.build().blocks[2]), Description::of(pipeline("wan").build().blocks[2]));
  EXPECT_EQ(model.build().refinement->patch, (PatchSize{1, 2, 2}));
  model.stack()["out_channels"] = nullptr;
  EXPECT_EQ(model.build().refinement->out_channels, 16);
}

struct Bad {
  std::string name;
  std::function<void(Pipeline&)> edit;
  std::string code;
  std::string found;
};
void PrintTo(const Bad& bad, std::ostream* out) {
  *out << bad.name;
}

std::function<void(Pipeline&)> index_with(const std::string& key, const Json& value) {
  return [=](Pipeline& model) { model.config.index[key] = value; };
}
std::function<void(Pipeline&)> stack_with(const std::string& key, const Json& value) {
  return [=](Pipeline& model) { model.stack()[key] = value; };
}
std::function<void(Pipeline&)> text_with(const std::string& key, const Json& value) {
  return [=](Pipeline& model) { model.text()[key] = value; };
}
std::function<void(Pipeline&)> without(const std::string& tensor) {
  return [=](Pipeline& model) { model.headers.erase(tensor); };
}
std::function<void(Pipeline&)> tensor(const std::string& name, const TensorHeader& header) {
  return [=](Pipeline& model) { model.headers[name] = header; };
}

const std::vector<Bad> kBad = {
    {"a_second_stack", index_with("transformer_2", {"diffusers", "WanTransformer3DModel"}), "69",
     "two stacks, 'transformer' for much noise and 'transformer_2'"},
    {"a_boundary", index_with("boundary_ratio", 0.875), "69", "'boundary_ratio'"},
    {"a_time_a_token", index_with("expand_timesteps", true), "69", "'expand_timesteps'"},
    {"another_pipeline", index_with("_class_name", "WanImageToVideoPipeline"), "69",
     "no facts about a \"WanImageToVideoPipeline\""},
    {"another_stack", index_with("transformer", {"diffusers", "WanVACETransformer3DModel"}), "69",
     "WanVACETransformer3DModel"},
    {"a_new_key_of_the_pipeline", index_with("is_distilled", true), "69", "\"is_distilled\" = true"},
    {"a_picture", stack_with("image_dim", 1280), "69", "'image_dim'"},
    {"keys_of_a_picture", stack_with("added_kv_proj_dim", 24), "69", "'added_kv_proj_dim'"},
    {"places_of_a_picture", stack_with("pos_embed_seq_len", 514), "69", "'pos_embed_seq_len'"},
    {"other_norms_of_heads", stack_with("qk_norm", "rms_norm"), "69", "'qk_norm'"},
    {"a_new_key", stack_with("window", 7), "69", "\"window\" = 7"},
    {"a_new_key_of_the_text", text_with("twist", 7), "69", "\"text_encoder.twist\" = 7"},
    {"another_text_encoder", text_with("model_type", "clip_text_model"), "69", "its text encoder is"},
    {"another_depth", stack_with("num_layers", 7), "69", "states 7 layers and the weights have 6"},
    {"a_patch_of_two_axes", stack_with("patch_size", {2, 2}), "65", "'patch_size'"},
    {"a_patch_of_nothing", stack_with("patch_size", {1, 0, 2}), "65", "'patch_size'"},
    {"another_patch", stack_with("patch_size", {1, 1, 2}), "65", "patch_embedding.weight"},
    {"odd_heads", stack_with("attention_head_dim", 13), "65", "must be even"},
    {"odd_time", stack_with("freq_dim", 31), "69", "must be even"},
    {"text_of_another_width", stack_with("text_dim", 48), "65", "texts of width 48"},
    {"a_tensor_too_many", tensor("transformer.blocks.0.attn1.extra.weight", {DType::f32, {3}}), "69",
     "transformer.blocks.0.attn1.extra.weight"},
    {"a_bias_of_a_head_norm", tensor("transformer.blocks.0.attn1.norm_q.bias", {DType::f32, {24}}), "69",
     "attn1.norm_q.bias"},
    {"no_table", without("transformer.blocks.3.scale_shift_table"), "65", "blocks.3.scale_shift_table"},
    {"no_bias_of_a_norm", without("transformer.blocks.0.norm2.bias"), "65", "blocks.0.norm2.bias"},
    {"a_layer_missing",
     [](Pipeline& model) {
       std::erase_if(model.headers,
                     [](const auto& entry) { return entry.first.starts_with("transformer.blocks.2."); });
     },
     "69", "incomplete"},
    {"no_text_encoder", [](Pipeline& model) { model.config.components.erase(kTextComponent); }, "66",
     "text_encoder/config.json"},
};

class RefusedPipelines : public testing::TestWithParam<Bad> {};
INSTANTIATE_TEST_SUITE_P(, RefusedPipelines, testing::ValuesIn(kBad),
                         [](const auto& bad) { return bad.param.name; });

TEST_P(RefusedPipelines, AreNamed) {
  auto model = pipeline("wan");
  GetParam().edit(model);
  EXPECT_THAT(model.refusal(), AllOf(StartsWith(GetParam().code + ": "), HasSubstr(GetParam().found)));
}

TEST(RefinementRecipe, AcceptsAKeyByName) {
  auto model = pipeline("wan");
  model.stack()["window"] = 7;
  model.config.index["is_distilled"] = true;
  const auto recipe = model.build({"window", "is_distilled"});
  EXPECT_EQ(recipe.accepted, (std::vector<std::string>{"is_distilled", "window"}));
}

}  // namespace
}  // namespace diffuse

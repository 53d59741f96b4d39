#include <algorithm>
#include <cmath>
#include <set>

#include "support.hpp"

namespace diffuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::string> kCases = {
    "gemma2",         "gemma2-hub", "gpt2",         "llama", "llama-wide", "llama3-rope", "llama3-rope-hub",
    "mistral-window", "mixtral",    "mixtral-wide", "qwen2", "qwen2-hub",  "qwen2-tied",  "qwen3"};

// How many elements of each tensor a recipe's matrices and vectors refer to.
class Coverage {
 public:
  explicit Coverage(const Recipe& recipe) {
    add(recipe.front.embedding);
    add(recipe.front.positions);
    for (const auto& block : recipe.blocks) {
      for (const auto& step : block.steps) std::visit(*this, step);
    }
    add(recipe.back.norm);
    if (!recipe.back.tied) add(recipe.back.head);
  }
  void operator()(const Norm& step) { add(step.norm); }
  void operator()(const Attention& step) {
    for (const auto* matrix : {&step.query, &step.key, &step.value, &step.output}) add(*matrix);
    for (const auto* bias : {&step.query_bias, &step.key_bias, &step.value_bias, &step.output_bias})
      add(*bias);
    add(step.query_norm);
    add(step.key_norm);
  }
  void operator()(const CrossAttention& step) {
    for (const auto* matrix : {&step.query, &step.key, &step.value, &step.output}) add(*matrix);
    for (const auto* bias : {&step.query_bias, &step.key_bias, &step.value_bias, &step.output_bias})
      add(*bias);
    add(step.query_norm);
    add(step.key_norm);
  }
  void operator()(const Mlp& step) {
    add(step.gate);
    add(step.up);
    add(step.down);
    for (const auto* bias : {&step.gate_bias, &step.up_bias, &step.down_bias}) add(*bias);
  }
  void operator()(const Experts& step) {
    add(step.router);
    for (const auto& expert : step.experts) {
      add(expert.gate);
      add(expert.up);
      add(expert.down);
    }
  }
  void operator()(const Add&) {}
  void operator()(const Modulate& step) { add(step.table); }

  std::map<std::string, std::multiset<std::int64_t>> elements;

 private:
  void add(const MatrixRef& matrix) {
    std::int64_t rows = 0;
    for (const auto& run : matrix.runs) {
      for (std::int64_t row = 0; row < run.count; ++row) {
        for (std::int64_t col = 0; col < matrix.cols; ++col)
          elements[matrix.tensor].insert(run.first + row * run.row_stride + col * matrix.col_stride);
      }
      rows += run.count;
    }
    EXPECT_EQ(rows, matrix.rows) << matrix.tensor;
  }
  void add(const VectorRef& vector) {
    std::int64_t count = 0;
    for (const auto& run : vector.runs) {
      for (std::int64_t i = 0; i < run.count; ++i)
        elements[vector.tensor].insert(run.first + i * run.row_stride);
      count += run.count;
    }
    EXPECT_EQ(count, vector.count) << vector.tensor;
  }
  void add(const NormSpec& norm) {
    add(norm.weight);
    add(norm.bias);
  }
  template <typename T>
  void add(const std::optional<T>& part) {
    if (part) add(*part);
  }
};

class GoldenCase : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, GoldenCase, ::testing::ValuesIn(kCases), [](const auto& made) {
  auto name = made.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(GoldenCase, UsesEveryElementOfEveryTensorOnce) {
  const auto model = golden(GetParam());
  const auto recipe = model.build();
  EXPECT_EQ(recipe.max_positions, 256);
  EXPECT_EQ(recipe.shape, "autoregressive");
  EXPECT_THAT(recipe.notes, IsEmpty());
  const Coverage coverage(recipe);
  for (const auto& [name, header] : model.headers) {
    std::int64_t count = 1;
    for (const auto dimension : header.shape) count *= dimension;
    const auto found = coverage.elements.find(name);
    ASSERT_NE(found, coverage.elements.end()) << name;
    ASSERT_EQ(static_cast<std::int64_t>(found->second.size()), count) << name;
    std::int64_t expected = 0;
    for (const auto element : found->second) ASSERT_EQ(element, expected++) << name;
  }
}

TEST_P(GoldenCase, TensorsOfItsPartsAreTheCheckpoint) {
  const auto model = golden(GetParam());
  const auto recipe = model.build();
  std::multiset<std::string> used;
  const auto add = [&](const std::vector<std::string>& names) { used.insert(names.begin(), names.end()); };
  add(tensors_of(recipe.front));
  for (const auto& block : recipe.blocks) add(tensors_of(block));
  auto back = tensors_of(recipe.back);
  if (recipe.back.tied) std::erase(back, recipe.front.embedding.tensor);
  add(back);
  std::multiset<std::string> stored;
  for (const auto& [name, header] : model.headers) stored.insert(name);
  EXPECT_EQ(used, stored);
}

TEST(Build, LlamaIsAPreNormBlockOfPlainSteps) {
  const auto recipe = golden("llama-wide").build();
  EXPECT_EQ(recipe.depth(), 7);
  EXPECT_EQ(
      Description::of(recipe.blocks[1]),
      "norm hidden a rms model.layers.1.input_layernorm.weight 120 [0 120 1] - 0.0 9.999999974752427e-07 \n"
      "attention a a model.layers.1.self_attn.q_proj.weight 144 120 1 [0 144 120] "
      "model.layers.1.self_attn.q_proj.bias 144 [0 144 1] "
      "model.layers.1.self_attn.k_proj.weight 48 120 1 [0 48 120] "
      "model.layers.1.self_attn.k_proj.bias 48 [0 48 1] "
      "model.layers.1.self_attn.v_proj.weight 48 120 1 [0 48 120] "
      "model.layers.1.self_attn.v_proj.bias 48 [0 48 1] "
      "model.layers.1.self_attn.o_proj.weight 120 144 1 [0 120 144] "
      "model.layers.1.self_attn.o_proj.bias 120 [0 120 1] - - false 6 2 24 24 0.20412415266036987 0 0 0.0 \n"
      "add a hidden 1.0 \n"
      "norm hidden a rms model.layers.1.post_attention_layernorm.weight 120 [0 120 1] - 0.0 "
      "9.999999974752427e-07 \n"
      "mlp a a model.layers.1.mlp.gate_proj.weight 203 120 1 [0 203 120] model.layers.1.mlp.gate_proj.bias "
      "203 "
      "[0 203 1] model.layers.1.mlp.up_proj.weight 203 120 1 [0 203 120] model.layers.1.mlp.up_proj.bias 203 "
      "[0 203 1] model.layers.1.mlp.down_proj.weight 120 203 1 [0 120 203] model.layers.1.mlp.down_proj.bias "
      "120 [0 120 1] 203 1 \n"
      "add a hidden 1.0 \n");
  EXPECT_EQ(recipe.back.head.tensor, "lm_head.weight");
  EXPECT_FALSE(recipe.back.tied);
}

TEST(Build, Gpt2IsCutOutOfFusedTransposedTensors) {
  const auto recipe = golden("gpt2").build();
  EXPECT_EQ(
      Description::of(recipe.blocks[0]),
      "norm hidden a layer transformer.h.0.ln_1.weight 32 [0 32 1] transformer.h.0.ln_1.bias 32 [0 32 1] 0.0 "
      "9.999999747378752e-06 \n"
      "attention a a transformer.h.0.attn.c_attn.weight 32 32 96 [0 32 1] transformer.h.0.attn.c_attn.bias "
      "32 "
      "[0 32 1] transformer.h.0.attn.c_attn.weight 32 32 96 [32 32 1] transformer.h.0.attn.c_attn.bias 32 "
      "[32 32 1] transformer.h.0.attn.c_attn.weight 32 32 96 [64 32 1] transformer.h.0.attn.c_attn.bias 32 "
      "[64 32 1] transformer.h.0.attn.c_proj.weight 32 32 32 [0 32 1] transformer.h.0.attn.c_proj.bias 32 "
      "[0 32 1] - - false 4 4 8 8 0.3535533845424652 - 0 0.0 \n"
      "add a hidden 1.0 \n"
      "norm hidden a layer transformer.h.0.ln_2.weight 32 [0 32 1] transformer.h.0.ln_2.bias 32 [0 32 1] 0.0 "
      "9.999999747378752e-06 \n"
      "mlp a a - - transformer.h.0.mlp.c_fc.weight 101 32 101 [0 101 1] transformer.h.0.mlp.c_fc.bias 101 "
      "[0 101 1] transformer.h.0.mlp.c_proj.weight 32 101 32 [0 32 1] transformer.h.0.mlp.c_proj.bias 32 "
      "[0 32 1] 101 3 \n"
      "add a hidden 1.0 \n");
  ASSERT_TRUE(recipe.front.positions);
  EXPECT_EQ(recipe.front.positions->tensor, "transformer.wpe.weight");
  EXPECT_EQ(recipe.front.positions->rows, 256);
  EXPECT_THAT(recipe.ropes, IsEmpty());
  EXPECT_TRUE(recipe.back.tied);
  EXPECT_EQ(recipe.back.head.tensor, "transformer.wte.weight");
}

TEST(Build, Gemma2HasNormsAroundItsBranchesScalesCapsAndAlternatingWindows) {
  const auto recipe = golden("gemma2").build();
  const auto& steps = recipe.blocks[0].steps;
  ASSERT_EQ(steps.size(), 8U);
  const auto norm = [&](std::size_t at) { return std::get<Norm>(steps[at]); };
  const std::vector<std::pair<std::size_t, std::string>> norms = {{0, "input_layernorm"},
                                                                  {2, "post_attention_layernorm"},
                                                                  {4, "pre_feedforward_layernorm"},
                                                                  {6, "post_feedforward_layernorm"}};
  for (const auto& [at, name] : norms) {
    EXPECT_EQ(norm(at).norm.weight->tensor, "model.layers.0." + name + ".weight");
    EXPECT_EQ(norm(at).norm.weight_offset, 1);
    EXPECT_EQ(norm(at).in, at % 4 == 0 ? Slot::hidden : Slot::a);
    EXPECT_EQ(norm(at).out, Slot::a);
  }
  for (std::size_t layer = 0; layer < recipe.blocks.size(); ++layer) {
    const auto& attention = std::get<Attention>(recipe.blocks[layer].steps[1]);
    EXPECT_EQ(attention.window, layer % 2 == 0 ? 6 : 0);
    EXPECT_EQ(attention.softcap, 50);
    EXPECT_FLOAT_EQ(attention.scale, 1 / std::sqrt(10.0F));
  }
  EXPECT_TRUE(std::holds_alternative<Mlp>(steps[5]));
  EXPECT_EQ(std::get<Mlp>(steps[5]).activation, Activation::gelu_tanh);
  EXPECT_EQ(recipe.front.scale, 8);
  EXPECT_EQ(recipe.back.softcap, 30);
  EXPECT_EQ(recipe.back.norm->weight_offset, 1);
  EXPECT_TRUE(recipe.back.tied);
}

TEST(Build, MixtralChoosesAmongExperts) {
  const auto recipe = golden("mixtral-wide").build();
  const auto& step = std::get<Experts>(recipe.blocks[5].steps[4]);
  EXPECT_EQ(step.router.tensor, "model.layers.5.block_sparse_moe.gate.weight");
  EXPECT_EQ(step.top_k, 3);
  EXPECT_TRUE(step.renormalize);
  EXPECT_EQ(step.inner, 52);
  ASSERT_EQ(step.experts.size(), 4U);
  EXPECT_EQ(step.experts[2].gate->tensor, "model.layers.5.block_sparse_moe.experts.2.w1.weight");
  EXPECT_EQ(step.experts[2].up.tensor, "model.layers.5.block_sparse_moe.experts.2.w3.weight");
  EXPECT_EQ(step.experts[2].down.tensor, "model.layers.5.block_sparse_moe.experts.2.w2.weight");
  EXPECT_EQ(step.experts[2].down.rows, 72);
}

TEST(Build, ExpertsInOneTensorAreTheSameExperts) {
  auto model = golden("mixtral");
  for (int layer = 0; layer < 4; ++layer) {
    const auto prefix = "model.layers." + std::to_string(layer) + ".";
    std::erase_if(model.headers,
                  [&](const auto& entry) { return entry.first.starts_with(prefix + "block_sparse_moe."); });
    model.headers[prefix + "mlp.gate.weight"] = {DType::f32, {4, 16}};
    model.headers[prefix + "mlp.experts.gate_up_proj"] = {DType::f32, {4, 176, 16}};
    model.headers[prefix + "mlp.experts.down_proj"] = {DType::f32, {4, 16, 88}};
  }
  const auto recipe = model.build();
  const auto& step = std::get<Experts>(recipe.blocks[1].steps[4]);
  ASSERT_EQ(step.experts.size(), 4U);
  EXPECT_THAT(step.experts[2].gate->runs, ElementsAre(RowRun{2 * 176 * 16, 88, 16}));
  EXPECT_THAT(step.experts[2].up.runs, ElementsAre(RowRun{(2 * 176 + 88) * 16, 88, 16}));
  EXPECT_THAT(step.experts[2].down.runs, ElementsAre(RowRun{2 * 16 * 88, 16, 88}));
  const Coverage coverage(recipe);
  EXPECT_EQ(coverage.elements.at("model.layers.1.mlp.experts.gate_up_proj").size(), 4U * 176 * 16);
}

TEST(Build, Qwen3NormsQueriesAndKeysAHead) {
  const auto recipe = golden("qwen3").build();
  const auto& step = std::get<Attention>(recipe.blocks[3].steps[1]);
  ASSERT_TRUE(step.query_norm && step.key_norm);
  EXPECT_EQ(step.query_norm->weight->tensor, "model.layers.3.self_attn.q_norm.weight");
  EXPECT_EQ(step.query_norm->weight->count, 8);
  EXPECT_FALSE(step.norm_whole_row);
  EXPECT_FALSE(step.query_bias);
}

TEST(Build, HubAndTransformers5SpellingAreOneModel) {
  EXPECT_EQ(Description::of(golden("qwen2").build()), Description::of(golden("qwen2-hub").build()));
  EXPECT_EQ(Description::of(golden("gemma2").build()), Description::of(golden("gemma2-hub").build()));
  const auto five = golden("llama3-rope");
  auto four = five;
  four.config.erase("rope_parameters");
  four.config.erase("head_dim");
  four.config.erase("dtype");
  four.config["torch_dtype"] = "float32";
  four.config["rope_theta"] = 500000.0;
  four.config["rope_scaling"] = {{"factor", 8.0},
                                 {"high_freq_factor", 4.0},
                                 {"low_freq_factor", 1.0},
                                 {"original_max_position_embeddings", 16},
                                 {"type", "llama3"}};
  EXPECT_EQ(Description::of(five.build()), Description::of(four.build()));
}

TEST(Build, DefaultsThatHubFilesLeaveOutAreTheFamilys) {
  auto model = golden("gemma2");
  const auto whole = Description::of(model.build());
  for (const auto* key : {"tie_word_embeddings", "attention_bias", "hidden_activation", "rms_norm_eps",
                          "rope_parameters", "layer_types"})
    model.config.erase(key);
  EXPECT_EQ(Description::of(model.build()), whole);
  for (const auto* key : {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"})
    model.config.erase(key);
  const auto recipe = model.build();
  EXPECT_EQ(std::get<Attention>(recipe.blocks[0].steps[1]).softcap, 50);
  EXPECT_EQ(std::get<Attention>(recipe.blocks[0].steps[1]).scale, 1.0F / 16);
  EXPECT_EQ(recipe.back.softcap, 30);
  model.config["attn_logit_softcapping"] = nullptr;
  model.config["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(std::get<Attention>(model.build().blocks[0].steps[1]).softcap, 0) << "null is not absent";
  EXPECT_EQ(model.build().back.softcap, 0);
}

TEST(Build, Gpt2AsTheHubHasIt) {
  auto model = golden("gpt2");
  model.config["n_inner"] = nullptr;
  model.config["n_ctx"] = 256;
  model.config["task_specific_params"] = {{"text-generation", {{"do_sample", true}}}};
  model.config.erase("tie_word_embeddings");
  TensorHeaders headers;
  for (auto& [name, header] : model.headers) {
    const auto bare = name.substr(std::string("transformer.").size());
    headers[bare] = header;
    if (bare.ends_with("c_fc.weight")) headers[bare].shape = {32, 128};
    if (bare.ends_with("c_fc.bias")) headers[bare].shape = {128};
    if (bare.ends_with("mlp.c_proj.weight")) headers[bare].shape = {128, 32};
  }
  for (int layer = 0; layer < 5; ++layer) {
    const auto prefix = "h." + std::to_string(layer) + ".attn.";
    headers[prefix + "bias"] = {DType::f32, {1, 1, 256, 256}};
    headers[prefix + "masked_bias"] = {DType::f32, {}};
  }
  model.headers = headers;
  const auto recipe = model.build();
  EXPECT_EQ(std::get<Mlp>(recipe.blocks[2].steps[4]).inner, 128);
  EXPECT_EQ(recipe.front.embedding.tensor, "wte.weight");
  EXPECT_TRUE(recipe.back.tied);
}

TEST(Build, WindowsFollowTheFamilysRuleUnlessLayerTypesSayMore) {
  const auto windows = [](const Model& model) {
    std::vector<std::int64_t> list;
    for (const auto& block : model.build().blocks) list.push_back(std::get<Attention>(block.steps[1]).window);
    return list;
  };
  auto mistral = golden("mistral-window");
  EXPECT_THAT(windows(mistral), ElementsAre(7, 7, 7, 7, 7));
  mistral.config["sliding_window"] = nullptr;
  EXPECT_THAT(windows(mistral), ElementsAre(0, 0, 0, 0, 0));
  mistral.config.erase("sliding_window");
  EXPECT_THAT(windows(mistral), ElementsAre(4096, 4096, 4096, 4096, 4096));

  auto qwen = golden("qwen2-hub");
  qwen.config["sliding_window"] = 5;
  qwen.config["max_window_layers"] = 2;
  EXPECT_THAT(windows(qwen), ElementsAre(0, 0, 0, 0)) << "use_sliding_window is false";
  qwen.config["use_sliding_window"] = true;
  EXPECT_THAT(windows(qwen), ElementsAre(0, 0, 5, 5));
  qwen.config["layer_types"] = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(windows(qwen), ElementsAre(0, 5, 0, 0));
}

TEST(Build, ScoresAreNotScaledWhereGpt2SaysSo) {
  auto model = golden("gpt2");
  model.config["scale_attn_weights"] = false;
  EXPECT_EQ(std::get<Attention>(model.build().blocks[0].steps[1]).scale, 1);
}

TEST(Build, AStoredHeadIsUsedThoughTheConfigTies) {
  auto model = golden("qwen2");
  model.config["tie_word_embeddings"] = true;
  const auto recipe = model.build();
  EXPECT_FALSE(recipe.back.tied);
  EXPECT_EQ(recipe.back.head.tensor, "lm_head.weight");
  EXPECT_THAT(recipe.notes, ElementsAre(HasSubstr("lm_head.weight")));
}

TEST(Build, PythonOfAKnownFamilyIsIgnoredWithANote) {
  auto model = golden("qwen2");
  model.config["auto_map"] = {{"AutoModelForCausalLM", "modeling_qwen.Qwen2ForCausalLM"}};
  EXPECT_THAT(model.build().notes, ElementsAre(HasSubstr("auto_map")));
}

TEST(Build, RotaryBuffersOfOldCheckpointsAreNotWeights) {
  auto model = golden("llama");
  model.headers["model.layers.0.self_attn.rotary_emb.inv_freq"] = {DType::f32, {4}};
  EXPECT_EQ(model.refusal(), "nothing");
}

TEST(Build, KeysThatChangeNothingSayNothing) {
  auto model = golden("llama");
  const auto plain = Description::of(model.build());
  for (const auto& value : {Json(nullptr), Json(false), Json(""), Json::array(), Json::object()}) {
    model.config["something_new"] = value;
    EXPECT_EQ(Description::of(model.build()), plain) << value;
  }
  model.config.erase("something_new");
  model.config["_name_or_path"] = "somebody/llama";
  model.config["attention_dropout"] = 0.5;
  model.config["temperature"] = 0.7;
  model.config["partial_rotary_factor"] = 1.0;
  EXPECT_EQ(Description::of(model.build()), plain);
}

TEST(Build, AKeyIsLeftUnreadOnlyWhenAccepted) {
  auto model = golden("llama");
  model.config["something_new"] = true;
  model.config["rope_parameters"]["twist"] = 2;
  EXPECT_THAT(model.refusal({"something_new"}), HasSubstr("\"rope_parameters.twist\" = 2"));
  const auto recipe = model.build({"something_new", "rope_parameters.twist"});
  EXPECT_THAT(recipe.accepted, ElementsAre("rope_parameters.twist", "something_new"));
  EXPECT_THAT(recipe.notes, ElementsAre(HasSubstr("rope_parameters.twist"), HasSubstr("something_new")));
}

TEST(Build, AnUnknownFamilyIsTakenForAPlainDecoderOnlyWhenAccepted) {
  auto model = golden("llama-wide");
  const auto known = model.build();
  model.config["model_type"] = "lama2";
  model.config.erase("attention_bias");
  model.config.erase("mlp_bias");
  EXPECT_THAT(model.refusal(), HasSubstr("no facts about model_type \"lama2\""));
  const auto recipe = model.build({"model_type"});
  EXPECT_EQ(Description::of(recipe), Description::of(known));
  EXPECT_THAT(recipe.accepted, ElementsAre("model_type"));
  model.config["auto_map"] = {{"AutoModel", "modeling_lama2.Lama2"}};
  EXPECT_THAT(model.refusal({"model_type"}), HasSubstr("brings its own Python"));
}

}  // namespace
}  // namespace diffuse

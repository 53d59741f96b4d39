// Recipes of models whose stack reads an encoder.

#include <algorithm>
#include <set>

#include "support.hpp"

namespace diffuse {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<std::string> kCases = {"bart", "marian", "t5", "whisper"};

TEST(MemoryRecipe, TensorsOfItsPartsAreTheCheckpoint) {
  for (const auto& name : kCases) {
    const auto model = golden(name);
    const auto recipe = model.build();
    EXPECT_EQ(recipe.shape, "encoder memory");
    EXPECT_EQ(recipe.depth(), 5);
    ASSERT_TRUE(recipe.encoder);
    EXPECT_EQ(recipe.encoder->blocks.size(), 3U);
    std::set<std::string> used;
    const auto add = [&](const std::vector<std::string>& names) { used.insert(names.begin(), names.end()); };
    add(tensors_of(*recipe.encoder));
    add(tensors_of(recipe.front));
    for (const auto& block : recipe.blocks) add(tensors_of(block));
    add(tensors_of(recipe.back));
    std::set<std::string> stored;
    for (const auto& [tensor, header] : model.headers) stored.insert(tensor);
    EXPECT_EQ(used, stored) << name;
  }
}

std::vector<std::string> kinds_of(const Block& block) {
  std::vector<std::string> kinds;
  for (const auto& step : block.steps) {
    const auto text = Description::of(Block{{step}});
    kinds.push_back(text.substr(0, text.find(' ')));
  }
  return kinds;
}

TEST(MemoryRecipe, NormsStandWhereTheFamilyHasThem) {
  const std::vector<std::string> before = {"norm", "attention", "add", "norm", "cross",
                                           "add",  "norm",      "mlp", "add"};
  const std::vector<std::string> after = {"attention", "add", "norm", "cross", "add",
                                          "norm",      "mlp", "add",  "norm"};
  EXPECT_EQ(kinds_of(golden("t5").build().blocks[0]), before);
  EXPECT_EQ(kinds_of(golden("whisper").build().blocks[4]), before);
  EXPECT_EQ(kinds_of(golden("bart").build().blocks[2]), after);
  EXPECT_EQ(kinds_of(golden("marian").build().encoder->blocks[1]),
            (std::vector<std::string>{"attention", "add", "norm", "mlp", "add", "norm"}));
}

TEST(MemoryRecipe, OneBiasServesAllLayersOfAHalf) {
  const auto recipe = golden("t5").build();
  const auto bias_of = [](const Block& block) {
    for (const auto& step : block.steps) {
      if (const auto* attention = std::get_if<Attention>(&step)) return attention->position_bias.value();
    }
    throw std::runtime_error("a block without attention");
  };
  for (const auto& block : recipe.blocks) {
    EXPECT_EQ(bias_of(block).table.tensor,
              "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
    EXPECT_FALSE(bias_of(block).both_sides);
  }
  for (const auto& block : recipe.encoder->blocks) {
    EXPECT_EQ(bias_of(block).table.tensor,
              "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
    EXPECT_TRUE(bias_of(block).both_sides);
  }
}

TEST(MemoryRecipe, T5ScalesItsLogitsUnlessTheConfigUnties) {
  auto model = golden("t5");
  EXPECT_EQ(model.build().back.scale, 1);
  model.config.erase("scale_decoder_outputs");
  EXPECT_FLOAT_EQ(model.build().back.scale, 0.17677669F);
  model.config["tie_word_embeddings"] = false;
  EXPECT_EQ(model.build().back.scale, 1);
  EXPECT_TRUE(model.build().back.tied);  // such a class has no other head
}

TEST(MemoryRecipe, ReadsTheFeedForwardName) {
  auto model = golden("t5");
  const auto mlp_of = [&] {
    const auto recipe = model.build();
    for (const auto& step : recipe.blocks[0].steps) {
      if (const auto* mlp = std::get_if<Mlp>(&step)) return *mlp;
    }
    throw std::runtime_error("a block without an MLP");
  };
  EXPECT_EQ(mlp_of().activation, Activation::gelu_tanh);
  EXPECT_TRUE(mlp_of().gate);
  model.config["feed_forward_proj"] = "gated-silu";
  EXPECT_THAT(model.refusal(), HasSubstr("contradict"));
  model.config.erase("dense_act_fn");
  EXPECT_EQ(mlp_of().activation, Activation::silu);
  model.config["feed_forward_proj"] = "relu";  // the weights have a gate
  EXPECT_THAT(model.refusal(), HasSubstr("contradict"));
  model.config.erase("is_gated_act");
  EXPECT_THAT(model.refusal(), HasSubstr("the weights have no tensor"));
}

// transformers ties what the weights have one by one only where it is equal: so what is stored is used.
TEST(MemoryRecipe, AHalfUsesItsOwnTableBesideTheSharedOne) {
  auto model = golden("bart");
  const auto table = model.headers.at("model.shared.weight");
  model.headers["model.encoder.embed_tokens.weight"] = table;
  auto recipe = model.build();
  EXPECT_EQ(std::get<Front>(recipe.encoder->front).embedding.tensor, "model.encoder.embed_tokens.weight");
  EXPECT_EQ(recipe.front.embedding.tensor, "model.shared.weight");
  EXPECT_TRUE(recipe.back.tied);
  ASSERT_EQ(recipe.notes.size(), 1U);
  EXPECT_THAT(recipe.notes[0],
              HasSubstr("'model.encoder.embed_tokens.weight' is stored beside 'model.shared.weight'"));

  model.headers["model.decoder.embed_tokens.weight"] = table;
  recipe = model.build();
  EXPECT_EQ(recipe.front.embedding.tensor, "model.decoder.embed_tokens.weight");
  EXPECT_EQ(recipe.back.head.tensor, "model.shared.weight");  // what the head is tied to
  EXPECT_FALSE(recipe.back.tied);

  model.headers["lm_head.weight"] = table;
  recipe = model.build();
  EXPECT_EQ(recipe.back.head.tensor, "lm_head.weight");
  EXPECT_THAT(recipe.notes.back(), HasSubstr("'model.shared.weight' is not read"));
}

TEST(MemoryRecipe, WithoutASharedTableTheHalvesAreTiedToWhatIsThere) {
  auto model = golden("t5");
  model.headers["decoder.embed_tokens.weight"] = model.headers.at("shared.weight");
  model.headers.erase("shared.weight");
  const auto recipe = model.build();
  EXPECT_EQ(std::get<Front>(recipe.encoder->front).embedding.tensor, "decoder.embed_tokens.weight");
  EXPECT_EQ(recipe.front.embedding.tensor, "decoder.embed_tokens.weight");
  EXPECT_TRUE(recipe.back.tied);
  model.headers["encoder.embed_tokens.weight"] = model.headers.at("decoder.embed_tokens.weight");
  EXPECT_THAT(model.refusal(), HasSubstr("either may be the head"));
}

// transformers' class says of the same tensor that it is not to be missed.
TEST(MemoryRecipe, ABiasOfCrossAttentionIsPassedOver) {
  auto model = golden("t5");
  const std::string bias = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
  const auto plain = Description::of(model.build());
  model.headers[bias] = {DType::f32, {32, 4}};
  const auto recipe = model.build();
  EXPECT_EQ(Description::of(recipe), plain);
  ASSERT_EQ(recipe.notes.size(), 1U);
  EXPECT_THAT(recipe.notes[0], HasSubstr("'" + bias + "' is not read"));
  model.headers["decoder.block.1.layer.1.EncDecAttention.relative_attention_bias.weight"] = {DType::f32,
                                                                                             {32, 4}};
  EXPECT_THAT(model.refusal(), HasSubstr("no step uses the tensors"));
}

TEST(MemoryRecipe, T5AndItsKinAreTiedWhateverTheConfigSays) {
  auto model = golden("t5");
  model.config["model_type"] = "mt5";
  model.config.erase("scale_decoder_outputs");
  model.config["tie_word_embeddings"] = false;
  EXPECT_TRUE(model.build().back.tied);
}

struct Refused {
  const char* name;
  const char* base;
  void (*edit)(Model&);
  const char* message;
};

TEST(MemoryRecipe, RefusesWhatDoesNotFit) {
  const std::vector<Refused> cases = {
      {"encoder depth", "bart", [](Model& m) { m.config["encoder_layers"] = 4; },
       "69: config.json states 4 encoder layers and the weights have 3"},
      {"decoder depth", "t5", [](Model& m) { m.config["num_decoder_layers"] = 3; },
       "69: config.json states 3 decoder layers and the weights have 5"},
      {"two names", "bart", [](Model& m) { m.config["num_hidden_layers"] = 7; },
       "69: config.json: 'encoder_layers' is 3 and 'num_hidden_layers' is 7"},
      {"no encoder", "marian",
       [](Model& m) {
         std::erase_if(m.headers, [](const auto& h) { return h.first.starts_with("model.encoder"); });
       },
       "69: cannot run yet: the weights have no encoder and decoder"},
      {"unknown key", "whisper", [](Model& m) { m.config["twist"] = 3; },
       "69: cannot run yet: config.json has keys"},
      {"another filter of word times", "whisper", [](Model& m) { m.config["median_filter_width"] = 9; },
       R"(69: cannot run yet: config.json has keys that this build does not know: "median_filter_width" = 9)"},
      {"left over", "t5",
       [](Model& m) {
         m.headers["encoder.more.weight"] = {DType::f32, {3}};
       },
       "69: cannot run yet: no step uses the tensors"},
      {"positions", "bart", [](Model& m) { m.config["max_position_embeddings"] = 127; }, "65: tensor"},
      {"heads", "whisper", [](Model& m) { m.config["encoder_attention_heads"] = 5; },
       "65: config.json: hidden size"},
      {"buckets", "t5", [](Model& m) { m.config["relative_attention_num_buckets"] = 3; },
       "69: cannot run yet: relative positions in 3 buckets"},
      {"start is padding", "marian", [](Model& m) { m.config["model_type"] = "m2m_100"; },
       "69: cannot run yet: answers start with the padding token"},
      {"a vocabulary of each half", "marian",
       [](Model& m) { m.config["share_encoder_decoder_embeddings"] = false; },
       "69: cannot run yet: its halves have tables and vocabularies of their own"},
      {"a decoder's vocabulary", "marian", [](Model& m) { m.config["decoder_vocab_size"] = 149; },
       "69: cannot run yet: config.json states a vocab_size of 150"},
      {"another name's copy", "t5",
       [](Model& m) { m.headers["decoder.wte.weight"] = m.headers.at("shared.weight"); },
       R"(69: cannot run yet: no step uses the tensors "decoder.wte.weight")"},
      {"another family", "bart", [](Model& m) { m.config["model_type"] = "fsmt"; },
       "69: cannot run yet: its stack"},
  };
  for (const auto& refused : cases) {
    auto model = golden(refused.base);
    refused.edit(model);
    EXPECT_THAT(model.refusal(), StartsWith(refused.message)) << refused.name;
  }
}

}  // namespace
}  // namespace diffuse

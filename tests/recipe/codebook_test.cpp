// Recipes of models whose stack walks several codebooks.

#include <algorithm>
#include <set>

#include "support.hpp"

namespace diffuse {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<std::string> kCases = {"musicgen", "musicgen-stereo"};

std::set<std::string> used_by(const Recipe& recipe) {
  std::set<std::string> used;
  const auto add = [&](const std::vector<std::string>& names) { used.insert(names.begin(), names.end()); };
  add(tensors_of(*recipe.encoder));
  add(tensors_of(recipe.front));
  for (const auto& block : recipe.blocks) add(tensors_of(block));
  add(tensors_of(recipe.back));
  add(tensors_of(*recipe.codec));
  return used;
}

// The codec's encoder, what its codebooks were trained by, those of a higher bandwidth; the table
// beside the text encoder's own.
bool is_passed_over(const Model& model, const std::string& tensor, std::size_t codebooks) {
  if (tensor.starts_with("audio_encoder.encoder.") || tensor.ends_with("embed_positions.weights"))
    return true;
  if (tensor == "text_encoder.shared.weight")
    return model.headers.contains("text_encoder.encoder.embed_tokens.weight");
  const std::string quantizer = "audio_encoder.quantizer.layers.";
  return tensor.starts_with(quantizer) &&
         (!tensor.ends_with(".embed") || std::stoul(tensor.substr(quantizer.size())) >= codebooks);
}

TEST(CodebookRecipe, TensorsOfItsPartsAreTheCheckpoint) {
  for (const auto& name : kCases) {
    const auto model = golden(name);
    const auto recipe = model.build();
    std::set<std::string> expected;
    for (const auto& [tensor, header] : model.headers) {
      if (!is_passed_over(model, tensor, recipe.codec->codebooks.size())) expected.insert(tensor);
    }
    EXPECT_EQ(used_by(recipe), expected) << name;
  }
}

TEST(CodebookRecipe, SumsTablesAndStacksHeads) {
  const auto recipe = golden("musicgen").build();
  EXPECT_EQ(recipe.shape, "encoder memory");
  EXPECT_EQ(recipe.depth(), 5);
  EXPECT_EQ(recipe.codebooks, 4);
  EXPECT_EQ(recipe.vocab, 4 * 64);
  EXPECT_EQ(recipe.front.embedding.rows, 65);
  ASSERT_EQ(recipe.front.further.size(), 3U);
  ASSERT_EQ(recipe.back.further.size(), 3U);
  EXPECT_EQ(recipe.front.further[2].tensor, "decoder.model.decoder.embed_tokens.3.weight");
  EXPECT_EQ(recipe.back.further[0].tensor, "decoder.lm_heads.1.weight");
  ASSERT_TRUE(recipe.front.sinusoids);
  EXPECT_TRUE(recipe.front.sinusoids->cosines_first);
  EXPECT_EQ(recipe.front.sinusoids->count, 128);
}

TEST(CodebookRecipe, ProjectsTheMemoryWhereWidthsDiffer) {
  const auto narrow = golden("musicgen").build();
  EXPECT_EQ(narrow.encoder->width, 24);
  EXPECT_EQ(narrow.encoder->hidden, 32);
  ASSERT_EQ(narrow.encoder->projections.size(), 1U);
  EXPECT_EQ(narrow.encoder->projections[0].weight.rows, 32);
  const auto equal = golden("musicgen-stereo").build();
  EXPECT_EQ(equal.encoder->width, 24);
  EXPECT_EQ(equal.encoder->hidden, 24);
  EXPECT_TRUE(equal.encoder->projections.empty());
}

TEST(CodebookRecipe, ReadsTheCodec) {
  const auto mono = *golden("musicgen").build().codec;
  EXPECT_EQ(mono.rate, 16000);
  EXPECT_EQ(mono.passes, 1);
  EXPECT_EQ(mono.codebooks.size(), 4U);
  EXPECT_EQ(mono.samples_per_frame(), 20);
  EXPECT_TRUE(mono.causal);
  EXPECT_EQ(mono.stages[0].trim_left, 0);
  EXPECT_TRUE(mono.stages[0].units[0].shortcut);
  EXPECT_EQ(mono.first.gain, "audio_encoder.decoder.layers.0.conv.parametrizations.weight.original0");
  const auto stereo = *golden("musicgen-stereo").build().codec;
  EXPECT_EQ(stereo.passes, 2);
  EXPECT_EQ(stereo.codebooks.size(), 2U);
  EXPECT_EQ(stereo.lstm.size(), 2U);
  EXPECT_FALSE(stereo.causal);
  EXPECT_EQ(stereo.stages[0].stride, 5);
  EXPECT_EQ(stereo.stages[0].trim_left, 3);
  ASSERT_EQ(stereo.stages[1].units.size(), 2U);
  EXPECT_EQ(stereo.stages[1].units[1].wide.dilation, 2);
  EXPECT_FALSE(stereo.stages[1].units[1].shortcut);
  EXPECT_EQ(stereo.first.direction, "audio_encoder.decoder.layers.0.conv.weight_v");
}

TEST(CodebookRecipe, CopiesAreNoted) {
  const auto recipe = golden("musicgen-stereo").build();
  ASSERT_EQ(recipe.notes.size(), 1U);
  EXPECT_THAT(recipe.notes[0], HasSubstr("stored beside 'text_encoder.shared.weight'"));
  // transformers ties the two only where they are equal.
  EXPECT_EQ(std::get<Front>(recipe.encoder->front).embedding.tensor,
            "text_encoder.encoder.embed_tokens.weight");
}

struct Refused {
  const char* base;
  void (*edit)(Model&);
  const char* message;
};

TEST(CodebookRecipe, RefusesWhatDoesNotFit) {
  const std::vector<Refused> cases = {
      {"musicgen", [](Model& m) { m.config.erase("audio_encoder"); },
       "69: cannot run yet: config.json has no section 'audio_encoder'"},
      {"musicgen", [](Model& m) { m.config["decoder"] = 3; }, "65: config.json: 'decoder' is 3"},
      {"musicgen", [](Model& m) { m.config["text_encoder"]["model_type"] = "bart"; },
       "69: cannot run yet: its text encoder is \"bart\""},
      {"musicgen", [](Model& m) { m.config["text_encoder"]["num_layers"] = 4; },
       "69: config.json states 4 encoder layers and the weights have 3"},
      {"musicgen", [](Model& m) { m.config["decoder"]["num_hidden_layers"] = 3; },
       "69: config.json states 3 decoder layers and the weights have 5"},
      {"musicgen", [](Model& m) { m.config["decoder"]["cross_attention_hidden_size"] = 24; },
       "69: cannot run yet: config.json has keys that this build does not know: "
       "\"decoder.cross_attention_hidden_size\""},
      {"musicgen", [](Model& m) { m.config["audio_encoder"]["twist"] = 2; },
       "69: cannot run yet: config.json has keys that this build does not know: \"audio_encoder.twist\""},
      {"musicgen", [](Model& m) { m.config["decoder"]["num_codebooks"] = 5; },
       "65: the weights have no tensor"},
      {"musicgen", [](Model& m) { m.config["decoder"]["num_codebooks"] = 3; },
       "69: cannot run yet: no step uses the tensors"},
      {"musicgen", [](Model& m) { m.config["decoder"]["audio_channels"] = 3; },
       "65: config.json: 'decoder.audio_channels' is 3"},
      {"musicgen", [](Model& m) { m.config["audio_encoder"]["model_type"] = "dac"; },
       "69: cannot run yet: its codec is \"dac\""},
      {"musicgen", [](Model& m) { m.config["audio_encoder"]["norm_type"] = "time_group_norm"; },
       "69: cannot run yet: its codec is normed by norm_type \"time_group_norm\""},
      {"musicgen", [](Model& m) { m.config["audio_encoder"]["pad_mode"] = "circular"; },
       "69: cannot run yet: its codec pads its convolutions by pad_mode \"circular\""},
      {"musicgen", [](Model& m) { m.config["audio_encoder"]["codebook_size"] = 32; },
       "65: config.json: the decoder makes codes below 64"},
      {"musicgen", [](Model& m) { m.config["audio_encoder"]["codebook_dim"] = 8; },
       "69: cannot run yet: its codec's codebooks are 8 wide"},
      {"musicgen",
       [](Model& m) {
         m.config["audio_encoder"]["upsampling_ratios"] = {5, 0};
       },
       "65: config.json: 'audio_encoder.upsampling_ratios' is [5,0]"},
      {"musicgen",
       [](Model& m) {
         m.config["audio_encoder"]["upsampling_ratios"] = {{"5", 4}};
       },
       "65: config.json: 'audio_encoder.upsampling_ratios'"},
      {"musicgen",
       [](Model& m) {
         m.config["audio_encoder"]["upsampling_ratios"] = {5, 4, 2};
       },
       "65: tensor"},
      {"musicgen", [](Model& m) { m.config["audio_encoder"]["num_lstm_layers"] = 2; },
       "65: the weights have no tensor"},
      {"musicgen-stereo", [](Model& m) { m.config["audio_encoder"]["audio_channels"] = 2; },
       "69: cannot run yet: a codec of two channels"},
      {"musicgen-stereo", [](Model& m) { m.config["audio_encoder"]["trim_right_ratio"] = 0.5; },
       "65: config.json: trim_right_ratio"},
      {"musicgen-stereo",
       [](Model& m) {
         m.headers["decoder.lm_heads.9.weight"] = {DType::f32, {3}};
       },
       "69: cannot run yet: no step uses the tensors"},
      {"musicgen", [](Model& m) { m.config["model_type"] = "musicgen_melody"; },
       "69: cannot run yet: its stack starts with rows made of a melody's chroma features"},
  };
  for (const auto& refused : cases) {
    auto model = golden(refused.base);
    refused.edit(model);
    EXPECT_THAT(model.refusal(), StartsWith(refused.message));
  }
}

}  // namespace
}  // namespace diffuse

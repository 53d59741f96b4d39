#include "recipe/rope.hpp"

#include <limits>

#include "support.hpp"

namespace diffuse {
namespace {

// Frequencies and factors of transformers 5.24 for a head of 16 (modeling_rope_utils, torch 2.15, f32).
struct Reference {
  std::string name;
  Json parameters;
  std::vector<float> frequencies;
  float attention_factor = 1;
};

const std::vector<Reference> kReferences = {
    {"plain",
     {{"rope_type", "default"}, {"rope_theta", 10000.0}},
     {0x1p+0F, 0x1.43d136p-2F, 0x1.99999ap-4F, 0x1.030dc6p-5F, 0x1.47ae14p-7F, 0x1.9e7c70p-9F,
      0x1.0624dep-10F, 0x1.4b96c0p-12F}},
    {"linear",
     {{"rope_type", "linear"}, {"rope_theta", 10000.0}, {"factor", 2.5}},
     {0x1.99999ap-2F, 0x1.030dc4p-3F, 0x1.47ae14p-5F, 0x1.9e7c70p-7F, 0x1.0624dcp-8F, 0x1.4b96c0p-10F,
      0x1.a36e30p-12F, 0x1.094566p-13F}},
    {"llama3",
     {{"rope_type", "llama3"},
      {"rope_theta", 500000.0},
      {"factor", 8.0},
      {"low_freq_factor", 1.0},
      {"high_freq_factor", 4.0},
      {"original_max_position_embeddings", 16}},
     {0x1.26f0dcp-1F, 0x1.8d2760p-6F, 0x1.341190p-8F, 0x1.ddee9ep-11F, 0x1.72ba42p-13F, 0x1.1f91f0p-15F,
      0x1.be2188p-18F, 0x1.5a0f4ep-20F}},
    {"yarn",
     {{"rope_type", "yarn"},
      {"rope_theta", 10000.0},
      {"factor", 4.0},
      {"original_max_position_embeddings", 16}},
     {0x1p+0F, 0x1.43d136p-4F, 0x1.99999ap-6F, 0x1.030dc6p-7F, 0x1.47ae14p-9F, 0x1.9e7c70p-11F,
      0x1.0624dep-12F, 0x1.4b96c0p-14F},
     1.138629436111989F},
    {"yarn_with_every_key",
     {{"rope_type", "yarn"},
      {"rope_theta", 1000000.0},
      {"factor", 40.0},
      {"original_max_position_embeddings", 4096},
      {"mscale", 1.0},
      {"mscale_all_dim", 0.8},
      {"beta_fast", 24},
      {"beta_slow", 2},
      {"truncate", false}},
     {0x1p+0F, 0x1.6c310ep-3F, 0x1.e732f4p-6F, 0x1.83536ep-10F, 0x1.a36e2ep-16F, 0x1.2a5884p-18F,
      0x1.a86f08p-21F, 0x1.2de79ap-23F},
     1.0569662567531275F},
};

class Scaling : public ::testing::TestWithParam<Reference> {};
INSTANTIATE_TEST_SUITE_P(Types, Scaling, ::testing::ValuesIn(kReferences),
                         [](const auto& made) { return made.param.name; });

TEST_P(Scaling, IsWhatTransformersComputes) {
  const Json config = {{"rope_parameters", GetParam().parameters}};
  ConfigReader reader(config);
  const auto rope = make_rope(reader, "full_attention", 16, 256, {});
  ASSERT_EQ(rope.spec.frequencies.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_FLOAT_EQ(rope.spec.frequencies[i], GetParam().frequencies[i]) << i;
  EXPECT_FLOAT_EQ(rope.spec.attention_factor, GetParam().attention_factor);
  EXPECT_THAT(reader.leftovers(), ::testing::IsEmpty());
}

RopeSpec spec_of(const Json& config, const std::string& layer_type = "full_attention", bool partial = false) {
  ConfigReader reader(config);
  return make_rope(reader, layer_type, 16, 256, {.theta = 10000, .partial = partial}).spec;
}

TEST(Rope, BothSpellingsAreOne) {
  const auto linear =
      spec_of({{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 5000}}}});
  EXPECT_EQ(linear, spec_of({{"rope_theta", 5000}, {"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}));
  EXPECT_EQ(linear,
            spec_of({{"rope_theta", 5000}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}));
  EXPECT_EQ(spec_of(Json::object()), spec_of({{"rope_theta", 10000}, {"rope_scaling", nullptr}}));
}

TEST(Rope, LayerTypesCanHaveTheirOwn) {
  const Json config = {{"rope_parameters",
                        {{"full_attention", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 1e6}}},
                         {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000}}}}}};
  EXPECT_EQ(spec_of(config, "sliding_attention"), spec_of(Json::object()));
  EXPECT_EQ(spec_of(config, "full_attention"),
            spec_of({{"rope_theta", 1e6}, {"rope_scaling", {{"type", "linear"}, {"factor", 8}}}}));
}

TEST(Rope, APartOfAHeadIsTurnedWhereTheFamilyReadsIt) {
  EXPECT_EQ(spec_of({{"partial_rotary_factor", 0.5}}, "full_attention", true).frequencies.size(), 4U);
  EXPECT_EQ(spec_of({{"partial_rotary_factor", 0.5}}, "full_attention", false).frequencies.size(), 8U);
}

TEST(Rope, OriginalPositionsBesideTheScalingGoFirst) {
  const Json scaling = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  const Json inside = {{"rope_parameters", scaling}};
  const Json beside = {{"rope_parameters", scaling}, {"original_max_position_embeddings", 16}};
  EXPECT_NE(spec_of(inside), spec_of(beside));
  const Json neither = {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 4.0}}}};
  const Json whole = {{"rope_parameters",
                       {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 256}}}};
  EXPECT_EQ(spec_of(neither), spec_of(whole));
}

TEST(Rope, YarnStretchesTheContext) {
  const Json config = {{"rope_parameters",
                        {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 256}}}};
  ConfigReader reader(config);
  EXPECT_EQ(make_rope(reader, "full_attention", 16, 256, {}).max_positions, 1024);
}

}  // namespace
}  // namespace diffuse

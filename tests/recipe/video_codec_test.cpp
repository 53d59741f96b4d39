// A video autoencoder's config and headers -> its decoder; what it does not have is refused by name.

#include "recipe/video_codec_recipe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "checkpoint/open_file.hpp"
#include "checkpoint/safetensors.hpp"
#include "core/error.hpp"

namespace diffuse {
namespace {

using ::testing::HasSubstr;
const std::filesystem::path kData = DIFFUSE_TEST_DATA;

struct Autoencoder {
  explicit Autoencoder(const std::filesystem::path& folder) : config(read_json(folder / "config.json")) {
    const OpenFile file(folder / "diffusion_pytorch_model.safetensors");
    for (const auto& [name, stored] : read_safetensors_header(file)) headers.emplace(name, stored.header);
  }
  Json config;
  TensorHeaders headers;
};

Autoencoder wan() {
  return Autoencoder(kData / "refinement/wan/vae");
}

std::string refusal(const std::function<void(Autoencoder&)>& change, ExitCode code = ExitCode::refused) {
  auto model = wan();
  change(model);
  try {
    read_video_codec(model.config, model.headers);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing";
}

std::string refusal(const char* key, const Json& value, ExitCode code = ExitCode::refused) {
  return refusal([&](Autoencoder& model) { model.config[key] = value; }, code);
}

TEST(VideoCodec, IsReadOfWansAutoencoder) {
  const auto model = wan();
  const auto codec = read_video_codec(model.config, model.headers);
  EXPECT_EQ(codec.latent_channels, 16);
  EXPECT_EQ(codec.space_scale(), 8);
  EXPECT_EQ(codec.time_scale(), 4);
  EXPECT_EQ(codec.frames_of(1), 1);
  EXPECT_EQ(codec.frames_of(21), 81);
  ASSERT_EQ(codec.stages.size(), 4U);
  EXPECT_TRUE(codec.stages[0].upsampler->time);
  EXPECT_TRUE(codec.stages[1].upsampler->time);
  EXPECT_FALSE(codec.stages[2].upsampler->time);
  EXPECT_FALSE(codec.stages[3].upsampler);
  EXPECT_DOUBLE_EQ(codec.mean[0], -0.7571);
  EXPECT_DOUBLE_EQ(codec.deviation[15], 1.916);
  const auto names = tensors_of(codec);
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  for (const auto& name : names) EXPECT_TRUE(model.headers.contains(name)) << name;
}

// The trained demo's: two stages, one of which stretches time.
TEST(VideoCodec, IsReadWithItsFoldersNameBeforeTheTensors) {
  const Autoencoder model(kData.parent_path().parent_path() / "demo/wan/vae");
  TensorHeaders headers = {{"transformer.other.weight", {}}};
  for (const auto& [name, header] : model.headers) headers["vae." + name] = header;
  const auto codec = read_video_codec(model.config, headers, "vae.");
  EXPECT_EQ(codec.space_scale(), 2);
  EXPECT_EQ(codec.frames_of(5), 9);
  EXPECT_EQ(codec.first.weight, "vae.decoder.conv_in.weight");
}

TEST(VideoCodec, RefusesByNameWhatThisBuildDoesNotHave) {
  EXPECT_THAT(refusal("_class_name", "AutoencoderKL"), HasSubstr("\"AutoencoderKL\""));
  EXPECT_THAT(refusal("is_residual", true), HasSubstr("Wan 2.2"));
  EXPECT_THAT(refusal("patch_size", 2), HasSubstr("patch_size 2"));
  EXPECT_THAT(refusal("out_channels", 4), HasSubstr("4 channels"));
  EXPECT_THAT(refusal("a_new_key", 3), HasSubstr("\"a_new_key\" = 3"));
  EXPECT_EQ(refusal("a_new_key", false), "nothing");
  EXPECT_THAT(refusal([](Autoencoder& model) { model.headers["decoder.lora.weight"] = {}; }),
              HasSubstr("\"decoder.lora.weight\", which no step uses"));
  EXPECT_EQ(refusal([](Autoencoder& model) { model.headers["encoder.extra.weight"] = {}; }), "nothing");
}

TEST(VideoCodec, SaysWhichValueIsWrong) {
  const auto wrong = [](const char* key, const Json& value) {
    return refusal(key, value, ExitCode::bad_data);
  };
  EXPECT_THAT(wrong("z_dim", 8), HasSubstr("'latents_mean' has 16 numbers, and the latent has 8 channels"));
  EXPECT_THAT(wrong("latents_std", Json::array({1, "b"})), HasSubstr("not a list of numbers"));
  EXPECT_THAT(wrong("latents_mean", nullptr), HasSubstr("has 0 numbers"));
  EXPECT_THAT(wrong("dim_mult", Json::array()), HasSubstr("0 stages"));
  EXPECT_THAT(wrong("dim_mult", Json::array({1, 0})), HasSubstr("'dim_mult'"));
  EXPECT_THAT(wrong("dim_mult", Json::array({1, 2})), HasSubstr("makes 1 upsamplers"));
  EXPECT_THAT(wrong("base_dim", 65536), HasSubstr("not of one checkpoint"));
  EXPECT_THAT(wrong("base_dim", 3), HasSubstr("not of one checkpoint"));
  EXPECT_THAT(wrong("base_dim", 0), HasSubstr("'base_dim' is 0"));
  EXPECT_THAT(wrong("temperal_downsample", Json::array({true, false, true})), HasSubstr("time_conv"));
  EXPECT_THAT(wrong("scale_factor_spatial", 16), HasSubstr("'scale_factor_spatial' is 16"));
  EXPECT_THAT(wrong("scale_factor_temporal", 2), HasSubstr("'scale_factor_temporal' is 2"));
  EXPECT_THAT(
      refusal([](Autoencoder& model) { model.headers.erase("decoder.conv_out.bias"); }, ExitCode::bad_data),
      HasSubstr("\"decoder.conv_out.bias\""));
}

}  // namespace
}  // namespace diffuse

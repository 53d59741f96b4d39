#include "text/generate_options.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support.hpp"

namespace diffuse {
namespace {

std::string rejected(const Json& object) {
  const auto message = error_of(ExitCode::bad_data, [&] { parse_generate(object, "request 'q': generate"); });
  EXPECT_EQ(message.rfind("request 'q': generate", 0), 0U) << message;
  return message;
}

TEST(Generate, HasDefaults) {
  const auto options = parse_generate(Json(), "generate");
  EXPECT_EQ(options.max_new_tokens, kDefaultMaxNewTokens);
  EXPECT_EQ(options.sampling.temperature, 0);
  EXPECT_EQ(options.sampling.top_p, 1);
  EXPECT_EQ(options.sampling.logprobs, -1);
  EXPECT_FALSE(options.seed);
  EXPECT_EQ(options.n, 1);
  EXPECT_FALSE(options.height);
}

TEST(Generate, ReadsEveryName) {
  const Json object = {{"max_new_tokens", 7},
                       {"temperature", 0.5},
                       {"top_k", 40},
                       {"top_p", 0.9},
                       {"min_p", 0.05},
                       {"repetition_penalty", 1.1},
                       {"seed", 18446744073709551615ULL},
                       {"stop", {"a", "b"}},
                       {"ignore_eos", true},
                       {"n", 3},
                       {"logprobs", 5},
                       {"num_beams", 4},
                       {"num_inference_steps", 20},
                       {"guidance_scale", 3.5},
                       {"height", 64},
                       {"width", 32},
                       {"num_frames", 9},
                       {"num_videos_per_prompt", 2}};
  const auto options = parse_generate(object, "generate");
  EXPECT_EQ(options.max_new_tokens, 7);
  EXPECT_EQ(options.sampling.temperature, 0.5);
  EXPECT_EQ(options.sampling.top_k, 40);
  EXPECT_EQ(options.sampling.top_p, 0.9);
  EXPECT_EQ(options.sampling.min_p, 0.05);
  EXPECT_EQ(options.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(options.seed, 18446744073709551615ULL);
  EXPECT_EQ(options.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(options.ignore_eos);
  EXPECT_EQ(options.n, 3);
  EXPECT_EQ(options.sampling.logprobs, 5);
  EXPECT_EQ(options.num_beams, 4);
  EXPECT_EQ(options.num_inference_steps, 20);
  EXPECT_EQ(options.guidance_scale, 3.5);
  EXPECT_EQ(options.height, 64);
  EXPECT_EQ(options.width, 32);
  EXPECT_EQ(options.num_frames, 9);
  EXPECT_EQ(options.num_videos_per_prompt, 2);
  EXPECT_EQ(parse_generate({{"stop", "x"}}, "generate").stop, (std::vector<std::string>{"x"}));
  EXPECT_EQ(parse_generate({{"top_k", -1}}, "generate").sampling.top_k, 0);
}

TEST(Generate, MergesARequestOverTheJob) {
  const auto job = parse_generate({{"max_new_tokens", 7}, {"temperature", 0.5}, {"stop", {"a"}}}, "generate");
  const auto request = parse_generate(
      {{"temperature", 1}, {"stop", Json::array()}, {"max_new_tokens", nullptr}}, "request", job);
  EXPECT_EQ(request.max_new_tokens, 7);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_TRUE(request.stop.empty());
}

TEST(Generate, OutputTypeIsDiffusersAndBoth) {
  const auto parsed = [](const char* word) {
    return parse_generate({{"output_type", word}}, "generate").output_type;
  };
  EXPECT_EQ(parsed("latent"), (MediaOutput{.frames = false, .latent = true}));
  EXPECT_EQ(parsed("both"), (MediaOutput{.frames = true, .latent = true}));
  EXPECT_EQ(parsed("np"), MediaOutput());
  EXPECT_EQ(parse_generate(Json(), "generate").output_type, std::nullopt);
}

TEST(Generate, NamesTheNearestKnownKey) {
  EXPECT_NE(rejected({{"max_tokens", 5}}).find("'max_new_tokens'"), std::string::npos);
  EXPECT_NE(rejected({{"temprature", 1}}).find("'temperature'"), std::string::npos);
  EXPECT_NE(rejected({{"topk", 1}}).find("'top_k'"), std::string::npos);
  EXPECT_NE(rejected({{"frames", 1}}).find("'num_frames'"), std::string::npos);
  rejected({{std::string(100'000, 'x'), 1}});
  rejected({{"a\nb", 1}});
}

TEST(Generate, RejectsWrongTypesAndRanges) {
  for (const auto& object : std::vector<Json>{{{"max_new_tokens", -1}},
                                              {{"max_new_tokens", 1.5}},
                                              {{"max_new_tokens", "7"}},
                                              {{"max_new_tokens", 1ULL << 63}},
                                              {{"temperature", -1}},
                                              {{"temperature", "warm"}},
                                              {{"temperature", 1e-9}},
                                              {{"temperature", true}},
                                              {{"top_k", -2}},
                                              {{"top_p", 0}},
                                              {{"top_p", 1.01}},
                                              {{"min_p", -0.1}},
                                              {{"repetition_penalty", 0}},
                                              {{"seed", -1}},
                                              {{"seed", 1.0}},
                                              {{"stop", ""}},
                                              {{"stop", {1}}},
                                              {{"stop", {{"a", "b"}}}},
                                              {{"stop", std::vector<std::string>(65, "x")}},
                                              {{"ignore_eos", 1}},
                                              {{"n", 0}},
                                              {{"logprobs", true}},
                                              {{"logprobs", 101}},
                                              {{"num_beams", 0}},
                                              {{"height", 0}},
                                              {{"output_type", "mp4"}},
                                              {{"output_type", 1}},
                                              {{"guidance_scale", "x"}}})
    rejected(object);
  rejected(Json::array());
}

TEST(Generate, DoSampleMeansWhatTransformersMeans) {
  const auto settled = [](const Json& object) {
    auto options = parse_generate(object, "generate");
    settle_sampling(options, "generate");
    return std::pair(options.sampling.temperature, options.sampling.top_k);
  };
  using Pair = std::pair<double, std::int64_t>;
  EXPECT_EQ(settled(Json::object()), Pair(0, 0));
  EXPECT_EQ(settled({{"do_sample", false}}), Pair(0, 0));
  EXPECT_EQ(settled({{"do_sample", true}}), Pair(1, 50));
  EXPECT_EQ(settled({{"do_sample", true}, {"temperature", 0.5}, {"top_k", 0}}), Pair(0.5, 0));
  EXPECT_EQ(settled({{"temperature", 0.5}}), Pair(0.5, 0));
  for (const Json& object : std::vector<Json>{{{"do_sample", false}, {"temperature", 1}},
                                              {{"do_sample", true}, {"temperature", 0}}})
    EXPECT_NE(error_of(ExitCode::bad_data, [&] { settled(object); }).find("contradict"), std::string::npos);
}

TEST(Generate, WhatHasNoMeaningBesideBeamsIsNamed) {
  check_autoregressive(parse_generate({{"num_beams", 1}, {"height", 4}, {"logprobs", 2}}, "generate"),
                       "request");
  check_autoregressive(parse_generate({{"num_beams", 4}, {"n", 4}}, "generate"), "request");
  const auto rejected = [](Json object, const std::string& key) {
    object["num_beams"] = 4;
    const auto options = parse_generate(object, "generate");
    const auto message = error_of(ExitCode::bad_data, [&] { check_autoregressive(options, "request 'q'"); });
    EXPECT_NE(message.find("'" + key + "'"), std::string::npos) << message;
  };
  rejected({{"temperature", 0.5}}, "temperature");
  rejected({{"logprobs", 0}}, "logprobs");
  rejected({{"stop", "x"}}, "stop");
  rejected({{"n", 5}}, "n");
}

TEST(Generate, EarlyStoppingIsTrueFalseOrNever) {
  const auto parsed = [](const Json& value) {
    return parse_generate({{"early_stopping", value}, {"length_penalty", -0.5}}, "generate");
  };
  EXPECT_EQ(parsed(true).early_stopping, EarlyStopping::yes);
  EXPECT_EQ(parsed(false).early_stopping, EarlyStopping::no);
  EXPECT_EQ(parsed("never").early_stopping, EarlyStopping::never);
  EXPECT_EQ(parsed(nullptr).early_stopping, std::nullopt);
  EXPECT_EQ(parsed(true).length_penalty, -0.5);
  error_of(ExitCode::bad_data, [&] { parsed("always"); });
}

TEST(GenerationConfig, TakesIdsAndNothingElse) {
  const auto config = parse_generation_config(
      {{"eos_token_id", {7, 3, 7}}, {"bos_token_id", 1}, {"do_sample", true}, {"temperature", 0.7}},
      "config");
  EXPECT_EQ(config.eos_ids, (std::vector<std::int32_t>{3, 7}));
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_FALSE(config.pad_id);
  EXPECT_EQ(parse_generation_config({{"eos_token_id", 2}}, "config").eos_ids, (std::vector<std::int32_t>{2}));
  EXPECT_TRUE(parse_generation_config({{"eos_token_id", nullptr}}, "config").eos_ids.empty());
  for (const auto& object : std::vector<Json>{{{"eos_token_id", -1}},
                                              {{"eos_token_id", "x"}},
                                              {{"eos_token_id", {1, "x"}}},
                                              {{"bos_token_id", 1.5}},
                                              Json::array()})
    error_of(ExitCode::bad_data, [&] { parse_generation_config(object, "config"); });
}

TEST(GenerationConfig, TakesTheRulesOnTokens) {
  const auto config = parse_generation_config({{"suppress_tokens", {9, 4, -1}},
                                               {"begin_suppress_tokens", {7}},
                                               {"sequence_bias", {{{1, 2}, -1.5}, {{3}, 2}}},
                                               {"encoder_repetition_penalty", 1.5},
                                               {"encoder_no_repeat_ngram_size", 3},
                                               {"exponential_decay_length_penalty", {6, 1.25}}},
                                              "config");
  EXPECT_EQ(config.suppressed, (std::vector<std::int32_t>{4, 9}));
  EXPECT_EQ(config.not_first, (std::vector<std::int32_t>{7}));
  EXPECT_EQ(config.sequence_bias, (std::vector<TokenBias>{{{1, 2}, -1.5F}, {{3}, 2.0F}}));
  EXPECT_EQ(config.encoder_repetition_penalty, 1.5);
  EXPECT_EQ(config.encoder_no_repeat_ngram_size, 3);
  EXPECT_EQ(config.length_decay, (LengthDecay{6, 1.25}));
  for (const auto& object : std::vector<Json>{{{"suppress_tokens", 3}},
                                              {{"sequence_bias", {{"[1]", 2}}}},
                                              {{"sequence_bias", {{Json::array(), 2}}}},
                                              {{"sequence_bias", {{{1}, "x"}}}},
                                              {{"encoder_repetition_penalty", 0}},
                                              {{"exponential_decay_length_penalty", {6}}},
                                              {{"exponential_decay_length_penalty", {-1, 1.1}}}})
    error_of(ExitCode::bad_data, [&] { parse_generation_config(object, "config"); });
}

// As in transformers: config.json's rules hold only in a folder that has no other file for them.
TEST(GenerationConfig, OfTwoFilesTheOneForItHolds) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "generation_of_two_files";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const Json& object) {
    std::ofstream(folder / name) << object.dump();
  };
  write("config.json", {{"eos_token_id", 3},
                        {"bos_token_id", 4},
                        {"min_length", 9},
                        {"bad_words_ids", {{1}}},
                        {"force_bos_token_to_be_generated", true}});
  auto config = read_generation_config(folder);
  EXPECT_EQ(config.min_length, 9);
  EXPECT_EQ(config.bad_words.size(), 1U);
  EXPECT_EQ(config.forced_bos_id, 4);
  write("generation_config.json", {{"bos_token_id", 5}});
  config = read_generation_config(folder);
  EXPECT_EQ(config.eos_ids, (std::vector<std::int32_t>{3}));
  EXPECT_EQ(config.bos_id, 5);
  EXPECT_EQ(config.min_length, std::nullopt);
  EXPECT_TRUE(config.bad_words.empty());
  EXPECT_EQ(config.forced_bos_id, std::nullopt);
}

TEST(GenerationConfig, IsReadFromAFolder) {
  const auto qwen = read_generation_config(text_data("qwen"));
  EXPECT_FALSE(qwen.eos_ids.empty());
  EXPECT_TRUE(read_generation_config(text_data("nowhere")).eos_ids.empty());
}

}  // namespace
}  // namespace diffuse

// The delay pattern against transformers' masks, guidance and sampling.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "core/error.hpp"
#include "core/json.hpp"
#include "text/codebook_delay.hpp"
#include "text/codebook_request.hpp"
#include "text/codebook_sampling.hpp"

namespace diffuse {
namespace {

constexpr std::int32_t kPadding = 99;

TEST(CodebookDelay, HasTransformersPattern) {
  // build_delay_pattern_mask and what generate() keeps of it.
  const auto cases = read_json(std::string(DIFFUSE_TEST_DATA) + "/codebook-delays.json");
  for (const auto& each : cases) {
    const CodebookDelay delay(each.at("codebooks"), each.at("channels"), each.at("new_tokens"), kPadding);
    SCOPED_TRACE(each.dump());
    EXPECT_EQ(delay.frames(), each.at("frames"));
    for (std::int64_t book = 0; book < delay.codebooks(); ++book) {
      std::string row;
      for (std::int64_t position = 0; position <= delay.new_tokens(); ++position)
        row += delay.is_code(position, book) ? 'a' : 'P';
      EXPECT_EQ(row, each.at("grid").at(static_cast<std::size_t>(book)));
    }
  }
  EXPECT_GT(cases.size(), 40U);
}

TEST(CodebookDelay, IsUndone) {
  for (const std::int64_t channels : {1, 2}) {
    for (const std::int64_t tokens : {2, 5, 7, 20}) {
      const CodebookDelay delay(4, channels, tokens, kPadding);
      std::vector<std::int32_t> ids;
      std::vector<std::int32_t> masked;
      for (std::int32_t position = 1; position <= tokens; ++position) {
        std::vector<std::int32_t> row = {position, 100 + position, 200 + position, 300 + position};
        ids.insert(ids.end(), row.begin(), row.end());
        delay.mask(position, row);
        masked.insert(masked.end(), row.begin(), row.end());
      }
      const auto codes = delay.undo(ids);
      EXPECT_EQ(delay.undo(masked), codes) << "what is padding is no code";
      ASSERT_EQ(codes.size(), 4U);
      std::int64_t padding = 0;
      for (const auto id : masked) padding += id == kPadding ? 1 : 0;
      EXPECT_EQ(padding, 4 * (tokens - delay.frames()));
      for (std::size_t book = 0; book < 4; ++book) {
        ASSERT_EQ(static_cast<std::int64_t>(codes[book].size()), delay.frames());
        for (std::size_t frame = 1; frame < codes[book].size(); ++frame)
          EXPECT_EQ(codes[book][frame], codes[book][frame - 1] + 1);
      }
    }
  }
}

TEST(CodebookDelay, StartsWithPaddingAndCountsItsIds) {
  const CodebookDelay delay(3, 1, 9, kPadding);
  EXPECT_EQ(delay.start(), (std::vector<std::int32_t>{99, 99, 99}));
  EXPECT_THROW(delay.undo(std::vector<std::int32_t>(26)), Error);
}

TEST(Guidance, HasOneOrderOfOperations) {
  std::vector<float> logits = {1.5F, -2.25F, 1e8F, 0.1F};
  const std::vector<float> free = {0.5F, 4, 1, 0.3F};
  guide(logits, free, 3);
  const float last = 0.3F + (0.1F - 0.3F) * 3.0F;
  EXPECT_EQ(logits, (std::vector<float>{3.5F, -14.75F, 3e8F, last}));
  EXPECT_FALSE(is_guided(1));
  EXPECT_TRUE(is_guided(1.5));
  EXPECT_THROW(guide(logits, std::span(free).first(3), 2), Error);
}

TEST(SampleCodes, TakesTheBestOfEachCodebook) {
  SamplingScratch scratch;
  const std::vector<float> logits = {0, 2, 1, 5, 5, 1, -3, -2, -1};
  EXPECT_EQ(sample_codes(logits, 3, {}, {}, scratch), (std::vector<std::int32_t>{1, 0, 2}));
  EXPECT_THROW(sample_codes(std::span(logits).first(8), 3, {}, {}, scratch), Error);
}

TEST(SampleCodes, DrawsForEachCodebookByItself) {
  SamplingScratch scratch;
  std::vector<float> even(4 * 50);
  const SamplingParams params = {.temperature = 1, .top_k = 20};
  SampleKey key = {.seed = 7, .request = 3, .sample = 0, .position = 12};
  const auto ids = sample_codes(even, 4, params, key, scratch);
  EXPECT_EQ(sample_codes(even, 4, params, key, scratch), ids);
  for (const auto id : ids) EXPECT_LT(id, 20) << "equal logits: the lowest ids are kept";
  EXPECT_FALSE(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] == ids[3]);
  // What one codebook's logits are changes no other's id.
  even[3] = 100;
  auto other = sample_codes(even, 4, params, key, scratch);
  EXPECT_EQ(other[0], 3);
  other[0] = ids[0];
  EXPECT_EQ(other, ids);
  // The numbers of two positions are four each, and none twice.
  std::set<double> seen;
  for (std::uint32_t position = 0; position < 8; ++position)
    seen.insert(uniform_of({.seed = 7, .request = 3, .sample = 0, .position = position}));
  EXPECT_EQ(seen.size(), 8U);
  key.position = 13;
  EXPECT_NE(sample_codes(even, 4, params, key, scratch), other);
}

TEST(SampleCodes, FollowsTheirProbabilities) {
  SamplingScratch scratch;
  const std::vector<float> logits = {0, 1.0986123F, 0, 0};  // 1 : 3, and 1 : 1
  std::array<int, 2> second{};
  for (std::uint32_t position = 0; position < 4000; ++position) {
    const auto ids = sample_codes(logits, 2, {.temperature = 1},
                                  {.seed = 1, .request = 0, .sample = 0, .position = position}, scratch);
    for (std::size_t book = 0; book < 2; ++book) second[book] += ids[book];
  }
  EXPECT_NEAR(second[0], 3000, 120);
  EXPECT_NEAR(second[1], 2000, 130);
}

const CodebookShape kShape = {.codebooks = 4, .channels = 1, .codes = 64, .max_positions = 100};

TEST(CodebookRequest, TakesTheJobsOptionsOverTheCheckpoints) {
  GenerateOptions options;
  options.max_new_tokens = 30;
  GenerationConfig generation;
  const auto plain = codebook_request(options, generation, kShape);
  EXPECT_EQ(plain.delay.frames(), 27);
  EXPECT_EQ(plain.delay.start(), (std::vector<std::int32_t>(4, 64)));
  EXPECT_EQ(plain.rows(), 1);
  generation = parse_generation_config(
      {{"guidance_scale", 3.0}, {"bos_token_id", 64}, {"pad_token_id", 64}, {"decoder_start_token_id", 64}},
      "config");
  EXPECT_EQ(codebook_request(options, generation, kShape).guidance, 3);
  EXPECT_EQ(codebook_request(options, generation, kShape).rows(), 2);
  options.guidance_scale = 1;
  EXPECT_EQ(codebook_request(options, generation, kShape).rows(), 1);
  options.max_new_tokens = 256;
  EXPECT_EQ(codebook_request(options, generation, kShape).delay.new_tokens(), 100);
}

TEST(CodebookRequest, RefusesWhatCodesDoNotHave) {
  const auto message = [](const Json& generate, const GenerationConfig& generation) -> std::string {
    try {
      codebook_request(parse_generate(generate, "generate"), generation, kShape);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_data);
      return error.what();
    }
    return "nothing";
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message({{"temperature", 1}, {"top_k", 50}, {"n", 2}, {"ignore_eos", true}}, {}), "nothing");
  const std::vector<std::pair<const char*, Json>> asked = {{"stop", Json::array({"x"})},
                                                           {"repetition_penalty", 1.2},
                                                           {"logprobs", 0},
                                                           {"min_length", 2},
                                                           {"min_new_tokens", 2},
                                                           {"no_repeat_ngram_size", 2},
                                                           {"forced_bos_token_id", 2},
                                                           {"num_beams", 2},
                                                           {"length_penalty", 2},
                                                           {"early_stopping", true},
                                                           {"max_new_tokens", 0}};
  for (const auto& [key, value] : asked) {
    EXPECT_THAT(message({{key, value}}, {}), HasSubstr("'" + std::string(key) + "' is ")) << key;
  }
  GenerationConfig other;
  other.bos_id = 63;
  EXPECT_THAT(message({}, other), HasSubstr("started with the id 63, and the row behind its codes is 64"));
  other.decoder_start_id = 64;
  EXPECT_EQ(message({}, other), "nothing");
  other.pad_id = 0;
  EXPECT_THAT(message({}, other), HasSubstr("padded with the id 0"));
}

}  // namespace
}  // namespace diffuse

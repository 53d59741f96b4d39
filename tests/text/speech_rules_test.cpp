#include "text/speech_rules.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "tests/text/speech_support.hpp"
#include "text/speech_languages.hpp"
#include "text/speech_prompt.hpp"

namespace diffuse::test {
namespace {

using testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

Ids allowed(const std::vector<float>& logits) {
  Ids ids;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (!std::isinf(logits[i])) ids.push_back(static_cast<std::int32_t>(i));
  return ids;
}

TEST(SpeechRules, allow_what_transformers_allows) {
  const auto tokens = small_tokens();
  std::size_t seen = 0;
  for (const auto& one : speech_fixture()["rules"]) {
    SpeechRules rules;
    rules.suppress = tokens.suppress;
    if (const int limit = one["limit"]; limit >= 0) rules.max_initial_timestamp = limit;
    auto logits = list_of<float>(one["logits"]);
    const auto before = logits;
    apply_rules(logits, Ids{21, 22, 25}, list_of<std::int32_t>(one["chosen"]), tokens, rules);
    EXPECT_EQ(allowed(logits), list_of<std::int32_t>(one["allowed"])) << one["chosen"].dump();
    for (const auto id : allowed(logits)) {
      const auto at = static_cast<std::size_t>(id);
      EXPECT_EQ(logits[at], before[at]);
    }
    ++seen;
  }
  EXPECT_EQ(seen, 80U);
}

TEST(SpeechRules, without_timestamps_only_the_lists_count) {
  SpeechRules rules;
  rules.timestamps = false;
  rules.suppress = {1};
  std::vector<float> logits(40, 0.5F);
  apply_rules(logits, Ids{21}, {}, small_tokens(), rules);
  EXPECT_EQ(allowed(logits).size(), 40U - 3U);  // 1, and the first tokens 15 and 20
  std::vector<float> later(40, 0.5F);
  apply_rules(later, Ids{21}, Ids{5}, small_tokens(), rules);
  EXPECT_EQ(allowed(later).size(), 39U);
  rules.suppress_first = false;
  std::vector<float> blank(40, 0.5F);
  apply_rules(blank, Ids{21}, {}, small_tokens(), rules);
  EXPECT_EQ(allowed(blank).size(), 39U);
}

TEST(SpeechRules, runs_do_not_come_twice) {
  SpeechRules rules;
  rules.timestamps = false;
  rules.no_repeat_ngram = 3;
  const auto after = [&](const Ids& prompt, const Ids& chosen) {
    std::vector<float> logits(20, 1.0F);
    apply_rules(logits, prompt, chosen, small_tokens(), rules);
    Ids gone;
    for (std::size_t i = 0; i < logits.size(); ++i)
      if (std::isinf(logits[i])) gone.push_back(static_cast<std::int32_t>(i));
    return gone;
  };
  EXPECT_THAT(after({}, {1, 2, 3, 1, 2}), ElementsAre(3));
  EXPECT_THAT(after({}, {1, 2, 3, 1, 2, 5, 1, 2}), ElementsAre(3, 5));
  EXPECT_THAT(after({1, 2}, {7, 1, 2}), ElementsAre(7));  // the prompt counts
  EXPECT_THAT(after({}, {1, 2, 3, 2, 1}), ElementsAre());
  EXPECT_THAT(after({}, {1}), ElementsAre());
}

TEST(SpeechRules, repetition_costs) {
  SpeechRules rules;
  rules.timestamps = false;
  rules.repetition_penalty = 2;
  std::vector<float> logits = {1, -1, 1, -1};
  apply_rules(logits, Ids{0, 0}, Ids{1}, small_tokens(), rules);
  EXPECT_THAT(logits, ElementsAre(0.5F, -2.0F, 1.0F, -1.0F));
}

TEST(SpeechRules, language_and_silence_are_those_of_softmax) {
  const auto& one = speech_fixture()["language"];
  const auto logits = list_of<float>(one["logits"]);
  const auto guess = detect_language(logits, small_tokens());
  EXPECT_EQ(guess.id, one["id"].get<std::int32_t>());
  ASSERT_EQ(guess.all.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(guess.all[i], one["all"][i].get<double>(), 1e-6);
  EXPECT_EQ(guess.probability, std::max(guess.all[0], guess.all[1]));
  EXPECT_NEAR(token_probability(logits, 28), one["no_speech"].get<double>(), 1e-8);
  EXPECT_THROW(detect_language(logits, SpeechTokens{}), Error);
  EXPECT_THROW(token_probability(logits, 60), Error);
}

TEST(SpeechLanguages, have_codes_names_and_tokens) {
  EXPECT_EQ(language_code("de"), "de");
  EXPECT_EQ(language_code("German"), "de");
  EXPECT_EQ(language_code("<|haw|>"), "haw");
  EXPECT_EQ(language_code("CASTILIAN"), "es");
  EXPECT_EQ(language_code("haitian creole"), "ht");
  EXPECT_EQ(language_code("klingon"), "");
  EXPECT_EQ(language_code(""), "");
  EXPECT_TRUE(is_spaceless("ja"));
  EXPECT_FALSE(is_spaceless("de"));
}

TEST(SpeechPrompt, has_its_parts_in_order) {
  const auto tokens = small_tokens();
  const Ids previous = {1, 2, 3};
  const Ids hotwords = {7, 8};
  const Ids prefix = {9};
  PromptParts parts;
  parts.language = 23;
  EXPECT_THAT(window_prompt(tokens, parts, 448).tokens, ElementsAre(21, 23, 25));
  parts.timestamps = false;
  parts.task = SpeechTask::translate;
  EXPECT_THAT(window_prompt(tokens, parts, 448).tokens, ElementsAre(21, 23, 24, 29));
  parts.previous = previous;
  const auto prompt = window_prompt(tokens, parts, 448);
  EXPECT_THAT(prompt.tokens, ElementsAre(27, 1, 2, 3, 21, 23, 24, 29));
  EXPECT_EQ(prompt.start, 4U);
  parts.hotwords = hotwords;
  EXPECT_THAT(window_prompt(tokens, parts, 448).tokens, ElementsAre(27, 7, 8, 1, 2, 3, 21, 23, 24, 29));
  parts.prefix = prefix;
  EXPECT_THAT(window_prompt(tokens, parts, 448).tokens, ElementsAre(27, 1, 2, 3, 21, 23, 24, 29, 9));
  parts.timestamps = true;
  EXPECT_THAT(window_prompt(tokens, parts, 448).tokens, ElementsAre(27, 1, 2, 3, 21, 23, 24, 30, 9));
}

TEST(SpeechPrompt, fits_the_context) {
  const auto tokens = small_tokens();
  Ids many(500, 1);
  many.back() = 2;
  PromptParts parts;
  parts.language = 22;
  parts.previous = many;
  auto prompt = window_prompt(tokens, parts, 448);
  EXPECT_EQ(prompt.start, 224U);  // <|startofprev|> and the last 223
  EXPECT_EQ(prompt.tokens[223], 2);
  const Ids hotwords(100, 7);
  parts.hotwords = hotwords;
  prompt = window_prompt(tokens, parts, 448);
  EXPECT_EQ(prompt.start, 224U);
  EXPECT_EQ(prompt.tokens[100], 7);
  EXPECT_EQ(prompt.tokens[101], 1);
  parts.prefix = many;
  EXPECT_EQ(window_prompt(tokens, parts, 448).tokens.size(), 447U);
  parts.previous = {};
  EXPECT_EQ(window_prompt(tokens, parts, 448).tokens.size(), 4U + 223U);
}

TEST(SpeechPrompt, of_one_language_has_no_language) {
  auto tokens = small_tokens();
  tokens.languages.clear();
  EXPECT_THAT(window_prompt(tokens, {}, 448).tokens, ElementsAre(21));
}

Json real_config() {
  return {{"decoder_start_token_id", 50258},
          {"eos_token_id", 50257},
          {"no_timestamps_token_id", 50363},
          {"prev_sot_token_id", 50361},
          {"is_multilingual", true},
          {"lang_to_id", {{"<|en|>", 50259}, {"<|zh|>", 50260}}},
          {"task_to_id", {{"transcribe", 50359}, {"translate", 50358}}},
          {"suppress_tokens", {2, 1, -1}},
          {"begin_suppress_tokens", {220, 50257}},
          {"alignment_heads", {{3, 1}, {4, 2}}},
          {"max_initial_timestamp_index", 50}};
}

TEST(SpeechTokens, are_read_from_the_generation_config) {
  const auto tokens = parse_speech_tokens(real_config(), 51865, "x");
  EXPECT_EQ(tokens.start, 50258);
  EXPECT_EQ(tokens.end, 50257);
  EXPECT_EQ(tokens.first_timestamp, 50364);
  EXPECT_EQ(tokens.no_speech, 50362);
  EXPECT_EQ(tokens.previous, 50361);
  EXPECT_EQ(tokens.language_id("zh"), 50260);
  EXPECT_EQ(tokens.language_id("xx"), std::nullopt);
  EXPECT_EQ(tokens.language_of(50259), "en");
  EXPECT_THAT(tokens.suppress, ElementsAre(1, 2));
  EXPECT_THAT(tokens.alignment_heads, ElementsAre(AlignmentHead{3, 1}, AlignmentHead{4, 2}));
  EXPECT_EQ(tokens.max_initial_timestamp, 50);
  auto english = real_config();
  english["is_multilingual"] = false;
  EXPECT_FALSE(parse_speech_tokens(english, 51865, "x").multilingual());
}

TEST(SpeechTokens, what_is_none_is_named) {
  const auto problem = [](const char* key, const Json& value) -> std::string {
    auto config = real_config();
    if (value.is_discarded()) {
      config.erase(key);
    } else {
      config[key] = value;
    }
    try {
      parse_speech_tokens(config, 51865, "the file");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const Json none(Json::value_t::discarded);
  EXPECT_THAT(problem("no_timestamps_token_id", none), testing::HasSubstr("is missing"));
  EXPECT_THAT(problem("eos_token_id", 51865), testing::HasSubstr("no token id below 51865"));
  EXPECT_THAT(problem("suppress_tokens", 5), testing::HasSubstr("not a list"));
  EXPECT_THAT(problem("suppress_tokens", {"x"}), testing::HasSubstr("the file: `suppress_tokens`"));
  EXPECT_THAT(problem("alignment_heads", {{1, 2, 3}}), testing::HasSubstr("[layer, head]"));
  EXPECT_THAT(problem("alignment_heads", {{1, -2}}), testing::HasSubstr("[layer, head]"));
  EXPECT_THAT(problem("task_to_id", none), testing::HasSubstr("transcribe and translate"));
  EXPECT_THAT(problem("lang_to_id", 3), testing::HasSubstr("not an object"));
}

}  // namespace
}  // namespace diffuse::test

// What the fixtures' tokenizers do not have: other models of the same kind, added tokens, configs, hostile
// files.

#include "text/tokenizer.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <thread>

#include "support.hpp"
#include "text/bpe.hpp"

namespace diffuse {
namespace {

using Ids = std::vector<std::int32_t>;

// A small vocabulary of letters and a few merges.
Json letters() {
  Json model = {{"type", "BPE"}, {"merges", Json::array({"a b", "ab c", "b c"})}};
  int id = 0;
  for (const auto* piece : {"a", "b", "c", "d", " ", "ab", "abc", "bc", "<unk>"})
    model["vocab"][piece] = id++;
  return {{"model", model}, {"added_tokens", Json::array()}, {"decoder", {{"type", "Fuse"}}}};
}

Json added(int id, const std::string& content, const Json& flags = Json::object()) {
  Json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", false}};
  token.update(flags);
  return token;
}

Tokenizer build(const Json& json, const Json& config = Json()) {
  return Tokenizer::from_json(json, config, "test");
}

TEST(Bpe, JoinsTheFirstLearnedPairFirst) {
  const auto tokenizer = build(letters());
  EXPECT_EQ(tokenizer.encode("abc", false), (Ids{6}));
  EXPECT_EQ(tokenizer.encode("bcab", false), (Ids{7, 5}));
  EXPECT_EQ(tokenizer.encode("", false), (Ids{}));
}

TEST(Bpe, ReadsMergesAsPairs) {
  auto json = letters();
  json["model"]["merges"] = Json::array({Json::array({"a", "b"}), Json::array({"ab", "c"})});
  EXPECT_EQ(build(json).encode("abc", false), (Ids{6}));
}

TEST(Bpe, LeavesUnknownLettersOutOrMarksThem) {
  auto json = letters();
  EXPECT_EQ(build(json).encode("axb", false), (Ids{5}));
  json["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(build(json).encode("axyb", false), (Ids{0, 8, 8, 1}));
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(build(json).encode("axyb", false), (Ids{0, 8, 1}));
}

TEST(Bpe, FallsBackToBytes) {
  auto json = letters();
  json["model"]["byte_fallback"] = true;
  json["model"]["vocab"]["<0xC3>"] = 20;
  json["model"]["vocab"]["<0xA9>"] = 21;
  EXPECT_EQ(build(json).encode("a\xC3\xA9", false), (Ids{0, 20, 21}));
  EXPECT_EQ(build(json).encode("a\xC3\xA8", false), (Ids{0}));  // not all of its bytes are there
}

TEST(Bpe, TakesWholeWordsWhereMergesAreIgnored) {
  auto json = letters();
  json["model"]["merges"] = Json::array();
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(build(json).encode("abc", false), (Ids{6}));
  EXPECT_EQ(build(json).encode("abcd", false), (Ids{0, 1, 2, 3}));
}

TEST(Bpe, DoesNotSlowDownOnALongWord) {
  const auto tokenizer = Tokenizer::load(text_data("smollm2"));
  const auto time = [&](std::size_t count) {
    std::string word;
    for (std::size_t i = 0; i < count; ++i) word += static_cast<char>('a' + (i * i + i / 7) % 26);
    const auto begin = std::clock();  // of the processor: other work on the machine must not fail this
    EXPECT_GT(tokenizer.encode(word, false).size(), count / 10);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  time(1000);
  // Ten times the letters of a quadratic method take a hundred times as long.
  EXPECT_LT(time(1'000'000), 40 * time(100'000) + 0.05);
}

TEST(Bpe, MayBeSharedByThreads) {
  const auto tokenizer = Tokenizer::load(text_data("demo"));
  const auto wanted = tokenizer.encode("Tell me a story about a dragon.", false);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        tokenizer.encode("word" + std::to_string(t * 1000 + i), false);
        EXPECT_EQ(tokenizer.encode("Tell me a story about a dragon.", false), wanted);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(AddedTokens, AreFoundBeforeTheModelCuts) {
  auto json = letters();
  json["added_tokens"] =
      Json::array({added(9, "bc"), added(10, "bcd"), added(11, "[X]", {{"special", true}})});
  json["model"]["vocab"].erase("bc");
  json["model"]["merges"] = Json::array({"a b"});
  const auto tokenizer = build(json);
  EXPECT_EQ(tokenizer.encode("abcd", false), (Ids{0, 10}));  // the longest at the leftmost place
  EXPECT_EQ(tokenizer.encode("abca", false), (Ids{0, 9, 0}));
  EXPECT_EQ(tokenizer.decode(Ids{0, 11, 1}, true), "ab");
  EXPECT_EQ(tokenizer.decode(Ids{0, 11, 1}, false), "a[X]b");
  EXPECT_TRUE(tokenizer.is_special(11));
  EXPECT_FALSE(tokenizer.is_special(9));
  EXPECT_EQ(tokenizer.vocab_size(), 12);
}

TEST(AddedTokens, StripAndStandAlone) {
  auto json = letters();
  json["added_tokens"] =
      Json::array({added(9, "[L]", {{"lstrip", true}}), added(10, "[R]", {{"rstrip", true}}),
                   added(11, "d", {{"single_word", true}})});
  json["model"]["vocab"].erase("d");
  json["model"]["vocab"]["e"] = 3;
  const auto tokenizer = build(json);
  EXPECT_EQ(tokenizer.encode("a  [L] b", false), (Ids{0, 9, 4, 1}));
  EXPECT_EQ(tokenizer.encode("a [R]  b", false), (Ids{0, 4, 10, 1}));
  EXPECT_EQ(tokenizer.encode("a d", false), (Ids{0, 4, 11}));
  EXPECT_EQ(tokenizer.encode("ada", false), (Ids{0, 0}));
}

TEST(AddedTokens, AreFoundInNormalizedTextWhereTheySayso) {
  auto json = letters();
  json["normalizer"] = {{"type", "Lowercase"}};
  json["added_tokens"] = Json::array({added(9, "XY", {{"normalized", true}}), added(10, "ZZ")});
  const auto tokenizer = build(json);
  EXPECT_EQ(tokenizer.encode("axYb", false), (Ids{0, 9, 1}));
  EXPECT_EQ(tokenizer.encode("aZZ", false), (Ids{0, 10}));
  EXPECT_EQ(tokenizer.encode("azz", false), (Ids{0}));
}

TEST(Config, NamesSpecialTokens) {
  auto json = letters();
  const Json config = {
      {"bos_token", "<s>"},
      {"eos_token", {{"content", "d"}}},
      {"pad_token", nullptr},
      {"add_bos_token", true},
      {"extra_special_tokens", Json::array({"<x>"})},
      {"added_tokens_decoder", {{"9", added(9, "<s>", {{"special", true}})}, {"10", added(10, "<x>")}}}};
  const auto tokenizer = build(json, config);
  EXPECT_EQ(tokenizer.bos_id(), 9);
  EXPECT_EQ(tokenizer.eos_id(), 3);
  EXPECT_FALSE(tokenizer.pad_id());
  EXPECT_TRUE(tokenizer.is_special(3));
  EXPECT_TRUE(tokenizer.is_special(10));
  EXPECT_EQ(tokenizer.encode("a", true), (Ids{9, 0}));
  EXPECT_EQ(tokenizer.encode("a", false), (Ids{0}));
  EXPECT_EQ(tokenizer.special_tokens(),
            (std::vector<std::pair<std::string, std::string>>{{"bos_token", "<s>"}, {"eos_token", "d"}}));
  EXPECT_EQ(tokenizer.id_of("<x>"), 10);
  EXPECT_EQ(tokenizer.token_of(9), "<s>");
  EXPECT_FALSE(tokenizer.token_of(99));
  EXPECT_FALSE(tokenizer.token_of(-1));
}

TEST(Decode, GivesNoTextForIdsWithoutAToken) {
  const auto tokenizer = build(letters());
  EXPECT_EQ(tokenizer.decode(Ids{0, 500, -3, 1}, false), "ab");
}

TEST(Hostile, FilesAreOneLineErrors) {
  const auto fails = [](ExitCode code, const std::function<void(Json&)>& change,
                        const Json& config = Json()) {
    auto json = letters();
    change(json);
    return error_of(code, [&] { build(json, config); });
  };
  const auto bad = ExitCode::bad_data;
  fails(bad, [](Json& j) { j = Json::array(); });
  fails(bad, [](Json& j) { j.erase("model"); });
  fails(bad, [](Json& j) { j["model"].erase("vocab"); });
  fails(bad, [](Json& j) { j["model"].erase("merges"); });
  fails(bad, [](Json& j) { j["model"]["vocab"]["a"] = -1; });
  fails(bad, [](Json& j) { j["model"]["vocab"]["a"] = 1.5; });
  fails(bad, [](Json& j) { j["model"]["vocab"]["a"] = "0"; });
  fails(bad, [](Json& j) { j["model"]["vocab"]["a"] = 1ULL << 40; });
  EXPECT_NE(fails(bad, [](Json& j) { j["model"]["vocab"]["a"] = 1; }).find("twice"), std::string::npos);
  EXPECT_NE(fails(bad, [](Json& j) { j["model"]["merges"] = Json::array({"a q"}); }).find("'q'"),
            std::string::npos);
  fails(bad, [](Json& j) { j["model"]["merges"] = Json::array({"d d"}); });
  fails(bad, [](Json& j) { j["model"]["merges"] = Json::array({"a b c"}); });
  fails(bad, [](Json& j) { j["model"]["merges"] = Json::array({7}); });
  fails(bad, [](Json& j) { j["model"]["unk_token"] = "nope"; });
  fails(bad, [](Json& j) { j["model"]["fuse_unk"] = "yes"; });
  fails(bad, [](Json& j) { j["added_tokens"] = 3; });
  fails(bad, [](Json& j) { j["added_tokens"] = Json::array({3}); });
  fails(bad, [](Json& j) { j["added_tokens"] = Json::array({added(0, "new\nline")}); });
  fails(bad, [](Json& j) { j["added_tokens"] = Json::array({added(3, "a")}); });
  fails(bad, [](Json& j) {
    j["added_tokens"] = Json::array({added(9, "x")});
    j["added_tokens"][0]["id"] = -9;
  });
  fails(bad, [](Json& j) {
    j["added_tokens"] =
        Json::array({added(9, "AB", {{"normalized", true}}), added(10, "ab", {{"normalized", true}})});
    j["normalizer"] = {{"type", "Lowercase"}};
    j["model"]["vocab"].erase("ab");
    j["model"]["merges"] = Json::array();
  });
  fails(
      bad, [](Json&) {}, Json::array());
  fails(bad, [](Json&) {}, {{"bos_token", 7}});
  fails(bad, [](Json&) {}, {{"added_tokens_decoder", {{"x", added(9, "q")}}}});
  fails(bad, [](Json&) {}, {{"added_tokens_decoder", {{"99999999999999999999", added(9, "q")}}}});
  fails(bad, [](Json&) {}, {{"added_tokens_decoder", {{"0", added(0, "q")}}}});
  fails(bad, [](Json& j) {
    j["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"a", 77}}, {"sep", {"a", 0}}};
  });
  const auto refused = ExitCode::refused;
  EXPECT_NE(fails(refused, [](Json& j) { j["model"]["type"] = "WordLevel"; }).find("WordLevel"),
            std::string::npos);
  fails(refused, [](Json& j) { j["model"]["dropout"] = 0.1; });
  fails(refused, [](Json& j) { j["added_tokens"] = Json::array({added(9, std::string(5000, 'x'))}); });
}

TEST(Hostile, MissingFilesAreNamed) {
  const auto message = error_of(ExitCode::missing_input, [] { Tokenizer::load(text_data("nowhere")); });
  EXPECT_NE(message.find("nowhere"), std::string::npos);
  EXPECT_FALSE(Tokenizer::present(text_data("nowhere")));
  EXPECT_TRUE(Tokenizer::present(text_data("demo")));
}

}  // namespace
}  // namespace diffuse

// Normalizers, pre-tokenizers and post-processors, each against what the original says.

#include <gtest/gtest.h>

#include "support.hpp"
#include "text/normalizer.hpp"
#include "text/post_processor.hpp"
#include "text/pre_tokenizer.hpp"

namespace diffuse {
namespace {

std::string normalized(const Json& element, const std::string& text) {
  return Normalizer::from_json(element, "normalizer").apply(text);
}

std::string words(const Json& element, const std::string& text, bool at_start = true) {
  std::string out;
  for (const auto& word : PreTokenizer::from_json(element, "pre_tokenizer").apply({text, at_start}))
    out += "[" + word.text + "]";
  return out;
}

Json split(const std::string& pattern, const std::string& behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", invert}};
}

TEST(Normalizer, AppliesEachKind) {
  EXPECT_EQ(normalized(Json(), "aB"), "aB");
  EXPECT_EQ(normalized({{"type", "NFC"}}, "e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(normalized({{"type", "NFD"}}, "\xC3\xA9"), "e\xCC\x81");
  EXPECT_EQ(normalized({{"type", "NFKC"}}, "\xEF\xAC\x81"), "fi");
  EXPECT_EQ(normalized({{"type", "NFKD"}}, "\xC2\xBD"),
            "1\xE2\x81\x84"
            "2");
  // Of Unicode 14: the original's tables are older.
  EXPECT_EQ(normalized({{"type", "NFKC"}}, "\U000107A5\uFB01"), "\U000107A5fi");
  EXPECT_EQ(normalized({{"type", "NFC"}}, "a\u08CB\u0323"), "a\u08CB\u0323");
  EXPECT_EQ(normalized({{"type", "Lowercase"}}, "A\xC4\xB0\xCE\xA3"), "ai\xCC\x87\xCF\x83");
  EXPECT_EQ(normalized({{"type", "StripAccents"}}, "e\xCC\x81"), "e");
  EXPECT_EQ(normalized({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, " a "), "a ");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, "a"), "_a");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, ""), "");
  EXPECT_EQ(normalized({{"type", "Replace"}, {"pattern", {{"String", "."}}}, {"content", "-"}}, "a.b"),
            "a-b");
  EXPECT_EQ(normalized({{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}}, "a \n b"),
            "a b");
  const Json both = {{"type", "Sequence"},
                     {"normalizers", {{{"type", "Lowercase"}}, {{"type", "Prepend"}, {"prepend", "X"}}}}};
  EXPECT_EQ(normalized(both, "A"), "Xa");
}

TEST(PreTokenizer, SplitsByEachBehavior) {
  EXPECT_EQ(words(split("-", "Removed"), "a--b-c"), "[a][b][c]");
  EXPECT_EQ(words(split("-", "Isolated"), "a--b-c"), "[a][-][-][b][-][c]");
  EXPECT_EQ(words(split("-", "MergedWithPrevious"), "a--b-c"), "[a-][-][b-][c]");
  EXPECT_EQ(words(split("-", "MergedWithNext"), "a--b-c"), "[a][-][-b][-c]");
  EXPECT_EQ(words(split("-", "Contiguous"), "a--b-c"), "[a][--][b][-][c]");
  EXPECT_EQ(words(split("[a-z]+", "Removed", true), "a--b"), "[a][b]");
}

TEST(PreTokenizer, AppliesEachKind) {
  EXPECT_EQ(words(Json(), "a b"), "[a b]");
  EXPECT_EQ(words({{"type", "ByteLevel"}, {"add_prefix_space", true}}, "it's  \xC3\xA9"),
            "[\xC4\xA0it]['s][\xC4\xA0][\xC4\xA0\xC3\x83\xC2\xA9]");
  EXPECT_EQ(words({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}, "a b"),
            "[a\xC4\xA0"
            "b]");
  EXPECT_EQ(words({{"type", "Digits"}, {"individual_digits", true}}, "a12"), "[a][1][2]");
  EXPECT_EQ(words({{"type", "Digits"}, {"individual_digits", false}}, "a12b"), "[a][12][b]");
  EXPECT_EQ(words({{"type", "Whitespace"}}, " ab, c!? "), "[ab][,][c][!?]");
  EXPECT_EQ(words({{"type", "WhitespaceSplit"}}, " ab, c "), "[ab,][c]");
  EXPECT_EQ(words({{"type", "Punctuation"}}, "a.b"), "[a][.][b]");
  EXPECT_EQ(words({{"type", "Delimiter"}, {"delimiter", "x"}}, "axb"), "[a][b]");
  EXPECT_EQ(words({{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "always"}}, "a b", false),
            "[_a][_b]");
  EXPECT_EQ(words({{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}}, "a b", false),
            "[a][_b]");
  EXPECT_EQ(
      words({{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "never"}, {"split", false}},
            "a b"),
      "[a_b]");
}

TEST(PostProcessor, PutsTokensAroundTheText) {
  const Json bos = {{"type", "TemplateProcessing"},
                    {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                    {"special_tokens", {{"<s>", {{"ids", {7}}}}}}};
  const auto made = PostProcessor::from_json(
      {{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, bos}}}, "post");
  EXPECT_EQ(made.before, std::vector<std::int32_t>{7});
  EXPECT_TRUE(made.behind.empty());
  const auto roberta =
      PostProcessor::from_json({{"type", "RobertaProcessing"}, {"cls", {"a", 1}}, {"sep", {"b", 2}}}, "post");
  EXPECT_EQ(roberta.before, std::vector<std::int32_t>{1});
  EXPECT_EQ(roberta.behind, std::vector<std::int32_t>{2});
}

TEST(Elements, OfUnknownTypesAreRefusedByName) {
  const Json strange = {{"type", "Strange"}};
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { Normalizer::from_json(strange, "x"); }, [&] { PreTokenizer::from_json(strange, "x"); },
           [&] { PostProcessor::from_json(strange, "x"); }}) {
    EXPECT_NE(error_of(ExitCode::refused, call).find("Strange"), std::string::npos);
  }
}

TEST(Elements, OfWrongShapesAreOneLineErrors) {
  for (const auto& call : std::vector<std::function<void()>>{
           [] { Normalizer::from_json(7, "x"); },
           [] {
             Normalizer::from_json({{"type", 7}}, "x");
           },
           [] {
             Normalizer::from_json({{"type", "Sequence"}, {"normalizers", 1}}, "x");
           },
           [] {
             Normalizer::from_json({{"type", "Replace"}, {"pattern", "a"}, {"content", "b"}}, "x");
           },
           [] {
             PreTokenizer::from_json({{"type", "Metaspace"}, {"replacement", "ab"}}, "x");
           },
           [] {
             PreTokenizer::from_json({{"type", "ByteLevel"}, {"add_prefix_space", "yes"}}, "x");
           },
           [] {
             PostProcessor::from_json({{"type", "RobertaProcessing"}, {"cls", {"a", -1}}, {"sep", {"b", 2}}},
                                      "x");
           },
           [] {
             PostProcessor::from_json(
                 {{"type", "TemplateProcessing"}, {"single", {{{"SpecialToken", {{"id", "q"}}}}}}}, "x");
           }})
    error_of(ExitCode::bad_data, call);
}

}  // namespace
}  // namespace diffuse

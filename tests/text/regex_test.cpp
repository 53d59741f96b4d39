#include "text/regex.hpp"

#include <gtest/gtest.h>

#include "support.hpp"

namespace diffuse {
namespace {

std::string found(const std::string& pattern, const std::string& text) {
  std::string out;
  for (const auto& span : Regex(pattern, "test").matches(text))
    out += "[" + text.substr(span.begin, span.end - span.begin) + "]";
  return out;
}

TEST(Regex, ReadsPatternsAsOnigurumaDoes) {
  EXPECT_EQ(found(R"(\s)",
                  "a\xE1\xA0\x8E\xC2\xA0"
                  "b"),
            "[\xC2\xA0]");                                                        // U+180E is no space
  EXPECT_EQ(found(R"(\w+)", "a\xCC\x81_\xC2\xB2-1"), "[a\xCC\x81_\xC2\xB2][1]");  // marks are word characters
  EXPECT_EQ(found(R"(\h+)", "xyz0fg"), "[0f]");
  EXPECT_EQ(found(R"(^b)", "a\nb"), "[b]");
  EXPECT_EQ(found(R"(a{,2})", "aaa"), "[aa][a]");
  EXPECT_EQ(found(R"((?i:'s))", "'S'\xC5\xBF"), "['S]['\xC5\xBF]");
  EXPECT_EQ(found(R"(\u0041)", "A"), "[A]");
  EXPECT_EQ(found(R"(\p{Han}+)",
                  "\xE6\xBC\xA2\xE3\x80\x81"
                  "a"),
            "[\xE6\xBC\xA2]");  // not what Han texts use as well
  EXPECT_EQ(found(R"(x*)", "axb"), "[][x][]");
}

TEST(Regex, RefusesWhatTheTwoReadDifferently) {
  for (const auto* pattern : {R"([a&&b])", R"([[a]b])", R"(a{2}+)", R"(\R\K)", R"(a(?i)b)", R"((?<=a+)b)",
                              R"([\W])", R"(\p{NoSuch})", R"((*FAIL))", R"([a)", R"(a\)"}) {
    const auto message = error_of(ExitCode::refused, [&] { Regex(pattern, "test"); });
    EXPECT_NE(message.find(pattern), std::string::npos) << message;
  }
}

TEST(Regex, GivesUpInsteadOfRunningForever) {
  const auto message = error_of(ExitCode::refused, [] { found(R"((a+a+)+[bc])", std::string(5000, 'a')); });
  EXPECT_NE(message.find("gives up"), std::string::npos) << message;
}

TEST(Regex, StretchesCoverTheText) {
  const std::string text = "a1b22";
  std::string out;
  for (const auto& stretch : stretches(text, Regex(R"(\d+)", "test").matches(text)))
    out += (stretch.matched ? "+" : "-") +
           text.substr(stretch.span.begin, stretch.span.end - stretch.span.begin);
  EXPECT_EQ(out, "-a+1-b+22");
}

}  // namespace
}  // namespace diffuse

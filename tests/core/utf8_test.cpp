#include "core/utf8.hpp"

#include <gtest/gtest.h>

namespace diffuse {
namespace {

constexpr const char* kBroken = "\xEF\xBF\xBD";

TEST(Utf8, RepairsTheLongestPrefixOfACharacterAsOne) {
  EXPECT_EQ(repair_utf8("a\xE2\x82z"), std::string("a") + kBroken + "z");
  EXPECT_EQ(repair_utf8("\xF0\x9F\x98"), kBroken);
  EXPECT_EQ(repair_utf8("\xE2\x82\xE2\x82\xAC"), std::string(kBroken) + "\xE2\x82\xAC");
}

TEST(Utf8, RepairsEachByteOfWhatCannotBegin) {
  EXPECT_EQ(repair_utf8("\xC0\x80"), std::string(kBroken) + kBroken);
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"), std::string(kBroken) + kBroken + kBroken);  // a surrogate
  EXPECT_EQ(repair_utf8("\xF4\x90\x80\x80"), std::string(kBroken) + kBroken + kBroken + kBroken);
}

TEST(Utf8, LeavesValidTextAlone) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xEF\xBF\xBD";
  EXPECT_TRUE(is_valid_utf8(text));
  EXPECT_EQ(repair_utf8(text), text);
  EXPECT_EQ(count_utf8(text), 5U);
}

TEST(Utf8, StreamNeverCutsACharacter) {
  const std::string text = "x\xF0\x9F\x98\x80y";
  Utf8Stream stream;
  EXPECT_EQ(stream.push(text.substr(0, 3)), "x");
  EXPECT_EQ(stream.push(text.substr(3, 1)), "");
  EXPECT_EQ(stream.push(text.substr(4)), "\xF0\x9F\x98\x80y");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8, StreamRepairsWhatNeverCame) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.finish(), kBroken);
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8, StreamIsRepairWhereverItIsCut) {
  const std::string bytes =
      "\xE2\x82\xF0\x9F\x98\x80\x80\xC3\xA9\xF0\x9F\xED\xA0\x80\xE2\x82\xAC\xF4\x90\xE2";
  const auto whole = repair_utf8(bytes);
  for (std::size_t first = 0; first <= bytes.size(); ++first) {
    for (std::size_t second = first; second <= bytes.size(); ++second) {
      Utf8Stream stream;
      auto text = stream.push(bytes.substr(0, first));
      text += stream.push(bytes.substr(first, second - first));
      text += stream.push(bytes.substr(second));
      EXPECT_EQ(text + stream.finish(), whole) << first << ' ' << second;
    }
  }
}

// Right-hand sides: Python's bytes.decode('utf-8', 'replace'); R is U+FFFD.
TEST(Utf8, RepairIsPythonsReplace) {
  const std::string r = "\xEF\xBF\xBD";
  const auto expect = [](std::string_view bytes, const std::string& text) {
    EXPECT_EQ(repair_utf8(bytes), text);
  };
  expect("", "");
  expect("plain \xC3\xA9 \xE2\x82\xAC \xF0\x9F\xA6\x89", "plain \xC3\xA9 \xE2\x82\xAC \xF0\x9F\xA6\x89");
  expect("a\xFFz", "a" + r + "z");
  expect("\x80\x80", r + r);
  expect("\xC0\xAF", r + r);  // overlong
  expect("\xC3", r);          // cut at the end
  expect("\xC3(", r + "(");
  expect("\xE2\x82", r);
  expect("\xE2\x82z", r + "z");
  expect("\xE2(\xA1", r + "(" + r);
  expect("\xE0\x80\x80", r + r + r);  // overlong
  expect("\xED\xA0\x80", r + r + r);  // a surrogate
  expect("\xF0\x9F\xA6", r);
  expect("\xF0\x9F\xA6\xC3\xA9", r + "\xC3\xA9");
  expect("\xF0\x80\x80\x80", r + r + r + r);
  expect("\xF4\x90\x80\x80", r + r + r + r);  // beyond U+10FFFF
  expect("\xF5\x80", r + r);
  expect(std::string_view("a\0b", 3), std::string("a\0b", 3));
}

TEST(Utf8, APrefixNeverCutsACharacter) {
  EXPECT_EQ(utf8_prefix("a\xE2\x82\xAC", 4), "a\xE2\x82\xAC");
  EXPECT_EQ(utf8_prefix("a\xE2\x82\xAC", 3), "a");
  EXPECT_EQ(utf8_prefix("\xE2\x82\xAC", 2), "");
}

TEST(Utf8, VisibleShowsControlCharacters) {
  EXPECT_EQ(visible("a\x1b[31m\n\tb\x7f"), "a\\x1b[31m\n\tb\\x7f");
  EXPECT_EQ(visible("\xC2\x9B"
                    "2J \xC2\xA0"),
            "\\x9b2J \xC2\xA0");
}

TEST(Utf8, StripsWhiteSpaceAsPythonDoes) {
  EXPECT_EQ(stripped(" \t\n a b\x1c\r "), "a b");
  EXPECT_EQ(stripped("\xC2\xA0\xE3\x80\x80x\xE2\x80\x8A"), "x");
  EXPECT_EQ(stripped("\xE2\x80\x8Bx"), "\xE2\x80\x8Bx");  // a zero-width space is none
  EXPECT_EQ(stripped(" \n "), "");
  EXPECT_EQ(stripped(""), "");
}

}  // namespace
}  // namespace diffuse

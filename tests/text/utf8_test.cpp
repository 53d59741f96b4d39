#include "text/utf8.hpp"

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

TEST(Utf8, KnowsClassesOfCharacters) {
  EXPECT_TRUE(is_white_space(0x3000));
  EXPECT_FALSE(is_white_space(0x1C));
  EXPECT_TRUE(is_python_space(0x1C));
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_TRUE(is_word_character(0x200D));
  EXPECT_FALSE(is_word_character(0xB2));
  EXPECT_TRUE(is_numeric(0x2167));
  EXPECT_TRUE(is_punctuation('$'));
  EXPECT_FALSE(is_punctuation(0x20AC));
}

}  // namespace
}  // namespace diffuse

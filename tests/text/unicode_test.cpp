#include "text/unicode.hpp"

#include <gtest/gtest.h>

namespace diffuse {
namespace {

TEST(Unicode, KnowsClassesOfCharacters) {
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

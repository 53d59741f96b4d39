#include "job/utf8.hpp"

#include <gtest/gtest.h>

namespace diffuse::job_detail {
namespace {

// Right-hand sides: Python's bytes.decode('utf-8', 'replace'); R is U+FFFD.
TEST(repair_utf8, is_pythons_replace) {
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

TEST(utf8_prefix, never_cuts_a_character) {
  EXPECT_EQ(utf8_prefix("a\xE2\x82\xAC", 4), "a\xE2\x82\xAC");
  EXPECT_EQ(utf8_prefix("a\xE2\x82\xAC", 3), "a");
  EXPECT_EQ(utf8_prefix("\xE2\x82\xAC", 2), "");
}

TEST(visible, shows_control_characters) {
  EXPECT_EQ(visible("a\x1b[31m\n\tb\x7f"), "a\\x1b[31m\n\tb\\x7f");
  EXPECT_EQ(visible("\xC2\x9B"
                    "2J \xC2\xA0"),
            "\\x9b2J \xC2\xA0");
}

}  // namespace
}  // namespace diffuse::job_detail

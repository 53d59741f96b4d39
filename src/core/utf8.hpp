#pragma once
// UTF-8 in and out.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace diffuse {

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

// What stands at a byte of a text that may be anything.
struct Utf8Step {
  enum class Kind {
    whole,       // a character of `bytes` bytes
    broken,      // `bytes` bytes (1 to 3) that never become one: one U+FFFD
    incomplete,  // the text ends within what may still become a character (all `bytes` of the rest)
  };
  Kind kind;
  std::size_t bytes;
  char32_t code;  // where whole
};

// `text` must not be empty. Follows Python's rule (and Unicode's): the longest prefix of a valid character is
// replaced as one.
Utf8Step next_utf8(std::string_view text);

bool is_valid_utf8(std::string_view text);

// Python's bytes.decode('utf-8', 'replace').
std::string repair_utf8(std::string_view text);

// The code point at `at` of valid UTF-8; moves `at` behind it.
char32_t take_utf8(std::string_view text, std::size_t& at);
// The start of the character that ends before `at` (> 0) in valid UTF-8.
std::size_t before_utf8(std::string_view text, std::size_t at);
void append_utf8(std::string& text, char32_t code);

// Code points of valid UTF-8.
std::size_t count_utf8(std::string_view text);

// The longest whole-character prefix of valid UTF-8 that has at most `bytes` bytes.
std::string_view utf8_prefix(std::string_view text, std::size_t bytes);

// Valid UTF-8 without the white space at both ends, as Python's str.strip takes it off.
std::string_view stripped(std::string_view text);

// Control characters (C0 but newline and tab, DEL, C1) as visible \xNN.
std::string visible(std::string_view text);

// Cuts bytes into whole characters as they come. What push() holds back is at most 3 bytes.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  std::string finish();  // the incomplete rest as U+FFFD

 private:
  std::string held_;
};

}  // namespace diffuse

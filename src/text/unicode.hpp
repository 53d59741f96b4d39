#pragma once
// What Unicode says of a character.

namespace diffuse {

bool is_white_space(char32_t code);     // Unicode White_Space: Rust's char::is_whitespace
bool is_python_space(char32_t code);    // str.isspace of one character: also U+001C to U+001F
bool is_word_character(char32_t code);  // \w of Rust's regex
bool is_numeric(char32_t code);         // N: Rust's char::is_numeric
bool is_punctuation(char32_t code);     // ASCII punctuation or category P

}  // namespace diffuse

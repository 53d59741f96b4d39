#include "text/unicode.hpp"

#include <unicode/uchar.h>

namespace diffuse {
namespace {

bool is_mark(char32_t code) {
  return (U_GET_GC_MASK(static_cast<UChar32>(code)) & U_GC_M_MASK) != 0;
}

}  // namespace

bool is_white_space(char32_t code) {
  return u_isUWhiteSpace(static_cast<UChar32>(code)) != 0;
}

bool is_python_space(char32_t code) {
  return (code >= 0x1C && code <= 0x1F) || is_white_space(code);
}

bool is_word_character(char32_t code) {
  const auto character = static_cast<UChar32>(code);
  if (u_isUAlphabetic(character) != 0 || is_mark(code)) return true;
  const auto category = U_GET_GC_MASK(character);
  return (category & (U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
         u_hasBinaryProperty(character, UCHAR_JOIN_CONTROL) != 0;
}

bool is_numeric(char32_t code) {
  return (U_GET_GC_MASK(static_cast<UChar32>(code)) & U_GC_N_MASK) != 0;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
           (code >= '{' && code <= '~');
  }
  // The tables that `tokenizers` has for this are of Unicode 8.
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(code), age);
  return age[0] <= 8 && (U_GET_GC_MASK(static_cast<UChar32>(code)) & U_GC_P_MASK) != 0;
}

}  // namespace diffuse

#include "text/prompt_clean.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "core/utf8.hpp"
#include "text/unicode.hpp"

namespace diffuse {
namespace {

struct Named {
  std::string_view name;
  char32_t code;
  bool bare;  // known without the semicolon too
};
constexpr std::array kNamed = {
    Named{"amp", U'&', true},  Named{"apos", U'\'', false}, Named{"gt", U'>', true},  Named{"lt", U'<', true},
    Named{"nbsp", 0xA0, true}, Named{"quot", U'"', true},   Named{"AMP", U'&', true}, Named{"GT", U'>', true},
    Named{"LT", U'<', true},   Named{"QUOT", U'"', true}};

// Windows-1252's characters where HTML's numbers 128 to 159 stand for them.
constexpr std::array<char32_t, 32> kWindows = {
    0x20AC, 0x81,   0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x8D,   0x017D, 0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D,   0x017E, 0x0178};

// What a number stands for, by HTML's rules as Python's html.unescape has them; nothing: no character.
std::optional<char32_t> of_number(std::uint32_t number) {
  if (number == 0) return 0xFFFD;
  if (number == 0x0D) return 0x0D;
  if (number >= 0x80 && number <= 0x9F) return kWindows[number - 0x80];
  if ((number >= 0xD800 && number <= 0xDFFF) || number > 0x10FFFF) return 0xFFFD;
  const bool control = number < 0x20 && number != 0x09 && number != 0x0A && number != 0x0C;
  const bool outside = (number >= 0xFDD0 && number <= 0xFDEF) || (number & 0xFFFEU) == 0xFFFE;
  if (control || number == 0x7F || number == 0x0B || outside) return std::nullopt;
  return number;
}

struct Reference {
  std::size_t bytes = 0;  // behind the '&'; 0: it is none
  std::optional<char32_t> code;
};

Reference numbered(std::string_view rest) {
  const bool hex = rest.size() > 1 && (rest[1] == 'x' || rest[1] == 'X');
  std::size_t at = hex ? 2 : 1;
  const auto first = at;
  std::uint32_t number = 0;
  for (; at < rest.size(); ++at) {
    const char c = rest[at];
    std::uint32_t digit = 16;
    if (c >= '0' && c <= '9') digit = static_cast<std::uint32_t>(c - '0');
    if (hex && c >= 'a' && c <= 'f') digit = static_cast<std::uint32_t>(c - 'a') + 10;
    if (hex && c >= 'A' && c <= 'F') digit = static_cast<std::uint32_t>(c - 'A') + 10;
    if (digit == 16) break;
    number = std::min<std::uint32_t>(number * (hex ? 16 : 10) + digit, 0x110000);
  }
  if (at == first) return {};
  if (at < rest.size() && rest[at] == ';') ++at;
  return {at, of_number(number)};
}

Reference named(std::string_view rest) {
  for (const auto& [name, code, bare] : kNamed) {
    if (!rest.starts_with(name)) continue;
    const bool closed = rest.size() > name.size() && rest[name.size()] == ';';
    if (closed || bare) return {name.size() + (closed ? 1 : 0), code};
  }
  return {};
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto rest = text.substr(at + 1);
    const auto found = text[at] != '&' || rest.empty() ? Reference()
                       : rest[0] == '#'                ? numbered(rest)
                                                       : named(rest);
    if (found.bytes == 0) {
      out += text[at++];
      continue;
    }
    if (found.code) append_utf8(out, *found.code);
    at += 1 + found.bytes;
  }
  return out;
}

}  // namespace

std::string cleaned_prompt(std::string_view text) {
  const auto plain = unescaped(unescaped(text));
  const auto inner = stripped(plain);
  std::string out;
  for (std::size_t at = 0; at < inner.size();) {
    const auto start = at;
    const auto code = take_utf8(inner, at);
    if (!is_python_space(code)) {
      out += inner.substr(start, at - start);
    } else if (out.empty() || out.back() != ' ') {
      out += ' ';
    }
  }
  return out;
}

}  // namespace diffuse

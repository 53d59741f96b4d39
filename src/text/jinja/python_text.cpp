#include "text/jinja/python_text.hpp"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

#include "core/utf8.hpp"
#include "text/unicode.hpp"

namespace diffuse::jinja {
namespace {

std::string from_icu(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

icu::UnicodeString to_icu(std::string_view text) {
  return icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())));
}

std::string title_of(char32_t code) {
  icu::UnicodeString letter(static_cast<UChar32>(code));
  // A letter without case keeps its form; for the others the first is the only one.
  return from_icu(letter.toTitle(nullptr, icu::Locale::getRoot(), 0));
}

bool is_cased(char32_t code) {
  return u_hasBinaryProperty(static_cast<UChar32>(code), UCHAR_CASED) != 0;
}

int numeric_type(char32_t code) {
  return u_getIntPropertyValue(static_cast<UChar32>(code), UCHAR_NUMERIC_TYPE);
}

bool is_line_break(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

std::vector<std::string> split_at_space(std::string_view text, std::int64_t limit) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  while (true) {
    auto begin = at;
    while (begin < text.size()) {
      auto next = begin;
      if (!is_python_space(take_utf8(text, next))) break;
      begin = next;
    }
    if (begin == text.size()) return parts;
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) >= limit) {
      parts.push_back(std::string(text.substr(begin)));
      return parts;
    }
    auto end = begin;
    while (end < text.size()) {
      auto next = end;
      if (is_python_space(take_utf8(text, next))) break;
      end = next;
    }
    parts.push_back(std::string(text.substr(begin, end - begin)));
    at = end;
  }
}

template <typename OfCased>
bool all_cased(std::string_view text, OfCased&& fits) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto code = take_utf8(text, at);
    if (!is_cased(code)) continue;
    if (!fits(static_cast<UChar32>(code))) return false;
    any = true;
  }
  return any;
}

}  // namespace

std::u32string code_points(std::string_view text) {
  std::u32string letters;
  for (std::size_t at = 0; at < text.size();) letters += take_utf8(text, at);
  return letters;
}

std::string from_code_points(std::u32string_view letters) {
  std::string text;
  for (const auto letter : letters) append_utf8(text, letter);
  return text;
}

std::string strip(std::string_view text, Side side, const std::optional<std::string>& letters) {
  const auto set = letters ? code_points(*letters) : std::u32string();
  const auto goes = [&](char32_t code) {
    return letters ? set.find(code) != std::u32string::npos : is_python_space(code);
  };
  std::size_t begin = 0;
  auto end = text.size();
  while (side != Side::right && begin < end) {
    auto next = begin;
    if (!goes(take_utf8(text, next))) break;
    begin = next;
  }
  while (side != Side::left && end > begin) {
    const auto start = before_utf8(text, end);
    auto next = start;
    if (!goes(take_utf8(text, next))) break;
    end = start;
  }
  return std::string(text.substr(begin, end - begin));
}

std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               std::int64_t limit) {
  if (!separator) return split_at_space(text, limit);
  if (separator->empty()) throw TemplateError("empty separator");
  std::vector<std::string> parts;
  std::size_t at = 0;
  for (auto found = text.find(*separator);
       found != text.npos && (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit);
       found = text.find(*separator, at)) {
    parts.push_back(std::string(text.substr(at, found - at)));
    at = found + separator->size();
  }
  parts.push_back(std::string(text.substr(at)));
  return parts;
}

std::vector<std::string> split_right(std::string_view text, const std::optional<std::string>& separator,
                                     std::int64_t limit) {
  if (limit < 0) return split(text, separator, limit);
  std::vector<std::string> parts;
  if (!separator) {
    auto rest = strip(text, Side::right, std::nullopt);
    while (!rest.empty() && static_cast<std::int64_t>(parts.size()) < limit) {
      auto begin = rest.size();
      while (begin > 0) {
        const auto start = before_utf8(rest, begin);
        auto next = start;
        if (is_python_space(take_utf8(rest, next))) break;
        begin = start;
      }
      parts.push_back(rest.substr(begin));
      rest = strip(std::string_view(rest).substr(0, begin), Side::right, std::nullopt);
    }
    if (!rest.empty()) parts.push_back(std::move(rest));
  } else {
    if (separator->empty()) throw TemplateError("empty separator");
    auto end = text.size();
    while (static_cast<std::int64_t>(parts.size()) < limit) {
      const auto found = text.substr(0, end).rfind(*separator);
      if (found == text.npos) break;
      parts.push_back(std::string(text.substr(found + separator->size(), end - found - separator->size())));
      end = found;
    }
    parts.push_back(std::string(text.substr(0, end)));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = at;
    const auto code = take_utf8(text, at);
    if (!is_line_break(code)) continue;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(std::string(text.substr(begin, end - begin)));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(std::string(text.substr(begin)));
  return lines;
}

std::string replace(Machine& machine, std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t limit) {
  std::string out;
  std::size_t at = 0;
  for (std::int64_t count = 0; limit < 0 || count < limit; ++count) {
    // An empty string stands before every character and at the end.
    const auto found = from.empty() ? at : text.find(from, at);
    if (found == text.npos) break;
    machine.expect_text(to.size() + 1);
    out += text.substr(at, found - at);
    out += to;
    at = found + from.size();
    if (!from.empty()) continue;
    if (at == text.size()) return out;
    auto next = at;
    take_utf8(text, next);
    out += text.substr(at, next - at);
    at = next;
  }
  return out += text.substr(at);
}

std::string upper(std::string_view text) {
  return from_icu(to_icu(text).toUpper(icu::Locale::getRoot()));
}

std::string lower(std::string_view text) {
  return from_icu(to_icu(text).toLower(icu::Locale::getRoot()));
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  std::size_t at = 0;
  const auto first = take_utf8(text, at);
  return title_of(first) + lower(text).substr(lower(text.substr(0, at)).size());
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto begin = at;
    const auto code = take_utf8(text, at);
    out += inside ? lower(text.substr(begin, at - begin)) : title_of(code);
    inside = is_cased(code);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto begin = at;
    const auto code = static_cast<UChar32>(take_utf8(text, at));
    const auto letter = text.substr(begin, at - begin);
    out += u_isUUppercase(code) ? lower(letter) : u_isULowercase(code) ? upper(letter) : std::string(letter);
  }
  return out;
}

bool is_upper(std::string_view text) {
  return all_cased(text, [](UChar32 code) { return u_isUUppercase(code) != 0; });
}

bool is_lower(std::string_view text) {
  return all_cased(text, [](UChar32 code) { return u_isULowercase(code) != 0; });
}

bool is_alphabetic(char32_t code) {
  return (U_GET_GC_MASK(static_cast<UChar32>(code)) & U_GC_L_MASK) != 0;
}

bool is_digit(char32_t code) {
  return numeric_type(code) == U_NT_DECIMAL || numeric_type(code) == U_NT_DIGIT;
}

bool is_decimal(char32_t code) {
  return numeric_type(code) == U_NT_DECIMAL;
}

bool is_any_number(char32_t code) {
  return numeric_type(code) != U_NT_NONE;
}

bool is_alphanumeric(char32_t code) {
  return is_alphabetic(code) || is_any_number(code);
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += letter;
    }
  }
  return out;
}

}  // namespace diffuse::jinja

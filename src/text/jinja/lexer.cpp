#include "text/jinja/lexer.hpp"

#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "core/utf8.hpp"
#include "text/unicode.hpp"

namespace diffuse::jinja {
namespace {

using Kind = Token::Kind;

// Longer ones first.
constexpr std::array<std::string_view, 27> kSymbols = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                       "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                       ">",  "<",  "=",  ".",  ":",  "|",  ",", ";", "@"};

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  return out;
}

bool is_name_start(char32_t code) {
  return code == '_' || u_hasBinaryProperty(static_cast<UChar32>(code), UCHAR_XID_START) != 0;
}
bool is_name_part(char32_t code) {
  return u_hasBinaryProperty(static_cast<UChar32>(code), UCHAR_XID_CONTINUE) != 0;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {
    // Jinja drops one newline at the end.
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) data();
    add(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw TemplateError("line " + std::to_string(line_) + ": " + why);
  }
  void add(Kind kind, std::string text, Value number = {}) {
    tokens_.push_back({kind, std::move(text), std::move(number), line_});
  }
  bool at(std::string_view text) const { return std::string_view(source_).substr(at_).starts_with(text); }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }

  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    line_start_ = to > at_ && source_[to - 1] == '\n';
    at_ = to;
  }

  std::size_t behind_space(std::size_t from) const {
    while (from < source_.size()) {
      auto next = from;
      if (!is_python_space(take_utf8(source_, next))) break;
      from = next;
    }
    return from;
  }

  // The plain text before a tag, cut as the tag's sign (or lstrip_blocks) says.
  std::string_view trimmed(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') {
      auto end = text.size();
      while (end > 0) {
        auto begin = before_utf8(text, end);
        const auto start = begin;
        if (!is_python_space(take_utf8(text, begin))) break;
        end = start;
      }
      return text.substr(0, end);
    }
    if (sign == '+' || is_variable) return text;
    const auto newline = text.rfind('\n');
    const auto line = newline == text.npos ? 0 : newline + 1;
    if (line == 0 && !line_start_) return text;
    for (auto i = line; i < text.size();)
      if (!is_python_space(take_utf8(text, i))) return text;
    return text.substr(0, line);
  }

  void add_data(std::size_t end, char sign, bool is_variable) {
    const auto text = trimmed(std::string_view(source_).substr(at_, end - at_), sign, is_variable);
    if (!text.empty()) add(Kind::data, std::string(text));
  }

  // Moves behind a tag's end ("%}" and its kin), if it stands here.
  bool close(std::string_view end, bool trim_newline) {
    const bool minus = peek() == '-';
    const bool plus = peek() == '+' && trim_newline;
    const std::size_t sign = minus || plus ? 1 : 0;
    if (!std::string_view(source_).substr(at_ + sign).starts_with(end)) return false;
    auto to = at_ + sign + end.size();
    if (minus) {
      to = behind_space(to);
    } else if (!plus && trim_newline && to < source_.size() && source_[to] == '\n') {
      ++to;
    }
    advance(to);
    return true;
  }

  void data() {
    auto tag = at_;
    char kind = '\0';
    for (; tag + 1 < source_.size(); ++tag) {
      kind = source_[tag + 1];
      if (source_[tag] == '{' && (kind == '%' || kind == '{' || kind == '#')) break;
    }
    if (tag + 1 >= source_.size()) {
      add_data(source_.size(), '+', false);
      advance(source_.size());
      return;
    }
    char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    add_data(tag, sign, kind == '{');
    advance(tag + (sign == '\0' ? 2 : 3));
    if (kind == '#') return comment();
    if (kind == '{') return tokens_until("}}", Kind::variable_begin, Kind::variable_end, false);
    if (const auto content = raw_content()) return raw(*content);
    tokens_until("%}", Kind::block_begin, Kind::block_end, true);
  }

  void comment() {
    const auto end = source_.find("#}", at_);
    if (end == std::string::npos) fail("a comment that does not end");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(sign == '-' || sign == '+' ? end - 1 : end);
    close("#}", true);
  }

  // Where the content of a raw block begins, should this be the tag of one.
  std::optional<std::size_t> raw_content() const {
    auto to = behind_space(at_);
    if (!std::string_view(source_).substr(to).starts_with("raw")) return std::nullopt;
    to = behind_space(to + 3);
    const auto rest = std::string_view(source_).substr(to);
    if (rest.starts_with("-%}")) return behind_space(to + 3);
    if (rest.starts_with("%}")) return to + 2;
    return std::nullopt;
  }

  void raw(std::size_t content) {
    advance(content);
    for (auto tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      if (sign != '-' && sign != '+') sign = '\0';
      const auto name = behind_space(tag + (sign == '\0' ? 2 : 3));
      if (!std::string_view(source_).substr(name).starts_with("endraw")) continue;
      const auto end = behind_space(name + 6);
      const auto rest = std::string_view(source_).substr(end);
      if (!rest.starts_with("%}") && !rest.starts_with("-%}") && !rest.starts_with("+%}")) continue;
      add_data(tag, sign, false);
      advance(end);
      close("%}", true);
      return;
    }
    fail("a raw block that does not end");
  }

  void tokens_until(std::string_view end, Kind begin_kind, Kind end_kind, bool trim_newline) {
    add(begin_kind, "");
    std::string open;
    while (true) {
      if (at_ >= source_.size()) fail("a tag that does not end");
      if (open.empty() && close(end, trim_newline)) break;
      std::size_t next = at_;
      const auto code = take_utf8(source_, next);
      if (is_python_space(code)) {
        advance(behind_space(at_));
      } else if (code >= '0' && code <= '9') {
        number();
      } else if (is_name_start(code)) {
        name();
      } else if (code == '\'' || code == '"') {
        string(static_cast<char>(code));
      } else {
        symbol(open);
      }
    }
    add(end_kind, "");
  }

  void name() {
    auto end = at_;
    while (end < source_.size()) {
      auto next = end;
      if (!is_name_part(take_utf8(source_, next))) break;
      end = next;
    }
    add(Kind::name, source_.substr(at_, end - at_));
    advance(end);
  }

  void symbol(std::string& open) {
    for (const auto text : kSymbols) {
      if (!at(text)) continue;
      if (text == "(" || text == "[" || text == "{") open += text == "(" ? ')' : text == "[" ? ']' : '}';
      if (text == ")" || text == "]" || text == "}") {
        if (open.empty() || open.back() != text[0]) fail("unexpected '" + std::string(text) + "'");
        open.pop_back();
      }
      add(Kind::symbol, std::string(text));
      advance(at_ + text.size());
      return;
    }
    fail(std::string("unexpected character '") + source_[at_] + "'");
  }

  // Digits with single underscores between them.
  std::string digits(std::size_t& end, std::string_view allowed) const {
    std::string found;
    while (end < source_.size()) {
      const bool underscore = source_[end] == '_' && !found.empty() && end + 1 < source_.size() &&
                              allowed.find(source_[end + 1]) != allowed.npos;
      if (underscore) ++end;
      if (allowed.find(source_[end]) == allowed.npos) break;
      found += source_[end++];
    }
    return found;
  }

  void number() {
    constexpr std::string_view kDigits = "0123456789";
    const char second = peek(1);
    if (peek() == '0' && (second == 'x' || second == 'X')) return based(16, "0123456789abcdefABCDEF");
    if (peek() == '0' && (second == 'o' || second == 'O')) return based(8, "01234567");
    if (peek() == '0' && (second == 'b' || second == 'B')) return based(2, "01");
    auto end = at_;
    auto text = digits(end, kDigits);
    bool real = false;
    const bool behind_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!behind_dot && end + 1 < source_.size() && source_[end] == '.' &&
        kDigits.find(source_[end + 1]) != kDigits.npos) {
      real = true;
      ++end;
      text += '.';
      text += digits(end, kDigits);
    }
    if (!behind_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      auto to = end + 1;
      std::string exponent = "e";
      if (to < source_.size() && (source_[to] == '+' || source_[to] == '-')) exponent += source_[to++];
      if (const auto power = digits(to, kDigits); !power.empty()) {
        real = true;
        text += exponent + power;
        end = to;
      }
    }
    if (real) {
      double value = 0;
      std::from_chars(text.data(), text.data() + text.size(), value);
      add(Kind::number, "", Value(value));
    } else {
      if (text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != text.npos)
        fail("a number that begins with 0");
      add(Kind::number, text, Value(integer(text, 10)));
    }
    advance(end);
  }

  void based(int base, std::string_view allowed) {
    auto end = at_ + 2;
    if (end < source_.size() && source_[end] == '_') ++end;
    const auto text = digits(end, allowed);
    if (text.empty()) fail("a number without digits");
    add(Kind::number, "", Value(integer(text, base)));
    advance(end);
  }

  Int integer(const std::string& text, int base) const {
    Int value = 0;
    for (const char digit : text) {
      const int unit = digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10;
      if (__builtin_mul_overflow(value, Int{base}, &value) ||
          __builtin_add_overflow(value, Int{unit}, &value))
        fail("a number of more than 127 bits");
    }
    return value;
  }

  void string(char quote) {
    std::string value;
    auto end = at_ + 1;
    while (true) {
      if (end >= source_.size()) fail("a string that does not end");
      const char letter = source_[end++];
      if (letter == quote) break;
      if (letter == '\\') {
        escape(end, value);
      } else {
        value += letter;
      }
    }
    add(Kind::string, std::move(value));
    advance(end);
  }

  // Python's escapes; an unknown one stays as it is.
  void escape(std::size_t& end, std::string& value) {
    if (end >= source_.size()) fail("a string that does not end");
    const char kind = source_[end++];
    constexpr std::string_view kFrom = "nrtabfv\\'\"";
    constexpr std::string_view kTo = "\n\r\t\a\b\f\v\\'\"";
    if (const auto known = kFrom.find(kind); known != kFrom.npos) {
      value += kTo[known];
    } else if (kind == 'x' || kind == 'u' || kind == 'U') {
      code_point(kind == 'x' ? 2 : kind == 'u' ? 4 : 8, end, value);
    } else if (kind >= '0' && kind <= '7') {
      char32_t code = 0;
      --end;
      for (int i = 0; i < 3 && end < source_.size() && source_[end] >= '0' && source_[end] <= '7'; ++i)
        code = code * 8 + static_cast<char32_t>(source_[end++] - '0');
      append_utf8(value, code);
    } else if (kind == 'N') {
      throw TemplateError("line " + std::to_string(line_) + ": a character by its name (\\N) is not known",
                          true);
    } else if (kind != '\n') {  // a backslash at a line's end joins the lines
      value += '\\';
      value += kind;
    }
  }

  void code_point(std::size_t digits, std::size_t& end, std::string& value) const {
    std::uint32_t code = 0;
    const auto* begin = source_.data() + end;
    const auto* limit = source_.data() + std::min(source_.size(), end + digits);
    const auto [stop, failed] = std::from_chars(begin, limit, code, 16);
    if (failed != std::errc() || stop != begin + digits) fail("a character escape without its digits");
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("a character escape that is no character");
    end += digits;
    append_utf8(value, code);
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace diffuse::jinja

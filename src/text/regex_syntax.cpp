// Oniguruma's Ruby syntax -> PCRE2's.

#include <array>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "text/element.hpp"
#include "text/regex.hpp"

namespace diffuse {
namespace {

// PCRE2's \s has U+180E and its \w lacks marks; \b follows \w. Oniguruma's \w has Latin-1's small digits and
// fractions, and no others.
constexpr std::string_view kSpace = R"(\x{09}-\x{0D}\x{85}\p{Z})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
constexpr std::string_view kHex = "0-9A-Fa-f";

// General categories mean the same in both. Any other name of a property is taken for a script, which PCRE2
// would else read as a set of script extensions.
constexpr std::array<std::string_view, 39> kCategories = {
    "Any", "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "LC", "L&", "Ll", "Lm", "Lo",
    "Lt",  "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd",
    "Pe",  "Pf", "Pi", "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp"};

class Rewriter {
 public:
  Rewriter(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char letter = pattern_[at_];
      if (letter == '\\') {
        escape();
      } else if (letter == '[') {
        brackets();
      } else if (letter == '(') {
        group();
      } else if (letter == '{') {
        repeat();
      } else {
        out_ += letter;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw_refused(where_ + ": the pattern " + in_quotes(pattern_) + " cannot be used (" + why + ")");
  }
  char peek(std::size_t ahead) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }

  // A set such as \s, in brackets or on its own.
  void set(std::string_view members, bool inside, bool negated) {
    if (inside && negated) refuse("a negated set within brackets");
    if (!inside) out_ += negated ? "[^" : "[";
    out_ += members;
    if (!inside) out_ += ']';
  }

  void border(bool negated) {
    const std::string word = "[" + std::string(kWord) + "]";
    out_ += negated ? "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))"
                    : "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
  }

  void escape(bool inside = false) {
    const char kind = peek(1);
    at_ += 2;
    switch (kind) {
      case '\0':
        refuse("it ends in a backslash");
      case 's':
      case 'S':
        if (inside && kind == 'S') {
          out_ += R"(\S\x{180E})";  // what PCRE2's \s has too much, its \S lacks
          return;
        }
        return set(kSpace, inside, kind == 'S');
      case 'w':
      case 'W':
        return set(kWord, inside, kind == 'W');
      case 'h':
      case 'H':
        return set(kHex, inside, kind == 'H');
      case 'd':
      case 'D':
        out_ += kind == 'd' ? R"(\p{Nd})" : R"(\P{Nd})";
        return;
      case 'b':
      case 'B':
        if (inside) {
          if (kind == 'B') refuse("\\B within brackets");
          out_ += R"(\x{08})";
          return;
        }
        return border(kind == 'B');
      case 'v':
        out_ += R"(\x{0B})";
        return;
      case 'u':
        return code_point();
      case 'p':
      case 'P':
        return property(kind);
      case 'x':
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
        out_ += '\\';
        out_ += kind;
        return;
      default:
        break;
    }
    const bool letter =
        (kind >= 'a' && kind <= 'z') || (kind >= 'A' && kind <= 'Z') || (kind >= '0' && kind <= '9');
    if (letter) refuse(std::string("the escape \\") + kind);
    // A character of several bytes needs no escape, and PCRE2 refuses none.
    out_ += '\\';
    out_ += kind;
  }

  void code_point() {
    const auto digits = pattern_.substr(at_, 4);
    if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      refuse("\\u without four hex digits");
    out_ += "\\x{" + std::string(digits) + "}";
    at_ += 4;
  }

  void property(char kind) {
    const auto close = pattern_.find('}', at_);
    if (peek(0) != '{' || close == std::string_view::npos) refuse("\\p without a name in braces");
    auto name = pattern_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    bool category = name == "Zs" || name == "Alphabetic" || name == "Alpha";
    for (const auto known : kCategories) category = category || name == known;
    out_ += '\\';
    out_ += kind;
    out_ += negated ? "{^" : "{";
    if (!category) out_ += "sc:";
    out_ += name;
    out_ += '}';
  }

  void brackets() {
    out_ += '[';
    ++at_;
    if (peek(0) == '^') {
      out_ += '^';
      ++at_;
    }
    for (bool first = true;; first = false) {
      if (at_ >= pattern_.size()) refuse("brackets that do not close");
      const char letter = pattern_[at_];
      if (letter == ']' && !first) break;
      if (letter == '[') refuse("brackets within brackets");
      if (letter == '&' && peek(1) == '&') refuse("an intersection of sets");
      if (letter == '\\') {
        escape(true);
        continue;
      }
      out_ += letter;
      ++at_;
    }
    out_ += ']';
    ++at_;
  }

  void group() {
    out_ += '(';
    ++at_;
    if (peek(0) == '*') refuse("a verb");
    if (peek(0) != '?') return;
    out_ += '?';
    const bool leading = at_ == 1;
    ++at_;
    const char kind = peek(0);
    const bool flags = kind == 'i' || kind == 'm' || kind == 'x' || kind == '-';
    if (!flags) {
      if (kind != ':' && kind != '=' && kind != '!' && kind != '>' && kind != '<')
        refuse(std::string("a group of the kind (?") + kind);
      return;
    }
    while (at_ < pattern_.size() && pattern_[at_] != ':' && pattern_[at_] != ')') {
      const char flag = pattern_[at_++];
      if (flag != 'i' && flag != 'm' && flag != 'x' && flag != '-') refuse(std::string("the flag ") + flag);
      out_ += flag == 'm' ? 's' : flag;  // Ruby's m lets a dot match a newline
    }
    // In Ruby a(?i)b|c is a(?i:b|c).
    if (peek(0) == ')' && !leading) refuse("flags in the middle");
  }

  void repeat() {
    const auto close = pattern_.find('}', at_);
    const auto inner =
        close == std::string_view::npos ? std::string_view() : pattern_.substr(at_ + 1, close - at_ - 1);
    const bool counted =
        !inner.empty() && inner != "," && inner.find_first_not_of("0123456789,") == std::string_view::npos;
    if (!counted) {
      out_ += "\\{";
      ++at_;
      return;
    }
    // In Ruby X{2}+ repeats X{2}; PCRE2 reads a possessive count.
    if (close + 1 < pattern_.size() && pattern_[close + 1] == '+') refuse("a plus behind a counted repeat");
    out_ += inner.front() == ',' ? "{0" : "{";
    out_ += inner;
    out_ += '}';
    at_ = close + 1;
  }

  std::string_view pattern_;
  const std::string& where_;
  std::string out_;
  std::size_t at_ = 0;
};

}  // namespace

std::string pcre2_from_oniguruma(std::string_view pattern, const std::string& where) {
  return Rewriter(pattern, where).run();
}

}  // namespace diffuse

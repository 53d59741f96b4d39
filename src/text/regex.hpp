#pragma once
// Patterns of a tokenizer.json, written for Oniguruma (Ruby's syntax), run by PCRE2. What the two read
// differently is rewritten, and what cannot be is refused: a pattern that splits elsewhere gives other ids
// without a word.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/json.hpp"

namespace diffuse {

struct TextSpan {
  std::size_t begin;
  std::size_t end;
};

// A stretch of a text, inside a match or between two.
struct TextStretch {
  TextSpan span;
  bool matched;
};

// Cheap to copy (copies share the compiled pattern); may be used by many threads at once.
class Regex {
 public:
  // Throws refused where the pattern is one that cannot be run as Oniguruma would; `where` names it.
  Regex(std::string_view pattern, const std::string& where);

  // The matches in valid UTF-8, left to right, as Oniguruma's find_iter lists them. Throws refused where
  // matching takes more steps than it may.
  std::vector<TextSpan> matches(std::string_view text) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
  std::string where_;
};

// The pattern rewritten for PCRE2. Throws refused as above.
std::string pcre2_from_oniguruma(std::string_view pattern, const std::string& where);

// {"String": "..."} or {"Regex": "..."}.
class TextPattern {
 public:
  static TextPattern from_json(const Json& element, const std::string& where);
  explicit TextPattern(std::string literal) : pattern_(std::move(literal)) {}
  explicit TextPattern(Regex regex) : pattern_(std::move(regex)) {}

  std::vector<TextSpan> matches(std::string_view text) const;
  // The text with every match replaced.
  std::string replace(std::string_view text, std::string_view content) const;

 private:
  std::variant<std::string, Regex> pattern_;
};

// Matches and what lies between them: covers the whole text, in order, nothing empty but empty matches.
std::vector<TextStretch> stretches(std::string_view text, const std::vector<TextSpan>& matches);

}  // namespace diffuse

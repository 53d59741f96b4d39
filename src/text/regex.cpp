#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.hpp"

#include <pcre2.h>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "text/element.hpp"

namespace diffuse {
namespace {

// Far above what a sane pattern needs on a megabyte, and seconds at most.
constexpr std::uint32_t kMatchLimit = 200'000'000;
constexpr std::size_t kJitStackStart = 64U << 10;
constexpr std::size_t kJitStackLimit = 64U << 20;

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

using CompileContext = std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)>;
using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;
using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
using JitStack = std::unique_ptr<pcre2_jit_stack, decltype(&pcre2_jit_stack_free)>;

template <typename Owner>
Owner checked(Owner owner) {
  if (owner == nullptr) throw_internal("PCRE2 is out of memory");
  return owner;
}

}  // namespace

struct Regex::Compiled {
  pcre2_code* code = nullptr;
  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, const std::string& where) : where_(where) {
  const auto rewritten = pcre2_from_oniguruma(pattern, where);
  const auto context =
      checked(CompileContext(pcre2_compile_context_create(nullptr), &pcre2_compile_context_free));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int problem = 0;
  PCRE2_SIZE at = 0;
  auto compiled = std::make_shared<Compiled>();
  // Ruby's ^ and $ always stand at lines.
  compiled->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &problem,
                                 &at, context.get());
  if (compiled->code == nullptr) {
    throw_refused(where + ": the pattern " + in_quotes(pattern) + " cannot be used (" + message_of(problem) +
                  ")");
  }
  // Where there is no JIT for this machine, matching is slower and the same.
  pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE);
  compiled_ = std::move(compiled);
}

std::vector<TextSpan> Regex::matches(std::string_view text) const {
  const auto context = checked(MatchContext(pcre2_match_context_create(nullptr), &pcre2_match_context_free));
  pcre2_set_match_limit(context.get(), kMatchLimit);
  const auto data = checked(
      MatchData(pcre2_match_data_create_from_pattern(compiled_->code, nullptr), &pcre2_match_data_free));
  JitStack stack(nullptr, &pcre2_jit_stack_free);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());

  std::vector<TextSpan> found;
  std::size_t from = 0;
  std::size_t last_end = std::string_view::npos;
  while (from <= text.size()) {
    int result = pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(),
                             context.get());
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && stack == nullptr) {
      stack = checked(
          JitStack(pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr), &pcre2_jit_stack_free));
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      continue;
    }
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      throw_refused(where_ + ": the pattern gives up on a text of " + std::to_string(text.size()) +
                    " bytes (" + message_of(result) + ")");
    }
    const auto* span = pcre2_get_ovector_pointer(data.get());
    // \K inside a lookahead can set the start behind the end.
    if (span[0] > span[1]) throw_refused(where_ + ": the pattern ends a match before its start");
    if (span[0] == span[1] && span[1] == last_end) {
      if (from >= text.size()) break;
      take_utf8(text, from);
      continue;
    }
    found.push_back({span[0], span[1]});
    from = last_end = span[1];
  }
  return found;
}

TextPattern TextPattern::from_json(const Json& element, const std::string& where) {
  const auto found = element.find("pattern");
  if (found == element.end() || !found->is_object() || found->size() != 1)
    throw_bad_data(where + ": 'pattern' must hold a String or a Regex");
  if (found->contains("String")) return TextPattern(require_string(*found, "String", where));
  if (found->contains("Regex")) return TextPattern(Regex(require_string(*found, "Regex", where), where));
  throw_refused(where + ": a pattern of the kind " + in_quotes(found->begin().key()) + " is not known");
}

std::vector<TextSpan> TextPattern::matches(std::string_view text) const {
  if (const auto* regex = std::get_if<Regex>(&pattern_)) return regex->matches(text);
  const auto& literal = std::get<std::string>(pattern_);
  std::vector<TextSpan> found;
  if (literal.empty()) return found;
  for (auto at = text.find(literal); at != std::string_view::npos;
       at = text.find(literal, at + literal.size()))
    found.push_back({at, at + literal.size()});
  return found;
}

std::string TextPattern::replace(std::string_view text, std::string_view content) const {
  std::string out;
  for (const auto& stretch : stretches(text, matches(text)))
    out += stretch.matched ? content : text.substr(stretch.span.begin, stretch.span.end - stretch.span.begin);
  return out;
}

std::vector<TextStretch> stretches(std::string_view text, const std::vector<TextSpan>& matches) {
  std::vector<TextStretch> all;
  all.reserve(2 * matches.size() + 1);
  std::size_t at = 0;
  for (const auto& match : matches) {
    if (match.begin != at) all.push_back({{at, match.begin}, false});
    all.push_back({match, true});
    at = match.end;
  }
  if (at != text.size()) all.push_back({{at, text.size()}, false});
  return all;
}

}  // namespace diffuse

#include "text/pre_tokenizer.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "text/byte_letters.hpp"
#include "text/element.hpp"
#include "text/unicode.hpp"

namespace diffuse {
namespace {

using Behavior = PreTokenizer::Behavior;
using CharacterClass = PreTokenizer::CharacterClass;
using Prepend = PreTokenizer::Prepend;

Behavior behavior_of(const std::string& name, const std::string& where) {
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  throw_refused(where + ": the behavior " + in_quotes(name) + " is not known to this build");
}

// Joins a match to the stretch before it; a match right behind a match stands alone, as in the original.
std::vector<TextStretch> merge_forward(const std::vector<TextStretch>& all) {
  std::vector<TextStretch> out;
  bool previous = false;
  for (const auto& stretch : all) {
    if (stretch.matched && !previous && !out.empty()) {
      out.back().span.end = stretch.span.end;
    } else {
      out.push_back({stretch.span, false});
    }
    previous = stretch.matched;
  }
  return out;
}

std::vector<TextStretch> merge_backward(const std::vector<TextStretch>& all) {
  std::vector<TextStretch> out;
  bool previous = false;
  for (auto stretch = all.rbegin(); stretch != all.rend(); ++stretch) {
    if (stretch->matched && !previous && !out.empty()) {
      out.back().span.begin = stretch->span.begin;
    } else {
      out.push_back({stretch->span, false});
    }
    previous = stretch->matched;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<TextStretch> merge_runs(const std::vector<TextStretch>& all) {
  std::vector<TextStretch> out;
  bool previous = false;
  for (const auto& stretch : all) {
    if (stretch.matched == previous && !out.empty()) {
      out.back().span.end = stretch.span.end;
    } else {
      out.push_back({stretch.span, false});
    }
    previous = stretch.matched;
  }
  return out;
}

std::vector<TextStretch> shaped(std::vector<TextStretch> all, Behavior behavior) {
  switch (behavior) {
    case Behavior::removed:
      return all;
    case Behavior::isolated:
      for (auto& stretch : all) stretch.matched = false;
      return all;
    case Behavior::merged_with_previous:
      return merge_forward(all);
    case Behavior::merged_with_next:
      return merge_backward(all);
    case Behavior::contiguous:
      return merge_runs(all);
  }
  throw_internal("a split behavior without a case");
}

// Keeps the stretches that are not (or no longer) a match.
void cut(const Word& word, std::vector<TextStretch> all, Behavior behavior, std::vector<Word>& out) {
  for (const auto& stretch : shaped(std::move(all), behavior)) {
    const auto [begin, end] = stretch.span;
    if (!stretch.matched && begin != end)
      out.push_back({word.text.substr(begin, end - begin), word.at_start && begin == 0});
  }
}

bool in_class(char32_t code, CharacterClass kind) {
  switch (kind) {
    case CharacterClass::white_space:
      return is_white_space(code);
    case CharacterClass::numeric:
      return is_numeric(code);
    case CharacterClass::punctuation:
      return is_punctuation(code);
  }
  throw_internal("a character class without a case");
}

template <typename Matches>
std::vector<TextSpan> matching_characters(std::string_view text, Matches&& matches) {
  std::vector<TextSpan> found;
  for (std::size_t at = 0; at < text.size();) {
    const auto begin = at;
    if (matches(take_utf8(text, at))) found.push_back({begin, at});
  }
  return found;
}

const Regex& gpt2_words() {
  static const Regex pattern(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
                             "the pattern of ByteLevel");
  return pattern;
}

void apply_step(const PreTokenizer::ByteLevel& step, Word word, std::vector<Word>& out) {
  if (step.add_prefix_space && !word.text.starts_with(' ')) word.text.insert(0, 1, ' ');
  const auto first = out.size();
  if (step.use_regex) {
    cut(word, stretches(word.text, gpt2_words().matches(word.text)), Behavior::isolated, out);
  } else {
    out.push_back(std::move(word));
  }
  for (auto i = first; i < out.size(); ++i) out[i].text = letters_of_bytes(out[i].text);
}

void apply_step(const PreTokenizer::Split& step, Word word, std::vector<Word>& out) {
  auto all = stretches(word.text, step.pattern.matches(word.text));
  if (step.invert) {
    for (auto& stretch : all) stretch.matched = !stretch.matched;
  }
  cut(word, std::move(all), step.behavior, out);
}

void apply_step(const PreTokenizer::Characters& step, Word word, std::vector<Word>& out) {
  const auto found = matching_characters(word.text, [&](char32_t code) { return in_class(code, step.kind); });
  cut(word, stretches(word.text, found), step.behavior, out);
}

void apply_step(const PreTokenizer::Words&, Word word, std::vector<Word>& out) {
  enum class Kind { space, letters, others };
  const auto kind_at = [&](std::size_t& at) {
    const auto code = take_utf8(word.text, at);
    return is_word_character(code) ? Kind::letters : is_white_space(code) ? Kind::space : Kind::others;
  };
  for (std::size_t at = 0; at < word.text.size();) {
    const auto begin = at;
    const auto kind = kind_at(at);
    for (auto next = at; at < word.text.size() && kind_at(next) == kind;) at = next;
    if (kind != Kind::space)
      out.push_back({word.text.substr(begin, at - begin), word.at_start && begin == 0});
  }
}

void apply_step(const PreTokenizer::Metaspace& step, Word word, std::vector<Word>& out) {
  word.text = TextPattern(" ").replace(word.text, step.replacement);
  const bool wanted = step.prepend == Prepend::always || (step.prepend == Prepend::first && word.at_start);
  if (wanted && !word.text.starts_with(step.replacement)) word.text.insert(0, step.replacement);
  if (!step.split) {
    out.push_back(std::move(word));
    return;
  }
  cut(word, stretches(word.text, TextPattern(step.replacement).matches(word.text)),
      Behavior::merged_with_next, out);
}

PreTokenizer::Metaspace metaspace_of(const Json& element, const std::string& where) {
  const auto scheme = string_member(element, "prepend_scheme", where).value_or("always");
  Prepend prepend = Prepend::always;
  if (scheme == "first") {
    prepend = Prepend::first;
  } else if (scheme == "never") {
    prepend = Prepend::never;
  } else if (scheme != "always") {
    throw_refused(where + ": the prepend_scheme " + in_quotes(scheme) + " is not known to this build");
  }
  if (!bool_member(element, "add_prefix_space", true, where)) prepend = Prepend::never;
  return {require_letter(element, "replacement", where), prepend, bool_member(element, "split", true, where)};
}

}  // namespace

PreTokenizer PreTokenizer::from_json(const Json& element, const std::string& where) {
  PreTokenizer pre_tokenizer;
  if (!element.is_null()) pre_tokenizer.add(element, where);
  return pre_tokenizer;
}

void PreTokenizer::add(const Json& element, const std::string& where) {
  const auto type = element_type(element, where);
  const auto here = where + " " + in_quotes(type);
  if (type == "Sequence") {
    for (const auto& inner : require_array(element, "pretokenizers", here)) add(inner, where);
  } else if (type == "ByteLevel") {
    steps_.emplace_back(ByteLevel{bool_member(element, "add_prefix_space", true, here),
                                  bool_member(element, "use_regex", true, here)});
  } else if (type == "Split") {
    steps_.emplace_back(Split{TextPattern::from_json(element, here),
                              behavior_of(require_string(element, "behavior", here), here),
                              bool_member(element, "invert", false, here)});
  } else if (type == "Digits") {
    const bool single = bool_member(element, "individual_digits", false, here);
    steps_.emplace_back(
        Characters{CharacterClass::numeric, single ? Behavior::isolated : Behavior::contiguous});
  } else if (type == "Punctuation") {
    const auto name = string_member(element, "behavior", here).value_or("Isolated");
    steps_.emplace_back(Characters{CharacterClass::punctuation, behavior_of(name, here)});
  } else if (type == "Whitespace") {
    steps_.emplace_back(Words{});
  } else if (type == "WhitespaceSplit") {
    steps_.emplace_back(Characters{CharacterClass::white_space, Behavior::removed});
  } else if (type == "CharDelimiterSplit" || type == "Delimiter") {
    steps_.emplace_back(
        Split{TextPattern(require_letter(element, "delimiter", here)), Behavior::removed, false});
  } else if (type == "BertPreTokenizer") {
    steps_.emplace_back(Characters{CharacterClass::white_space, Behavior::removed});
    steps_.emplace_back(Characters{CharacterClass::punctuation, Behavior::isolated});
  } else if (type == "Metaspace") {
    steps_.emplace_back(metaspace_of(element, here));
  } else {
    throw_refused(here + " is not known to this build");
  }
}

std::vector<Word> PreTokenizer::apply(Word text) const {
  std::vector<Word> words;
  if (text.text.empty()) return words;
  words.push_back(std::move(text));
  for (const auto& step : steps_) {
    std::vector<Word> next;
    next.reserve(words.size());
    for (auto& word : words)
      std::visit([&](const auto& kind) { apply_step(kind, std::move(word), next); }, step);
    words = std::move(next);
  }
  return words;
}

}  // namespace diffuse

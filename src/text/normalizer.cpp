#include "text/normalizer.hpp"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "text/byte_letters.hpp"
#include "text/element.hpp"
#include "text/unicode.hpp"

namespace diffuse {
namespace {

const icu::Normalizer2& normalizer_of(Normalizer::Unicode::Form form) {
  using Form = Normalizer::Unicode::Form;
  UErrorCode failed = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;
  switch (form) {
    case Form::nfc:
      found = icu::Normalizer2::getNFCInstance(failed);
      break;
    case Form::nfd:
      found = icu::Normalizer2::getNFDInstance(failed);
      break;
    case Form::nfkc:
      found = icu::Normalizer2::getNFKCInstance(failed);
      break;
    case Form::nfkd:
      found = icu::Normalizer2::getNFKDInstance(failed);
      break;
  }
  if (U_FAILURE(failed) || found == nullptr) throw_internal("ICU has no Unicode normalization data");
  return *found;
}

// The characters that the original library's tables know; it leaves younger ones alone, and apart.
const icu::UnicodeSet& known_characters() {
  static const auto set = [] {
    UErrorCode failed = U_ZERO_ERROR;
    icu::UnicodeSet known(u"[:age=9.0:]", failed);
    if (U_FAILURE(failed)) throw_internal("ICU does not know the ages of characters");
    known.freeze();
    return known;
  }();
  return set;
}

template <typename PerCharacter>
std::string map_characters(std::string_view text, PerCharacter&& append) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) append(out, take_utf8(text, at));
  return out;
}

std::string apply_step(const Normalizer::Unicode& step, std::string text) {
  if (text.size() > static_cast<std::size_t>(INT32_MAX)) throw_bad_data("a text of more than 2 GiB");
  UErrorCode failed = U_ZERO_ERROR;
  std::string out;
  icu::StringByteSink<std::string> sink(&out, static_cast<std::int32_t>(text.size()));
  const icu::FilteredNormalizer2 normalizer(normalizer_of(step.form), known_characters());
  normalizer.normalizeUTF8(0, text, sink, nullptr, failed);
  if (U_FAILURE(failed))
    throw_internal(std::string("ICU failed to normalize a text: ") + u_errorName(failed));
  return out;
}

std::string apply_step(const Normalizer::Lowercase&, std::string text) {
  return map_characters(text, [](std::string& out, char32_t code) {
    append_utf8(out, static_cast<char32_t>(u_tolower(static_cast<UChar32>(code))));
    // The one character whose lower case, taken alone, is two.
    if (code == 0x130) append_utf8(out, 0x307);
  });
}

std::string apply_step(const Normalizer::StripAccents&, std::string text) {
  return map_characters(text, [](std::string& out, char32_t code) {
    if ((U_GET_GC_MASK(static_cast<UChar32>(code)) & U_GC_M_MASK) == 0) append_utf8(out, code);
  });
}

std::string apply_step(const Normalizer::ByteLetters&, std::string text) {
  return letters_of_bytes(text);
}

std::string apply_step(const Normalizer::Strip& step, std::string text) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (step.left && begin < end) {
    auto next = begin;
    if (!is_white_space(take_utf8(text, next))) break;
    begin = next;
  }
  while (step.right && end > begin) {
    auto last = before_utf8(text, end);
    const auto start = last;
    if (!is_white_space(take_utf8(text, last))) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

std::string apply_step(const Normalizer::Prepend& step, std::string text) {
  return text.empty() ? text : step.text + text;
}

std::string apply_step(const Normalizer::Replace& step, std::string text) {
  return step.pattern.replace(text, step.content);
}

std::string apply_step(const Normalizer::Nmt&, std::string text) {
  return map_characters(text, [](std::string& out, char32_t code) {
    const auto within = [&](char32_t first, char32_t last) { return code >= first && code <= last; };
    if (within(0x1, 0x8) || code == 0xB || within(0xE, 0x1F) || code == 0x7F || code == 0x8F || code == 0x9F)
      return;
    const bool space = code == 0x9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
                       within(0x200B, 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
                       code == 0xFEFF || code == 0xFFFD;
    append_utf8(out, space ? U' ' : code);
  });
}

std::string apply_step(const Normalizer::Precompiled& step, std::string text) {
  return step.map->by_clusters(text);
}

// What one step of sentencepiece's normalizer takes off a text (not empty) and what it writes for it.
Charsmap::Match sentencepiece_rule(const Normalizer::SentencePiece& step, std::string_view text) {
  if (step.map) {
    if (const auto rule = step.map->longest(text)) return *rule;
  }
  std::size_t bytes = 0;
  take_utf8(text, bytes);
  return {bytes, text.substr(0, bytes)};
}

std::string apply_step(const Normalizer::SentencePiece& step, std::string text) {
  const std::string space = step.escape_spaces ? "\u2581" : " ";
  std::string out;
  std::string_view rest = text;
  while (step.remove_extra_spaces && !rest.empty()) {
    const auto rule = sentencepiece_rule(step, rest);
    if (rule.text != " ") break;
    rest.remove_prefix(rule.bytes);
  }
  if (rest.empty()) return out;
  if (step.space_in_front) out += space;
  bool behind_space = step.remove_extra_spaces;
  while (!rest.empty()) {
    auto [bytes, written] = sentencepiece_rule(step, rest);
    rest.remove_prefix(bytes);
    while (behind_space && written.starts_with(' ')) written.remove_prefix(1);
    for (const char letter : written) {
      if (letter == ' ') {
        out += space;
      } else {
        out += letter;
      }
    }
    if (!written.empty()) behind_space = step.remove_extra_spaces && written.ends_with(' ');
  }
  while (step.remove_extra_spaces && out.ends_with(space)) out.resize(out.size() - space.size());
  return out;
}

}  // namespace

Normalizer Normalizer::from_json(const Json& element, const std::string& where) {
  Normalizer normalizer;
  if (!element.is_null()) normalizer.add(element, where);
  return normalizer;
}

void Normalizer::add(const Json& element, const std::string& where) {
  const auto type = element_type(element, where);
  const auto here = where + " " + in_quotes(type);
  using Form = Unicode::Form;
  if (type == "Sequence") {
    for (const auto& inner : require_array(element, "normalizers", here)) add(inner, where);
  } else if (type == "NFC") {
    steps_.emplace_back(Unicode{Form::nfc});
  } else if (type == "NFD") {
    steps_.emplace_back(Unicode{Form::nfd});
  } else if (type == "NFKC") {
    steps_.emplace_back(Unicode{Form::nfkc});
  } else if (type == "NFKD") {
    steps_.emplace_back(Unicode{Form::nfkd});
  } else if (type == "Lowercase") {
    steps_.emplace_back(Lowercase{});
  } else if (type == "StripAccents") {
    steps_.emplace_back(StripAccents{});
  } else if (type == "ByteLevel") {
    steps_.emplace_back(ByteLetters{});
  } else if (type == "Strip") {
    steps_.emplace_back(Strip{bool_member(element, "strip_left", true, here),
                              bool_member(element, "strip_right", true, here)});
  } else if (type == "Prepend") {
    steps_.emplace_back(Prepend{require_string(element, "prepend", here)});
  } else if (type == "Replace") {
    steps_.emplace_back(
        Replace{TextPattern::from_json(element, here), require_string(element, "content", here)});
  } else if (type == "Nmt") {
    steps_.emplace_back(Nmt{});
  } else if (type == "Precompiled") {
    const auto blob = decode_base64(require_string(element, "precompiled_charsmap", here),
                                    here + ": 'precompiled_charsmap'");
    steps_.emplace_back(Precompiled{std::make_shared<Charsmap>(Charsmap::parse(blob, here))});
  } else {
    throw_refused(here + " is not known to this build");
  }
}

std::string Normalizer::apply(std::string text) const {
  for (const auto& step : steps_)
    text = std::visit([&](const auto& kind) { return apply_step(kind, std::move(text)); }, step);
  return text;
}

}  // namespace diffuse

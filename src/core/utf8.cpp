#include "core/utf8.hpp"

#include <algorithm>

namespace diffuse {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// str.isspace of Python for one character.
bool is_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
  using Kind = Utf8Step::Kind;
  const unsigned lead = byte_at(text, 0);
  if (lead < 0x80) return {Kind::whole, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::broken, 1, 0};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range keeps out overlong forms, surrogates and what lies above U+10FFFF.
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  char32_t code = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Kind::incomplete, i, 0};
    const unsigned byte = byte_at(text, i);
    if (byte < low || byte > high) return {Kind::broken, i, 0};
    code = (code << 6) | (byte & 0x3FU);
    low = 0x80;
    high = 0xBF;
  }
  return {Kind::whole, length, code};
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto step = next_utf8(text);
    if (step.kind != Utf8Step::Kind::whole) return false;
    text.remove_prefix(step.bytes);
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  Utf8Stream stream;
  auto repaired = stream.push(text);
  return repaired + stream.finish();
}

char32_t take_utf8(std::string_view text, std::size_t& at) {
  const auto step = next_utf8(text.substr(at));
  at += step.bytes;
  return step.code;
}

std::size_t before_utf8(std::string_view text, std::size_t at) {
  do {
    --at;
  } while (at > 0 && (byte_at(text, at) & 0xC0U) == 0x80U);
  return at;
}

void append_utf8(std::string& text, char32_t code) {
  const auto tail = [&](unsigned shift) { text += static_cast<char>(0x80U | ((code >> shift) & 0x3FU)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0U | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0U | (code >> 12));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0U | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::size_t count_utf8(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  }));
}

std::string_view utf8_prefix(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<std::uint8_t>(text[bytes]) & 0xC0U) == 0x80U) --bytes;
  return text.substr(0, bytes);
}

std::string_view stripped(std::string_view text) {
  std::size_t begin = 0;
  for (std::size_t next = 0; next < text.size() && is_space(take_utf8(text, next)); begin = next) {
  }
  std::size_t end = text.size();
  while (end > begin) {
    const std::size_t before = before_utf8(text, end);
    std::size_t at = before;
    if (!is_space(take_utf8(text, at))) break;
    end = before;
  }
  return text.substr(begin, end - begin);
}

std::string visible(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  const auto escape = [&](std::uint8_t code) {
    out += "\\x";
    out += kDigits[code >> 4];
    out += kDigits[code & 15];
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<std::uint8_t>(text[at]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      escape(byte);
    } else if (byte == 0xC2 && at + 1 < text.size() && static_cast<std::uint8_t>(text[at + 1]) < 0xA0) {
      escape(static_cast<std::uint8_t>(text[++at]));
    } else {
      out += text[at];
    }
  }
  return out;
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string joined;
  std::string_view rest = bytes;
  if (!held_.empty()) {
    joined = held_;
    joined += bytes;
    rest = joined;
    held_.clear();
  }
  std::string out;
  out.reserve(rest.size());
  while (!rest.empty()) {
    const auto step = next_utf8(rest);
    switch (step.kind) {
      case Utf8Step::Kind::whole:
        out += rest.substr(0, step.bytes);
        break;
      case Utf8Step::Kind::broken:
        out += kReplacementUtf8;
        break;
      case Utf8Step::Kind::incomplete:
        held_ = rest;
        return out;
    }
    rest.remove_prefix(step.bytes);
  }
  return out;
}

std::string Utf8Stream::finish() {
  if (held_.empty()) return {};
  held_.clear();
  return std::string(kReplacementUtf8);
}

}  // namespace diffuse

#include "job/utf8.hpp"

#include <cstdint>

namespace diffuse::job_detail {
namespace {

struct Lead {
  int length;        // of the whole character; 0: no character begins so
  std::uint8_t low;  // bounds of the second byte; the others are 80 to BF
  std::uint8_t high;
};

constexpr Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

struct Step {
  std::size_t bytes;
  bool whole;
};

Step step_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const Lead lead = lead_of(byte(at));
  if (lead.length == 0) return {1, false};
  std::size_t bytes = 1;
  for (; bytes < static_cast<std::size_t>(lead.length); ++bytes) {
    if (at + bytes >= text.size()) return {bytes, false};
    const std::uint8_t low = bytes == 1 ? lead.low : 0x80;
    const std::uint8_t high = bytes == 1 ? lead.high : 0xBF;
    if (byte(at + bytes) < low || byte(at + bytes) > high) return {bytes, false};
  }
  return {bytes, true};
}

}  // namespace

std::string repair_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const Step step = step_at(bytes, at);
    if (step.whole) {
      text += bytes.substr(at, step.bytes);
    } else {
      text += "\xEF\xBF\xBD";
    }
    at += step.bytes;
  }
  return text;
}

std::string_view utf8_prefix(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<std::uint8_t>(text[bytes]) & 0xC0U) == 0x80U) --bytes;
  return text.substr(0, bytes);
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

}  // namespace diffuse::job_detail

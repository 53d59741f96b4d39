#include "text/byte_letters.hpp"

#include <array>

#include "core/utf8.hpp"

namespace diffuse {
namespace {

struct Alphabet {
  std::array<std::string, 256> letter;
  std::array<int, kByteLetterEnd> byte;

  Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (int value = 0; value < 256; ++value) {
      const bool printable =
          (value >= 0x21 && value <= 0x7E) || (value >= 0xA1 && value <= 0xAC) || value >= 0xAE;
      const auto code = printable ? static_cast<char32_t>(value) : next++;
      append_utf8(letter[static_cast<std::size_t>(value)], code);
      byte[code] = value;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string letters_of_bytes(std::string_view bytes) {
  const auto& letter = alphabet().letter;
  std::string letters;
  letters.reserve(bytes.size() + bytes.size() / 4);
  for (const char byte : bytes) letters += letter[static_cast<unsigned char>(byte)];
  return letters;
}

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  const auto& byte = alphabet().byte;
  std::string bytes;
  bytes.reserve(letters.size());
  for (std::size_t at = 0; at < letters.size();) {
    const auto code = take_utf8(letters, at);
    if (code >= kByteLetterEnd || byte[code] < 0) return std::nullopt;
    bytes += static_cast<char>(byte[code]);
  }
  return bytes;
}

}  // namespace diffuse

#pragma once
// The alphabet of byte-level vocabularies (GPT-2's): each byte is written as one printable character.

#include <optional>
#include <string>
#include <string_view>

namespace diffuse {

// Every letter's code point is below this.
inline constexpr char32_t kByteLetterEnd = 0x144;

// The letter of each byte.
std::string letters_of_bytes(std::string_view bytes);

// The bytes of letters; nothing where one of the characters is not a letter of the alphabet.
std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace diffuse

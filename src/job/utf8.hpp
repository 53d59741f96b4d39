#pragma once
// UTF-8 for this folder. (text/ has its own, with what Unicode says of a character; this folder does not link
// it.)

#include <cstddef>
#include <string>
#include <string_view>

namespace diffuse::job_detail {

// Python's bytes.decode('utf-8', 'replace'): each longest prefix of a valid character that does not become
// one is replaced by one U+FFFD.
std::string repair_utf8(std::string_view bytes);

// The longest whole-character prefix of valid UTF-8 that has at most `bytes` bytes.
std::string_view utf8_prefix(std::string_view text, std::size_t bytes);

// Control characters (C0 but newline and tab, DEL, C1) as visible \xNN.
std::string visible(std::string_view text);

}  // namespace diffuse::job_detail

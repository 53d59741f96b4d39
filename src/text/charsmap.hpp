#pragma once
// The `precompiled_charsmap` of a sentencepiece model: rules that write one string for another, in a double
// array over UTF-8 bytes. Its bytes are a stranger's: all of it that a text can reach is checked when it is
// read.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.hpp"

namespace diffuse {

class Charsmap {
 public:
  struct Match {
    std::size_t bytes;      // of the text that the rule replaces, at least 1
    std::string_view text;  // what it writes, valid UTF-8; may be empty
  };

  // `blob`: the double array's size in bytes (u32), its units (u32), then the replacements, each ended by a
  // NUL; all little endian. Throws bad data where it leads out of its own bounds.
  static Charsmap parse(std::string_view blob, const std::string& where);

  // The rules whose left side begins the text.
  std::optional<Match> shortest(std::string_view text) const;
  std::optional<Match> longest(std::string_view text) const;

  // Valid UTF-8, rewritten as Hugging Face's `tokenizers` does it: a user-perceived character of less than 6
  // bytes becomes what the shortest rule says that begins it, else each of its code points does. (The library
  // of sentencepiece itself takes the longest rule at each place instead.)
  std::string by_clusters(std::string_view text) const;

 private:
  template <typename Visit>
  void walk(std::string_view text, Visit&& visit) const;
  std::string_view replacement(std::uint32_t at) const;
  void check(const std::string& where) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

// The bytes of a string in base64. Throws bad data where it is not that; `where` names it.
std::string decode_base64(std::string_view text, const std::string& where);

}  // namespace diffuse

#pragma once
// Tokens that are found in the text itself, before the model cuts what lies between them.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/normalizer.hpp"

namespace diffuse {

struct AddedToken {
  std::int32_t id;
  std::string content;
  bool single_word = false;  // found only where no word character touches it
  bool lstrip = false;       // takes the white space on its left
  bool rstrip = false;
  bool normalized = true;  // looked for in the normalized text, in its normalized form
  bool special = false;    // may be left out of decoded text
};

// A piece of a text: an added token (id >= 0), or text between them (id < 0).
struct AddedPiece {
  TextSpan span;
  std::int32_t id;
};

// Finds the leftmost, then longest, of a set of strings.
class TokenFinder {
 public:
  TokenFinder() { first_.fill(-1); }

  // Throws bad data where two tokens are the same string, refused where one is very long.
  void add(std::string_view pattern, const AddedToken& token, const std::string& where);
  bool empty() const { return nodes_.empty(); }
  // Covers valid UTF-8, in order.
  std::vector<AddedPiece> find(std::string_view text) const;

 private:
  struct Node {
    std::unordered_map<unsigned char, std::int32_t> next;
    std::int32_t token = -1;  // index into tokens_
  };
  std::int32_t step(std::int32_t node, unsigned char byte) const;
  const AddedToken* longest_at(std::string_view text, std::size_t at, std::size_t& end) const;

  std::array<std::int32_t, 256> first_;
  std::vector<Node> nodes_;
  std::vector<AddedToken> tokens_;
};

}  // namespace diffuse

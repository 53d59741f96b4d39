#pragma once
// The `pre_tokenizer` of a tokenizer.json: cuts a text into words, which the model then cuts into tokens.

#include <string>
#include <variant>
#include <vector>

#include "core/json.hpp"
#include "text/regex.hpp"

namespace diffuse {

// A stretch of the text that no added token covers.
struct Word {
  std::string text;
  bool at_start;  // begins where the whole text begins
};

class PreTokenizer {
 public:
  // What becomes of the matches of a pattern.
  enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  enum class CharacterClass { white_space, numeric, punctuation };
  enum class Prepend { always, first, never };

  struct ByteLevel {
    bool add_prefix_space;
    bool use_regex;
  };
  struct Split {
    TextPattern pattern;
    Behavior behavior;
    bool invert;
  };
  struct Characters {  // every character of a class is a match
    CharacterClass kind;
    Behavior behavior;
  };
  struct Words {};  // Whitespace: runs of word characters, runs of the others, no spaces
  struct Metaspace {
    std::string replacement;
    Prepend prepend;
    bool split;
  };
  // Nested sequences are laid flat.
  using Step = std::variant<ByteLevel, Split, Characters, Words, Metaspace>;

  // `element` may be null: the text is one word. Throws refused for an unknown type, naming it.
  static PreTokenizer from_json(const Json& element, const std::string& where);

  // The words of valid UTF-8; none is empty.
  std::vector<Word> apply(Word text) const;

 private:
  void add(const Json& element, const std::string& where);
  std::vector<Step> steps_;
};

}  // namespace diffuse

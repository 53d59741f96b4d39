#pragma once
// The `normalizer` of a tokenizer.json: text -> text, before it is cut into words.

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/json.hpp"
#include "text/charsmap.hpp"
#include "text/regex.hpp"

namespace diffuse {

class Normalizer {
 public:
  struct Unicode {
    enum class Form { nfc, nfd, nfkc, nfkd } form;
  };
  struct Lowercase {};
  struct StripAccents {};
  struct ByteLetters {};
  struct Strip {
    bool left;
    bool right;
  };
  struct Prepend {  // nothing to an empty text
    std::string text;
  };
  struct Replace {
    TextPattern pattern;
    std::string content;
  };
  struct Nmt {};  // drops control characters, makes spaces of other white space
  struct Precompiled {
    std::shared_ptr<const Charsmap> map;
  };
  // What the library of sentencepiece does before it looks for pieces: the longest rule at each place, spaces
  // in excess taken out, one put in front, all of them written as U+2581.
  struct SentencePiece {
    std::shared_ptr<const Charsmap> map;  // may be null
    bool remove_extra_spaces;
    bool space_in_front;
    bool escape_spaces;
  };
  // Nested sequences are laid flat.
  using Step = std::variant<Unicode, Lowercase, StripAccents, ByteLetters, Strip, Prepend, Replace, Nmt,
                            Precompiled, SentencePiece>;

  // `element` may be null: the text stays as it is. Throws refused for an unknown type, naming it.
  static Normalizer from_json(const Json& element, const std::string& where);

  void add(Step step) { steps_.push_back(std::move(step)); }

  // `text` must be valid UTF-8.
  std::string apply(std::string text) const;
  bool empty() const { return steps_.empty(); }

 private:
  void add(const Json& element, const std::string& where);
  std::vector<Step> steps_;
};

}  // namespace diffuse

#pragma once
// The `normalizer` of a tokenizer.json: text -> text, before it is cut into words.

#include <string>
#include <variant>
#include <vector>

#include "core/json.hpp"
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
  // Nested sequences are laid flat.
  using Step = std::variant<Unicode, Lowercase, StripAccents, ByteLetters, Strip, Prepend, Replace>;

  // `element` may be null: the text stays as it is. Throws refused for an unknown type, naming it.
  static Normalizer from_json(const Json& element, const std::string& where);

  // `text` must be valid UTF-8.
  std::string apply(std::string text) const;
  bool empty() const { return steps_.empty(); }

 private:
  void add(const Json& element, const std::string& where);
  std::vector<Step> steps_;
};

}  // namespace diffuse

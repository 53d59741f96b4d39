#pragma once
// A template's text -> tokens, as Jinja's lexer cuts it with trim_blocks and lstrip_blocks on.

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.hpp"

namespace diffuse::jinja {

struct Token {
  enum class Kind {
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,
    number,
    symbol,
    end
  };
  Kind kind;
  std::string text;  // data, a name, a symbol, or the value of a string
  Value number;
  int line;
};

// `source` must be valid UTF-8. Throws TemplateError; its message names the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace diffuse::jinja

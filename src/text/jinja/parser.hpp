#pragma once
// Tokens -> a parsed template, by Jinja's grammar. Nesting is bounded.

#include <string_view>

#include "text/jinja/ast.hpp"

namespace diffuse::jinja {

// `source` must be valid UTF-8. Throws TemplateError; its message names the line.
Block parse_template(std::string_view source);

}  // namespace diffuse::jinja

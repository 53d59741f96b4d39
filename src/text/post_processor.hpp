#pragma once
// The `post_processor` of a tokenizer.json: the tokens that stand before and behind a text when special
// tokens are asked for. Each kind of it comes down to that.

#include <cstdint>
#include <vector>

#include "core/json.hpp"

namespace diffuse {

struct PostProcessor {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> behind;

  // `element` may be null. Throws refused for an unknown type (naming it) or a template that is more than
  // tokens around one text.
  static PostProcessor from_json(const Json& element, const std::string& where);
};

}  // namespace diffuse

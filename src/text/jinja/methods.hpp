#pragma once
// Methods of strings, lists and dicts. Those that change a value are not there, as in the sandbox.

#include <optional>
#include <string>

#include "text/jinja/value.hpp"

namespace diffuse::jinja {

// The method bound to the object; nothing where its type has none of this name.
std::optional<Value> find_method(const Value& object, const std::string& name);

}  // namespace diffuse::jinja

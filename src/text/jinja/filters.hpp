#pragma once
// Jinja's filters and tests, by name.

#include <string_view>

#include "text/jinja/machine.hpp"

namespace diffuse::jinja {

using FilterFunction = Value (*)(Machine& machine, const Value& operand, const Arguments& arguments);
using TestFunction = bool (*)(Machine& machine, const Value& operand, const Arguments& arguments);

// Null where there is none of this name. Filters are in three groups, by what they work on.
FilterFunction find_text_filter(std::string_view name);
FilterFunction find_list_filter(std::string_view name);
FilterFunction find_value_filter(std::string_view name);
TestFunction find_test(std::string_view name);

}  // namespace diffuse::jinja

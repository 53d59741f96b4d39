#pragma once
// Python's operators on template values. Each throws TemplateError where Python raises.

#include "text/jinja/ast.hpp"
#include "text/jinja/machine.hpp"

namespace diffuse::jinja {

[[noreturn]] void undefined_used(const Undefined& undefined);

Value arithmetic(Machine& machine, Operator op, const Value& left, const Value& right);
Value negate(const Value& value);
Value positive(const Value& value);
bool compare(Machine& machine, Comparison comparison, const Value& left, const Value& right);
// value[start:stop:step]; None stands for a part that is left out.
Value slice(Machine& machine, const Value& value, const Value& start, const Value& stop, const Value& step);
// An index or count: an int or a bool. `what` names it in the error.
Int to_int(const Value& value, const std::string& what);
// The index that Python means, in [0, size), or -1 where there is none.
std::ptrdiff_t index_of(Int index, std::size_t size);

}  // namespace diffuse::jinja

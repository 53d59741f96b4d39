// What stands behind `is`.

#include <map>

#include "text/jinja/bind.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/python_text.hpp"

namespace diffuse::jinja {
namespace {

template <typename Kind>
bool is_kind(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("the test", arguments, {});
  return operand.is<Kind>();
}

template <typename Kind>
bool is_not_kind(Machine& machine, const Value& operand, const Arguments& arguments) {
  return !is_kind<Kind>(machine, operand, arguments);
}

template <bool wanted>
bool is_flag(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("the test", arguments, {});
  const auto* flag = operand.as<bool>();
  return flag != nullptr && *flag == wanted;
}

bool is_number(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("number", arguments, {});
  return operand.is<bool>() || operand.is<Int>() || operand.is<double>();
}

bool is_sequence(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("sequence", arguments, {});
  if (const auto* sequence = operand.as<Sequence>()) return sequence->taken == nullptr;
  return operand.is<Text>() || operand.is<Mapping>();
}

bool is_iterable(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("iterable", arguments, {});
  return operand.is<Text>() || operand.is<Mapping>() || operand.is<Sequence>() || operand.is<Undefined>() ||
         operand.is<Loop>();
}

bool is_callable(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("callable", arguments, {});
  return operand.is<Function>() || operand.is<Loop>() || operand.is<Undefined>();
}

template <Comparison comparison>
bool compares(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("the test", arguments, {"other"});
  return compare(machine, comparison, operand, bound.require(0));
}

template <int wanted>
bool has_parity(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("the test", arguments, {});
  return equal(arithmetic(machine, Operator::modulo, operand, Value(Int{2})), Value(Int{wanted}));
}

bool is_divisible(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"});
  return equal(arithmetic(machine, Operator::modulo, operand, bound.require(0)), Value(Int{0}));
}

bool is_same(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"});
  return same_object(operand, bound.require(0));
}

template <bool (*fits)(std::string_view)>
bool text_is(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("the test", arguments, {});
  return fits(to_text(operand));
}

bool is_escaped(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("escaped", arguments, {});
  const auto* text = operand.as<Text>();
  return text != nullptr && text->markup;
}

bool is_filter(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("filter", arguments, {});
  const auto name = to_text(operand);
  return find_text_filter(name) != nullptr || find_list_filter(name) != nullptr ||
         find_value_filter(name) != nullptr;
}

bool is_test(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("test", arguments, {});
  return find_test(to_text(operand)) != nullptr;
}

}  // namespace

TestFunction find_test(std::string_view name) {
  static const std::map<std::string_view, TestFunction> tests = {
      {"!=", compares<Comparison::unequal>},
      {"<", compares<Comparison::less>},
      {"<=", compares<Comparison::less_equal>},
      {"==", compares<Comparison::equal>},
      {">", compares<Comparison::greater>},
      {">=", compares<Comparison::greater_equal>},
      {"boolean", is_kind<bool>},
      {"callable", is_callable},
      {"defined", is_not_kind<Undefined>},
      {"divisibleby", is_divisible},
      {"eq", compares<Comparison::equal>},
      {"equalto", compares<Comparison::equal>},
      {"escaped", is_escaped},
      {"even", has_parity<0>},
      {"false", is_flag<false>},
      {"filter", is_filter},
      {"float", is_kind<double>},
      {"ge", compares<Comparison::greater_equal>},
      {"greaterthan", compares<Comparison::greater>},
      {"gt", compares<Comparison::greater>},
      {"in", compares<Comparison::in>},
      {"integer", is_kind<Int>},
      {"iterable", is_iterable},
      {"le", compares<Comparison::less_equal>},
      {"lessthan", compares<Comparison::less>},
      {"lower", text_is<is_lower>},
      {"lt", compares<Comparison::less>},
      {"mapping", is_kind<Mapping>},
      {"ne", compares<Comparison::unequal>},
      {"none", is_kind<None>},
      {"number", is_number},
      {"odd", has_parity<1>},
      {"sameas", is_same},
      {"sequence", is_sequence},
      {"string", is_kind<Text>},
      {"test", is_test},
      {"true", is_flag<true>},
      {"undefined", is_kind<Undefined>},
      {"upper", text_is<is_upper>},
  };
  const auto found = tests.find(name);
  return found == tests.end() ? nullptr : found->second;
}

bool Machine::test(const std::string& name, const Value& operand, const Arguments& arguments) {
  step();
  const auto function = find_test(name);
  if (function == nullptr) throw TemplateError("the test '" + name + "' is not known", true);
  return function(*this, operand, arguments);
}

}  // namespace diffuse::jinja

#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "core/utf8.hpp"
#include "text/jinja/bind.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/python_text.hpp"

namespace diffuse::jinja {
namespace {

Value default_filter(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool missing = operand.is<Undefined>() || (bound.flag(1, false) && !is_true(operand));
  if (!missing) return operand;
  return bound.find(0) != nullptr ? *bound.find(0) : make_text("");
}

Value length_filter(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("length", arguments, {});
  const auto number = [](std::size_t size) { return Value(static_cast<Int>(size)); };
  if (operand.is<Undefined>()) return number(0);
  if (const auto* text = operand.as<Text>()) return number(count_utf8(*text->text));
  if (const auto* mapping = operand.as<Mapping>()) return number(mapping->entries->size());
  if (const auto* loop = operand.as<Loop>()) return number(loop->state->items.size());
  if (const auto* sequence = operand.as<Sequence>(); sequence && sequence->taken == nullptr)
    return number(sequence->items->size());
  throw TemplateError("object of type '" + std::string(type_name(operand)) + "' has no len()");
}

Value string_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("string", arguments, {});
  return operand.is<Text>() ? operand : machine.text(to_text(operand));
}

Value abs_filter(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("abs", arguments, {});
  if (const auto* real = operand.as<double>()) return Value(std::fabs(*real));
  const auto number = positive(operand);
  return *number.as<Int>() < 0 ? negate(number) : number;
}

// Digits with single underscores between them, as Python's numbers have.
std::optional<std::string> without_underscores(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() &&
                         std::isalnum(static_cast<unsigned char>(text[i - 1])) != 0 &&
                         std::isalnum(static_cast<unsigned char>(text[i + 1])) != 0;
    if (!between) return std::nullopt;
  }
  return out;
}

std::optional<Int> parse_int(const std::string& given, std::int64_t base) {
  auto text = without_underscores(strip(given, Side::both, std::nullopt));
  if (!text || text->empty()) return std::nullopt;
  const bool negative = text->front() == '-';
  std::size_t at = negative || text->front() == '+' ? 1 : 0;
  const auto prefix = text->substr(at, 2);
  const auto prefixed = prefix == "0x" || prefix == "0X"   ? 16
                        : prefix == "0o" || prefix == "0O" ? 8
                        : prefix == "0b" || prefix == "0B" ? 2
                                                           : 0;
  if (prefixed != 0 && (base == prefixed || base == 0)) {
    base = prefixed;
    at += 2;
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || at >= text->size()) return std::nullopt;
  Int value = 0;
  for (; at < text->size(); ++at) {
    const char letter = (*text)[at];
    const int digit = letter >= '0' && letter <= '9'   ? letter - '0'
                      : letter >= 'a' && letter <= 'z' ? letter - 'a' + 10
                      : letter >= 'A' && letter <= 'Z' ? letter - 'A' + 10
                                                       : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Int{base}, &value) || __builtin_add_overflow(value, Int{digit}, &value))
      throw TemplateError("a whole number of more than 127 bits");
  }
  return negative ? -value : value;
}

std::optional<double> parse_float(const std::string& given) {
  const auto clean = without_underscores(strip(given, Side::both, std::nullopt));
  if (!clean || clean->empty()) return std::nullopt;
  const char* begin = clean->data();
  const char* end = begin + clean->size();
  if (*begin == '+' && clean->size() > 1 && clean->at(1) != '-') ++begin;
  double value = 0;
  const auto [stop, failed] = std::from_chars(begin, end, value);
  if (stop != end || failed == std::errc::invalid_argument) return std::nullopt;
  if (failed == std::errc::result_out_of_range) throw TemplateError("a number that no float holds");
  return value;
}

std::optional<double> float_of(const Value& value) {
  if (const auto* undefined = value.as<Undefined>()) undefined_used(*undefined);
  if (const auto* real = value.as<double>()) return *real;
  if (const auto* flag = value.as<bool>()) return *flag ? 1 : 0;
  if (const auto* integer = value.as<Int>()) return static_cast<double>(*integer);
  if (const auto* text = value.as<Text>()) return parse_float(*text->text);
  return std::nullopt;
}

Value float_filter(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  if (const auto value = float_of(operand)) return Value(*value);
  return bound.find(0) != nullptr ? *bound.find(0) : Value(0.0);
}

Value int_filter(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  if (operand.is<Int>() || operand.is<bool>()) return positive(operand);
  if (const auto* text = operand.as<Text>()) {
    if (const auto value = parse_int(*text->text, bound.count(1, 10))) return Value(*value);
  }
  const auto real = float_of(operand);
  if (real && std::isfinite(*real)) {
    if (std::fabs(*real) >= 0x1p126) throw TemplateError("a whole number of more than 127 bits");
    return Value(static_cast<Int>(*real));
  }
  return bound.find(0) != nullptr ? *bound.find(0) : Value(Int{0});
}

// Python rounds what the decimal digits of the exact value say, halves to even; so does printf.
double round_decimal(double value, std::int64_t digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(std::min<std::int64_t>(-digits, 400)));
    return std::isinf(unit) ? 0.0 * value : std::nearbyint(value / unit) * unit;
  }
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), value);
  double rounded = 0;
  std::from_chars(buffer, buffer + std::char_traits<char>::length(buffer), rounded);
  return rounded;
}

Value round_filter(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const auto method = bound.text(1).value_or("common");
  const auto digits = bound.count(0, 0);
  if (method != "common" && method != "ceil" && method != "floor")
    throw TemplateError("method must be common, ceil or floor");
  if (operand.is<Text>()) throw TemplateError("type str doesn't define __round__ method");
  const auto value = float_of(operand);
  if (!value) throw TemplateError("round needs a number, not '" + std::string(type_name(operand)) + "'");
  if (method == "common") {
    if (!operand.is<double>() && digits >= 0) return positive(operand);
    if (!operand.is<double>()) throw TemplateError("rounding a whole number to tens is not known", true);
    return Value(round_decimal(*value, digits));
  }
  const double unit = std::pow(10.0, static_cast<double>(std::clamp<std::int64_t>(digits, -300, 300)));
  return Value((method == "ceil" ? std::ceil(*value * unit) : std::floor(*value * unit)) / unit);
}

Value attr_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"});
  const auto name = to_text(bound.require(0));
  // Items are not attributes here, unlike behind a dot.
  if (operand.is<Mapping>()) {
    const auto found = machine.attribute(operand, name);
    return found.is<Function>() ? found : make_undefined("'dict object' has no attribute '" + name + "'");
  }
  return machine.attribute(operand, name);
}

}  // namespace

FilterFunction find_value_filter(std::string_view name) {
  static const std::map<std::string_view, FilterFunction> filters = {
      {"abs", abs_filter},       {"attr", attr_filter},       {"count", length_filter},
      {"d", default_filter},     {"default", default_filter}, {"float", float_filter},
      {"int", int_filter},       {"length", length_filter},   {"round", round_filter},
      {"string", string_filter},
  };
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

Value Machine::filter(const std::string& name, const Value& operand, const Arguments& arguments) {
  step();
  for (const auto find : {find_text_filter, find_list_filter, find_value_filter})
    if (const auto function = find(name)) return function(*this, operand, arguments);
  throw TemplateError("the filter '" + name + "' is not known", true);
}

}  // namespace diffuse::jinja

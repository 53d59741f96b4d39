#include "text/jinja/operators.hpp"

#include <cmath>
#include <limits>
#include <optional>

#include "text/jinja/python_text.hpp"

namespace diffuse::jinja {
namespace {

std::optional<Int> integer_of(const Value& value) {
  if (const auto* flag = value.as<bool>()) return *flag ? 1 : 0;
  if (const auto* integer = value.as<Int>()) return *integer;
  return std::nullopt;
}

std::optional<double> real_of(const Value& value) {
  if (const auto* real = value.as<double>()) return *real;
  if (const auto integer = integer_of(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

std::string_view symbol_of(Operator op) {
  constexpr std::string_view kSpelled[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSpelled[static_cast<int>(op)];
}

[[noreturn]] void unsupported(Operator op, const Value& left, const Value& right) {
  throw TemplateError("unsupported operand types for " + std::string(symbol_of(op)) + ": '" +
                      std::string(type_name(left)) + "' and '" + std::string(type_name(right)) + "'");
}

[[noreturn]] void too_large() {
  throw TemplateError("a whole number of more than 127 bits");
}

[[noreturn]] void by_zero() {
  throw TemplateError("division by zero");
}

Int floor_quotient(Int left, Int right) {
  const Int quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

Int integer_power(Int base, Int exponent) {
  Int result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) too_large();
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return result;
}

Value integers(Operator op, Int left, Int right) {
  Int result = 0;
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(left, right, &result)) too_large();
      return Value(result);
    case Operator::subtract:
      if (__builtin_sub_overflow(left, right, &result)) too_large();
      return Value(result);
    case Operator::multiply:
      if (__builtin_mul_overflow(left, right, &result)) too_large();
      return Value(result);
    case Operator::divide:
      if (right == 0) by_zero();
      return Value(static_cast<double>(left) / static_cast<double>(right));
    case Operator::floor_divide:
    case Operator::modulo:
      if (right == 0) by_zero();
      // The one quotient that does not fit.
      if (right == -1)
        return Value(op == Operator::modulo ? Int{0} : std::get<Int>(negate(Value(left)).data));
      return Value(op == Operator::modulo ? left - floor_quotient(left, right) * right
                                          : floor_quotient(left, right));
    case Operator::power:
      if (right < 0) {
        if (left == 0) by_zero();
        return Value(std::pow(static_cast<double>(left), static_cast<double>(right)));
      }
      return Value(integer_power(left, right));
  }
  throw TemplateError("an operator without a case");
}

Value reals(Operator op, double left, double right) {
  switch (op) {
    case Operator::add:
      return Value(left + right);
    case Operator::subtract:
      return Value(left - right);
    case Operator::multiply:
      return Value(left * right);
    case Operator::divide:
      if (right == 0) by_zero();
      return Value(left / right);
    case Operator::floor_divide:
      if (right == 0) by_zero();
      return Value(std::floor(left / right));
    case Operator::modulo: {
      if (right == 0) by_zero();
      const double rest = std::fmod(left, right);
      return Value(rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest);
    }
    case Operator::power:
      return Value(std::pow(left, right));
  }
  throw TemplateError("an operator without a case");
}

Value add_texts(Machine& machine, const Text& left, const Text& right) {
  const bool markup = left.markup || right.markup;
  const auto part = [&](const Text& text) {
    return markup && !text.markup ? escape_html(*text.text) : *text.text;
  };
  machine.expect_text(left.text->size() + right.text->size());
  return machine.text(part(left) + part(right), markup);
}

Value add_sequences(Machine& machine, const Sequence& left, const Sequence& right) {
  machine.step(left.items->size() + right.items->size());
  auto items = *left.items;
  items.insert(items.end(), right.items->begin(), right.items->end());
  return make_sequence(std::move(items), left.kind);
}

Value repeat(Machine& machine, const Value& value, Int times) {
  if (times < 0) times = 0;
  constexpr Int kMost = std::numeric_limits<std::int32_t>::max();
  if (times > kMost) times = kMost;
  const auto count = static_cast<std::uint64_t>(times);
  if (const auto* text = value.as<Text>()) {
    machine.expect_text(count * text->text->size());
    std::string made;
    made.reserve(count * text->text->size());
    for (std::uint64_t i = 0; i < count && !text->text->empty(); ++i) made += *text->text;
    return make_text(std::move(made), text->markup);
  }
  const auto* sequence = value.as<Sequence>();
  machine.step(count * sequence->items->size());
  Values items;
  for (std::uint64_t i = 0; i < count && !sequence->items->empty(); ++i)
    items.insert(items.end(), sequence->items->begin(), sequence->items->end());
  return make_sequence(std::move(items), sequence->kind);
}

bool is_list(const Value& value) {
  const auto* sequence = value.as<Sequence>();
  return sequence != nullptr && sequence->kind != Sequence::Kind::generator;
}

bool contains(Machine& machine, const Value& container, const Value& value) {
  if (const auto* text = container.as<Text>()) {
    const auto* part = value.as<Text>();
    if (part == nullptr)
      throw TemplateError("'in <string>' requires a string, not '" + std::string(type_name(value)) + "'");
    machine.step(1 + text->text->size() / 64);
    return text->text->find(*part->text) != std::string::npos;
  }
  if (const auto* mapping = container.as<Mapping>()) {
    machine.step(1 + mapping->entries->size());
    return find_entry(*mapping->entries, value) != nullptr;
  }
  for (const auto& item : machine.iterate(container))
    if (equal(item, value)) return true;
  return false;
}

}  // namespace

void undefined_used(const Undefined& undefined) {
  throw TemplateError(*undefined.why);
}

Value arithmetic(Machine& machine, Operator op, const Value& left, const Value& right) {
  for (const auto* side : {&left, &right})
    if (const auto* undefined = side->as<Undefined>()) undefined_used(*undefined);
  if (const auto x = integer_of(left), y = integer_of(right); x && y) return integers(op, *x, *y);
  if (const auto x = real_of(left), y = real_of(right); x && y) return reals(op, *x, *y);
  if (op == Operator::add) {
    if (left.is<Text>() && right.is<Text>()) return add_texts(machine, *left.as<Text>(), *right.as<Text>());
    if (is_list(left) && is_list(right) && type_name(left) == type_name(right))
      return add_sequences(machine, *left.as<Sequence>(), *right.as<Sequence>());
  }
  if (op == Operator::multiply) {
    if (const auto times = integer_of(right); times && (left.is<Text>() || is_list(left)))
      return repeat(machine, left, *times);
    if (const auto times = integer_of(left); times && (right.is<Text>() || is_list(right)))
      return repeat(machine, right, *times);
  }
  if (op == Operator::modulo && left.is<Text>()) {
    Arguments arguments;
    if (const auto* tuple = right.as<Sequence>(); tuple && tuple->kind == Sequence::Kind::tuple) {
      arguments.positional = *tuple->items;
    } else if (const auto* mapping = right.as<Mapping>()) {
      for (const auto& [key, value] : *mapping->entries) arguments.named.emplace_back(to_text(key), value);
    } else {
      arguments.positional = {right};
    }
    return machine.text(percent_format(machine, *left.as<Text>()->text, arguments));
  }
  unsupported(op, left, right);
}

Value negate(const Value& value) {
  if (const auto* undefined = value.as<Undefined>()) undefined_used(*undefined);
  if (const auto* real = value.as<double>()) return Value(-*real);
  const auto integer = integer_of(value);
  if (!integer) throw TemplateError("bad operand type for unary -: '" + std::string(type_name(value)) + "'");
  Int result = 0;
  if (__builtin_sub_overflow(Int{0}, *integer, &result)) too_large();
  return Value(result);
}

Value positive(const Value& value) {
  if (const auto* undefined = value.as<Undefined>()) undefined_used(*undefined);
  if (value.is<double>()) return value;
  if (const auto integer = integer_of(value)) return Value(*integer);
  throw TemplateError("bad operand type for unary +: '" + std::string(type_name(value)) + "'");
}

bool compare(Machine& machine, Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::equal:
      return equal(left, right);
    case Comparison::unequal:
      return !equal(left, right);
    case Comparison::less:
      return less(left, right);
    case Comparison::less_equal:
      return less(left, right) || equal(left, right);
    case Comparison::greater:
      return less(right, left);
    case Comparison::greater_equal:
      return less(right, left) || equal(left, right);
    case Comparison::in:
      return contains(machine, right, left);
    case Comparison::not_in:
      return !contains(machine, right, left);
  }
  throw TemplateError("a comparison without a case");
}

Int to_int(const Value& value, const std::string& what) {
  if (const auto* undefined = value.as<Undefined>()) undefined_used(*undefined);
  const auto integer = integer_of(value);
  if (!integer)
    throw TemplateError(what + " must be a whole number, not '" + std::string(type_name(value)) + "'");
  return *integer;
}

std::ptrdiff_t index_of(Int index, std::size_t size) {
  const auto count = static_cast<Int>(size);
  if (index < 0) index += count;
  return index < 0 || index >= count ? -1 : static_cast<std::ptrdiff_t>(index);
}

Value slice(Machine& machine, const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (const auto* undefined = value.as<Undefined>()) undefined_used(*undefined);
  const auto* text = value.as<Text>();
  if (text == nullptr && !is_list(value))
    return make_undefined("'" + std::string(type_name(value)) + " object' has no slices");
  const auto letters = text != nullptr ? code_points(*text->text) : std::u32string();
  const auto size = static_cast<Int>(text != nullptr ? letters.size() : value.as<Sequence>()->items->size());
  const Int stride = step.is<None>() ? 1 : to_int(step, "a slice's step");
  if (stride == 0) throw TemplateError("slice step cannot be zero");
  const Int lowest = stride > 0 ? 0 : -1;
  const Int highest = stride > 0 ? size : size - 1;
  const auto bound = [&](const Value& given, Int otherwise) {
    if (given.is<None>()) return otherwise;
    Int at = to_int(given, "a slice's bound");
    if (at < 0) at += size;
    return at < lowest ? lowest : at > highest ? highest : at;
  };
  const Int from = bound(start, stride > 0 ? lowest : highest);
  const Int to = bound(stop, stride > 0 ? highest : lowest);
  std::u32string picked_letters;
  Values picked;
  // `stride` may be huge: the distance is compared, not the sum.
  for (Int at = from; stride > 0 ? at < to : at > to;) {
    machine.step();
    if (text != nullptr) {
      picked_letters += letters[static_cast<std::size_t>(at)];
    } else {
      picked.push_back((*value.as<Sequence>()->items)[static_cast<std::size_t>(at)]);
    }
    if (stride > 0 ? stride >= to - at : stride <= to - at) break;
    at += stride;
  }
  if (text != nullptr) return machine.text(from_code_points(picked_letters), text->markup);
  return make_sequence(std::move(picked), value.as<Sequence>()->kind == Sequence::Kind::list
                                              ? Sequence::Kind::list
                                              : Sequence::Kind::tuple);
}

}  // namespace diffuse::jinja

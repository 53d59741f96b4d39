#include "text/jinja/value.hpp"

#include <unicode/uchar.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/utf8.hpp"

namespace diffuse::jinja {
namespace {

bool is_printable(char32_t code) {
  if (code == ' ') return true;
  const auto hidden = U_GC_C_MASK | U_GC_Z_MASK;
  return (U_GET_GC_MASK(static_cast<UChar32>(code)) & hidden) == 0;
}

void append_hex(std::string& out, char32_t code, int digits) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[(code >> shift) & 15];
}

std::string text_repr(std::string_view text) {
  const bool double_quotes = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const auto begin = at;
    const auto code = take_utf8(text, at);
    if (code == '\\' || code == static_cast<char32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (is_printable(code)) {
      out += text.substr(begin, at - begin);
    } else if (code < 0x100) {
      out += "\\x";
      append_hex(out, code, 2);
    } else if (code < 0x10000) {
      out += "\\u";
      append_hex(out, code, 4);
    } else {
      out += "\\U";
      append_hex(out, code, 8);
    }
  }
  return out + quote;
}

std::string sequence_repr(const Sequence& sequence) {
  const bool tuple = sequence.kind == Sequence::Kind::tuple || sequence.kind == Sequence::Kind::group;
  std::string out = tuple ? "(" : "[";
  for (std::size_t i = 0; i < sequence.items->size(); ++i) {
    if (i > 0) out += ", ";
    out += to_repr((*sequence.items)[i]);
  }
  if (tuple && sequence.items->size() == 1) out += ',';
  return out + (tuple ? ")" : "]");
}

std::string mapping_repr(const Entries& entries) {
  std::string out = "{";
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += ", ";
    out += to_repr(entries[i].first) + ": " + to_repr(entries[i].second);
  }
  return out + "}";
}

// Numbers compare across their types.
std::optional<double> as_number(const Value& value) {
  if (const auto* flag = value.as<bool>()) return *flag ? 1 : 0;
  if (const auto* integer = value.as<Int>()) return static_cast<double>(*integer);
  if (const auto* real = value.as<double>()) return *real;
  return std::nullopt;
}

std::optional<Int> as_integer(const Value& value) {
  if (const auto* flag = value.as<bool>()) return *flag ? 1 : 0;
  if (const auto* integer = value.as<Int>()) return *integer;
  return std::nullopt;
}

// Lists equal lists and tuples equal tuples; a group is a tuple.
bool same_kind(Sequence::Kind a, Sequence::Kind b) {
  const auto tuple = [](Sequence::Kind kind) {
    return kind == Sequence::Kind::tuple || kind == Sequence::Kind::group;
  };
  return a == b || (tuple(a) && tuple(b));
}

bool equal_sequences(const Sequence& a, const Sequence& b) {
  if (!same_kind(a.kind, b.kind)) return false;
  if (a.kind == Sequence::Kind::generator) return a.items == b.items;
  return std::equal(a.items->begin(), a.items->end(), b.items->begin(), b.items->end(), equal);
}

bool equal_mappings(const Mapping& a, const Mapping& b) {
  if (a.entries->size() != b.entries->size()) return false;
  return std::all_of(a.entries->begin(), a.entries->end(), [&](const auto& entry) {
    const auto* other = find_entry(*b.entries, entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

bool less_sequences(const Sequence& a, const Sequence& b) {
  const auto count = std::min(a.items->size(), b.items->size());
  for (std::size_t i = 0; i < count; ++i) {
    if (!equal((*a.items)[i], (*b.items)[i])) return less((*a.items)[i], (*b.items)[i]);
  }
  return a.items->size() < b.items->size();
}

}  // namespace

Value make_undefined(std::string why) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
}

Value make_text(std::string text, bool markup) {
  return Value(Text{std::make_shared<const std::string>(std::move(text)), markup});
}

void check_nesting(int nesting) {
  if (nesting > kMaxNesting) throw TemplateError("values nest deeper than " + std::to_string(kMaxNesting));
}

int nesting_of(const Value& value) {
  if (const auto* sequence = value.as<Sequence>()) return sequence->nesting;
  if (const auto* mapping = value.as<Mapping>()) return mapping->nesting;
  if (const auto* space = value.as<Space>()) return space->content->nesting;
  if (const auto* function = value.as<Function>()) return function->callable->nesting;
  if (const auto* loop = value.as<Loop>()) {
    int deepest = 0;
    for (const auto& item : loop->state->items) deepest = std::max(deepest, nesting_of(item));
    return deepest + 1;
  }
  return 0;
}

Value make_sequence(Values items, Sequence::Kind kind) {
  int nesting = 1;
  for (const auto& item : items) nesting = std::max(nesting, nesting_of(item) + 1);
  check_nesting(nesting);
  auto taken = kind == Sequence::Kind::generator ? std::make_shared<std::size_t>(0) : nullptr;
  return Value(Sequence{kind, std::make_shared<const Values>(std::move(items)), nesting, std::move(taken)});
}

Value make_mapping(Entries entries) {
  int nesting = 1;
  for (const auto& [key, value] : entries)
    nesting = std::max({nesting, nesting_of(key) + 1, nesting_of(value) + 1});
  check_nesting(nesting);
  return Value(Mapping{std::make_shared<const Entries>(std::move(entries)), nesting});
}

Value make_function(std::string name, std::function<Value(Machine&, const Arguments&)> call, int nesting) {
  check_nesting(nesting);
  return Value(
      Function{std::make_shared<const Callable>(Callable{std::move(name), std::move(call), nesting})});
}

const Value* find_entry(const Entries& entries, const Value& key) {
  for (const auto& [name, value] : entries)
    if (equal(name, key)) return &value;
  return nullptr;
}

std::string_view type_name(const Value& value) {
  if (const auto* sequence = value.as<Sequence>()) {
    switch (sequence->kind) {
      case Sequence::Kind::list:
        return "list";
      case Sequence::Kind::tuple:
      case Sequence::Kind::group:
        return "tuple";
      case Sequence::Kind::generator:
        return "generator";
    }
  }
  constexpr std::string_view kNames[] = {"Undefined", "NoneType",    "bool",    "int",
                                         "float",     "str",         "list",    "dict",
                                         "Namespace", "LoopContext", "function"};
  return kNames[value.data.index()];
}

bool is_true(const Value& value) {
  if (value.is<Undefined>() || value.is<None>()) return false;
  if (const auto* flag = value.as<bool>()) return *flag;
  if (const auto* integer = value.as<Int>()) return *integer != 0;
  if (const auto* real = value.as<double>()) return *real != 0;
  if (const auto* text = value.as<Text>()) return !text->text->empty();
  if (const auto* sequence = value.as<Sequence>())
    return sequence->kind == Sequence::Kind::generator || !sequence->items->empty();
  if (const auto* mapping = value.as<Mapping>()) return !mapping->entries->empty();
  return true;
}

std::string int_text(Int number) {
  const bool negative = number < 0;
  auto rest = negative ? -static_cast<unsigned __int128>(number) : static_cast<unsigned __int128>(number);
  std::string digits;
  do {
    digits += static_cast<char>('0' + static_cast<int>(rest % 10));
    rest /= 10;
  } while (rest != 0);
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string float_repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[400];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
  std::string out(buffer, scientific.ptr);
  const auto exponent = std::stoi(out.substr(out.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return out;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed);
  out.assign(buffer, fixed.ptr);
  return out.find('.') == std::string::npos ? out + ".0" : out;
}

std::string to_text(const Value& value) {
  if (const auto* text = value.as<Text>()) return *text->text;
  if (value.is<Undefined>()) return {};
  return to_repr(value);
}

std::string to_repr(const Value& value) {
  if (const auto* text = value.as<Text>()) return text_repr(*text->text);
  if (value.is<Undefined>()) return "Undefined";
  if (value.is<None>()) return "None";
  if (const auto* flag = value.as<bool>()) return *flag ? "True" : "False";
  if (const auto* integer = value.as<Int>()) return int_text(*integer);
  if (const auto* real = value.as<double>()) return float_repr(*real);
  if (const auto* mapping = value.as<Mapping>()) return mapping_repr(*mapping->entries);
  if (const auto* sequence = value.as<Sequence>(); sequence && sequence->kind != Sequence::Kind::generator)
    return sequence_repr(*sequence);
  // Python prints an address here; no template means to.
  throw TemplateError("a " + std::string(type_name(value)) + " cannot be printed");
}

bool equal(const Value& a, const Value& b) {
  if (const auto x = as_integer(a), y = as_integer(b); x && y) return *x == *y;
  if (const auto x = as_number(a), y = as_number(b); x && y) return *x == *y;
  if (a.data.index() != b.data.index()) return false;
  if (const auto* text = a.as<Text>()) return *text->text == *b.as<Text>()->text;
  if (const auto* sequence = a.as<Sequence>()) return equal_sequences(*sequence, *b.as<Sequence>());
  if (const auto* mapping = a.as<Mapping>()) return equal_mappings(*mapping, *b.as<Mapping>());
  if (a.is<None>() || a.is<Undefined>()) return true;
  return same_object(a, b);
}

bool same_object(const Value& a, const Value& b) {
  if (a.data.index() != b.data.index()) return false;
  if (const auto* sequence = a.as<Sequence>()) return sequence->items == b.as<Sequence>()->items;
  if (const auto* mapping = a.as<Mapping>()) return mapping->entries == b.as<Mapping>()->entries;
  if (const auto* space = a.as<Space>()) return space->content == b.as<Space>()->content;
  if (const auto* loop = a.as<Loop>()) return loop->state == b.as<Loop>()->state;
  if (const auto* function = a.as<Function>()) return function->callable == b.as<Function>()->callable;
  return equal(a, b);
}

bool less(const Value& a, const Value& b) {
  for (const auto* side : {&a, &b})
    if (const auto* undefined = side->as<Undefined>()) throw TemplateError(*undefined->why);
  if (const auto x = as_integer(a), y = as_integer(b); x && y) return *x < *y;
  if (const auto x = as_number(a), y = as_number(b); x && y) return *x < *y;
  // UTF-8 keeps the order of code points.
  if (a.is<Text>() && b.is<Text>()) return *a.as<Text>()->text < *b.as<Text>()->text;
  if (const auto* x = a.as<Sequence>(), *y = b.as<Sequence>();
      x && y && same_kind(x->kind, y->kind) && x->kind != Sequence::Kind::generator)
    return less_sequences(*x, *y);
  throw TemplateError("'<' is not supported between '" + std::string(type_name(a)) + "' and '" +
                      std::string(type_name(b)) + "'");
}

}  // namespace diffuse::jinja

#include "text/jinja/methods.hpp"

#include <algorithm>
#include <map>

#include "core/utf8.hpp"
#include "text/jinja/bind.hpp"
#include "text/jinja/machine.hpp"
#include "text/jinja/python_text.hpp"
#include "text/unicode.hpp"

namespace diffuse::jinja {
namespace {

using TextMethod = Value (*)(Machine& machine, const std::string& self, const Arguments& arguments);

Value texts(Machine& machine, std::vector<std::string> parts, Sequence::Kind kind = Sequence::Kind::list) {
  Values items;
  for (auto& part : parts) {
    machine.step();
    items.push_back(machine.text(std::move(part)));
  }
  return make_sequence(std::move(items), kind);
}

// A prefix, or a tuple of which one must fit.
bool fits_any(const Value& wanted, const std::string& function,
              const std::function<bool(const std::string&)>& fits) {
  if (const auto* text = wanted.as<Text>()) return fits(*text->text);
  const auto* tuple = wanted.as<Sequence>();
  if (tuple == nullptr || tuple->kind != Sequence::Kind::tuple)
    throw TemplateError(function + " needs a string or a tuple of strings");
  return std::any_of(tuple->items->begin(), tuple->items->end(),
                     [&](const Value& item) { return item.is<Text>() && fits(*item.as<Text>()->text); });
}

template <Side side>
Value strip_method(Machine& machine, const std::string& self, const Arguments& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  return machine.text(strip(self, side, bound.text(0)));
}

template <std::string (*change)(std::string_view)>
Value change_method(Machine& machine, const std::string& self, const Arguments& arguments) {
  const Bound bound("the method", arguments, {});
  return machine.text(change(self));
}

template <bool from_right>
Value split_method(Machine& machine, const std::string& self, const Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const auto limit = bound.count(1, -1);
  return texts(machine,
               from_right ? split_right(self, bound.text(0), limit) : split(self, bound.text(0), limit));
}

// Position of a part, in characters; -1 where there is none.
template <bool from_right, bool must_be>
Value find_in_text(Machine& machine, const std::string& self, const Arguments& arguments) {
  const Bound bound("find", arguments, {"sub", "start", "end"});
  const auto letters = code_points(self);
  machine.step(1 + letters.size() / 64);
  const auto part = code_points(to_text(bound.require(0)));
  const auto size = static_cast<std::int64_t>(letters.size());
  const auto place = [&](std::size_t index, std::int64_t otherwise) {
    const auto given = bound.count(index, otherwise);
    return std::clamp<std::int64_t>(given < 0 ? given + size : given, 0, size);
  };
  const auto begin = bound.count(1, 0) > size ? size + 1 : place(1, 0);
  const auto end = place(2, size);
  std::int64_t found = -1;
  if (begin <= end) {
    const auto window = std::u32string_view(letters).substr(static_cast<std::size_t>(begin),
                                                            static_cast<std::size_t>(end - begin));
    const auto at = from_right ? window.rfind(part) : window.find(part);
    if (at != window.npos) found = begin + static_cast<std::int64_t>(at);
  }
  if (must_be && found < 0) throw TemplateError("substring not found");
  return Value(static_cast<Int>(found));
}

Value count_in_text(Machine& machine, const std::string& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"sub"});
  const auto part = to_text(bound.require(0));
  machine.step(1 + self.size() / 64);
  if (part.empty()) return Value(static_cast<Int>(count_utf8(self) + 1));
  Int count = 0;
  for (auto at = self.find(part); at != std::string::npos; at = self.find(part, at + part.size())) ++count;
  return Value(count);
}

template <bool at_start>
Value affix_method(Machine&, const std::string& self, const Arguments& arguments) {
  const Bound bound(at_start ? "startswith" : "endswith", arguments, {"affix"});
  return Value(fits_any(
      bound.require(0), at_start ? "startswith" : "endswith",
      [&](const std::string& affix) { return at_start ? self.starts_with(affix) : self.ends_with(affix); }));
}

template <bool at_start>
Value remove_affix(Machine& machine, const std::string& self, const Arguments& arguments) {
  const Bound bound("removeprefix", arguments, {"affix"});
  const auto affix = to_text(bound.require(0));
  if (at_start && self.starts_with(affix)) return machine.text(self.substr(affix.size()));
  if (!at_start && self.ends_with(affix)) return machine.text(self.substr(0, self.size() - affix.size()));
  return machine.text(self);
}

template <bool from_right>
Value partition_method(Machine& machine, const std::string& self, const Arguments& arguments) {
  const Bound bound("partition", arguments, {"sep"});
  const auto separator = to_text(bound.require(0));
  if (separator.empty()) throw TemplateError("empty separator");
  const auto at = from_right ? self.rfind(separator) : self.find(separator);
  std::vector<std::string> parts = {self.substr(0, at), separator, ""};
  if (at != std::string::npos) {
    parts[2] = self.substr(at + separator.size());
  } else {
    parts = from_right ? std::vector<std::string>{"", "", self} : std::vector<std::string>{self, "", ""};
  }
  return texts(machine, std::move(parts), Sequence::Kind::tuple);
}

enum class Align { left, right, center };
template <Align align>
Value pad_method(Machine& machine, const std::string& self, const Arguments& arguments) {
  const Bound bound("padding", arguments, {"width", "fillchar"});
  bound.require(0);
  const auto fill = bound.text(1).value_or(" ");
  if (count_utf8(fill) != 1) throw TemplateError("the fill character must be exactly one character long");
  const auto size = static_cast<std::int64_t>(count_utf8(self));
  const auto room = std::max<std::int64_t>(bound.count(0, 0) - size, 0);
  machine.expect_text(static_cast<std::uint64_t>(room) * fill.size());
  // Python puts the odd one on the left where the width is odd.
  const auto before = align == Align::left    ? 0
                      : align == Align::right ? room
                                              : room / 2 + (room & (room + size) & 1);
  std::string made;
  for (std::int64_t i = 0; i < before; ++i) made += fill;
  made += self;
  for (std::int64_t i = before; i < room; ++i) made += fill;
  return machine.text(std::move(made));
}

Value zfill_method(Machine& machine, const std::string& self, const Arguments& arguments) {
  const Bound bound("zfill", arguments, {"width"});
  bound.require(0);
  const auto room =
      std::max<std::int64_t>(bound.count(0, 0) - static_cast<std::int64_t>(count_utf8(self)), 0);
  machine.expect_text(static_cast<std::uint64_t>(room));
  const std::size_t sign = self.starts_with('-') || self.starts_with('+') ? 1 : 0;
  return machine.text(self.substr(0, sign) + std::string(static_cast<std::size_t>(room), '0') +
                      self.substr(sign));
}

Value replace_method(Machine& machine, const std::string& self, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  bound.require(1);
  return machine.text(
      replace(machine, self, bound.text(0).value_or(""), bound.text(1).value_or(""), bound.count(2, -1)));
}

Value join_method(Machine& machine, const std::string& self, const Arguments& arguments) {
  const Bound bound("join", arguments, {"iterable"});
  std::string made;
  bool first = true;
  for (const auto& item : machine.iterate(bound.require(0))) {
    const auto* text = item.as<Text>();
    if (text == nullptr)
      throw TemplateError("join needs strings, not '" + std::string(type_name(item)) + "'");
    machine.expect_text(self.size() + text->text->size());
    if (!first) made += self;
    made += *text->text;
    first = false;
  }
  return make_text(std::move(made));
}

Value split_lines_method(Machine& machine, const std::string& self, const Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  if (bound.flag(0, false)) throw TemplateError("splitlines(keepends) is not known", true);
  return texts(machine, split_lines(self));
}

template <std::string (*format)(Machine&, const std::string&, const Arguments&)>
Value format_method(Machine& machine, const std::string& self, const Arguments& arguments) {
  return machine.text(format(machine, self, arguments));
}

using CharacterTest = bool (*)(char32_t code);
template <CharacterTest fits>
Value every_character(Machine&, const std::string& self, const Arguments& arguments) {
  const Bound bound("the method", arguments, {});
  const auto letters = code_points(self);
  return Value(!letters.empty() && std::all_of(letters.begin(), letters.end(), fits));
}

template <bool (*fits)(std::string_view)>
Value whole_text(Machine&, const std::string& self, const Arguments& arguments) {
  const Bound bound("the method", arguments, {});
  return Value(fits(self));
}

const std::map<std::string, TextMethod, std::less<>>& text_methods() {
  static const std::map<std::string, TextMethod, std::less<>> methods = {
      {"capitalize", change_method<capitalize>},
      {"center", pad_method<Align::center>},
      {"count", count_in_text},
      {"endswith", affix_method<false>},
      {"find", find_in_text<false, false>},
      {"format", format_method<brace_format>},
      {"index", find_in_text<false, true>},
      {"isalnum", every_character<is_alphanumeric>},
      {"isalpha", every_character<is_alphabetic>},
      {"isdecimal", every_character<is_decimal>},
      {"isdigit", every_character<is_digit>},
      {"islower", whole_text<is_lower>},
      {"isnumeric", every_character<is_any_number>},
      {"isspace", every_character<is_python_space>},
      {"isupper", whole_text<is_upper>},
      {"join", join_method},
      {"ljust", pad_method<Align::left>},
      {"lower", change_method<lower>},
      {"lstrip", strip_method<Side::left>},
      {"partition", partition_method<false>},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"replace", replace_method},
      {"rfind", find_in_text<true, false>},
      {"rindex", find_in_text<true, true>},
      {"rjust", pad_method<Align::right>},
      {"rpartition", partition_method<true>},
      {"rsplit", split_method<true>},
      {"rstrip", strip_method<Side::right>},
      {"split", split_method<false>},
      {"splitlines", split_lines_method},
      {"startswith", affix_method<true>},
      {"strip", strip_method<Side::both>},
      {"swapcase", change_method<swap_case>},
      {"title", change_method<title>},
      {"upper", change_method<upper>},
      {"zfill", zfill_method},
  };
  return methods;
}

using MappingMethod = Value (*)(Machine& machine, const Mapping& self, const Arguments& arguments);

Value get_method(Machine& machine, const Mapping& self, const Arguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"});
  machine.step(1 + self.entries->size() / 4);
  if (const auto* found = find_entry(*self.entries, bound.require(0))) return *found;
  return bound.find(1) != nullptr ? *bound.find(1) : Value();
}

Value items_method(Machine& machine, const Mapping& self, const Arguments& arguments) {
  const Bound bound("items", arguments, {});
  Values items;
  for (const auto& [key, value] : *self.entries) {
    machine.step();
    items.push_back(make_sequence({key, value}, Sequence::Kind::tuple));
  }
  return make_sequence(std::move(items));
}

Value keys_method(Machine& machine, const Mapping& self, const Arguments& arguments) {
  const Bound bound("keys", arguments, {});
  return make_sequence(machine.iterate(Value(self)));
}

Value values_method(Machine& machine, const Mapping& self, const Arguments& arguments) {
  const Bound bound("values", arguments, {});
  Values items;
  for (const auto& entry : *self.entries) {
    machine.step();
    items.push_back(entry.second);
  }
  return make_sequence(std::move(items));
}

Value copy_method(Machine&, const Mapping& self, const Arguments& arguments) {
  const Bound bound("copy", arguments, {});
  return Value(self);
}

MappingMethod mapping_method(std::string_view name) {
  if (name == "get") return get_method;
  if (name == "items") return items_method;
  if (name == "keys") return keys_method;
  if (name == "values") return values_method;
  if (name == "copy") return copy_method;
  return nullptr;
}

Value count_in_list(Machine& machine, const Sequence& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"value"});
  machine.step(self.items->size());
  const auto& wanted = bound.require(0);
  const auto count = std::count_if(self.items->begin(), self.items->end(),
                                   [&](const Value& item) { return equal(item, wanted); });
  return Value(static_cast<Int>(count));
}

Value index_in_list(Machine& machine, const Sequence& self, const Arguments& arguments) {
  const Bound bound("index", arguments, {"value"});
  machine.step(self.items->size());
  const auto& wanted = bound.require(0);
  const auto found = std::find_if(self.items->begin(), self.items->end(),
                                  [&](const Value& item) { return equal(item, wanted); });
  if (found == self.items->end()) throw TemplateError(to_repr(wanted) + " is not in the list");
  return Value(static_cast<Int>(found - self.items->begin()));
}

}  // namespace

std::optional<Value> find_method(const Value& object, const std::string& name) {
  const auto nesting = nesting_of(object) + 1;
  if (const auto* text = object.as<Text>()) {
    const auto found = text_methods().find(name);
    if (found == text_methods().end()) return std::nullopt;
    return make_function(
        name, [self = *text, method = found->second](Machine& machine, const Arguments& arguments) {
          machine.step(1 + self.text->size() / 64);
          return method(machine, *self.text, arguments);
        });
  }
  if (const auto* mapping = object.as<Mapping>()) {
    const auto method = mapping_method(name);
    if (method == nullptr) return std::nullopt;
    return make_function(
        name,
        [self = *mapping, method](Machine& machine, const Arguments& arguments) {
          return method(machine, self, arguments);
        },
        nesting);
  }
  if (const auto* sequence = object.as<Sequence>(); sequence && sequence->kind != Sequence::Kind::generator) {
    const auto method = name == "count" ? count_in_list : name == "index" ? index_in_list : nullptr;
    if (method == nullptr) return std::nullopt;
    return make_function(
        name,
        [self = *sequence, method](Machine& machine, const Arguments& arguments) {
          return method(machine, self, arguments);
        },
        nesting);
  }
  return std::nullopt;
}

}  // namespace diffuse::jinja

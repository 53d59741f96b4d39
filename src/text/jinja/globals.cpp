// What a template can reach: attributes and items of values, and the names that are always there.

#include <array>
#include <ctime>
#include <map>

#include "core/utf8.hpp"
#include "text/jinja/bind.hpp"
#include "text/jinja/machine.hpp"
#include "text/jinja/methods.hpp"
#include "text/jinja/operators.hpp"
#include "text/jinja/python_text.hpp"

namespace diffuse::jinja {
namespace {

// The sandbox's bound.
constexpr Int kMaxRange = 100'000;

Value range(Machine& machine, const Arguments& arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"});
  const bool single = bound.find(1) == nullptr;
  const Int start = single ? 0 : to_int(bound.require(0), "range's start");
  const Int stop = to_int(single ? bound.require(0) : bound.require(1), "range's stop");
  const Int step = bound.integer(2, 1);
  if (step == 0) throw TemplateError("range's step cannot be zero");
  Values items;
  for (Int at = start; step > 0 ? at < stop : at > stop;) {
    machine.step();
    if (static_cast<Int>(items.size()) >= kMaxRange) throw TemplateError("a range of more than 100000 items");
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return make_sequence(std::move(items));
}

Entries entries_of(Machine& machine, const Arguments& arguments, const std::string& function) {
  Entries entries;
  const auto put = [&](const Value& key, const Value& value) {
    machine.step(1 + entries.size());
    for (auto& entry : entries) {
      if (!equal(entry.first, key)) continue;
      entry.second = value;
      return;
    }
    entries.emplace_back(key, value);
  };
  if (arguments.positional.size() > 1) throw TemplateError(function + " takes at most one argument");
  if (!arguments.positional.empty()) {
    const auto& given = arguments.positional.front();
    if (const auto* mapping = given.as<Mapping>()) {
      for (const auto& [key, value] : *mapping->entries) put(key, value);
    } else {
      for (const auto& pair : machine.iterate(given)) {
        const auto parts = machine.iterate(pair);
        if (parts.size() != 2) throw TemplateError(function + " needs pairs");
        put(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) put(make_text(name), value);
  return entries;
}

Value dict(Machine& machine, const Arguments& arguments) {
  return make_mapping(entries_of(machine, arguments, "dict"));
}

Value make_space(Machine& machine, const Arguments& arguments) {
  auto content = std::make_shared<Space::Content>();
  content->entries = entries_of(machine, arguments, "namespace");
  for (const auto& [key, value] : content->entries) {
    if (to_text(key).starts_with('_'))
      throw TemplateError("a namespace's attribute cannot begin with an underscore");
    content->nesting = std::max(content->nesting, nesting_of(value) + 1);
  }
  check_nesting(content->nesting);
  machine.track(content);
  return Value(Space{std::move(content)});
}

Value raise_exception(Machine&, const Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"});
  throw TemplateError(to_text(bound.require(0)));
}

Value strftime_now(Machine& machine, const Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"});
  const auto format = bound.text(0).value_or("");
  std::array<char, 4096> buffer;
  const auto size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &machine.now());
  if (size == 0 && !format.empty()) throw TemplateError("strftime_now makes no text, or a very long one");
  return machine.text(repair_utf8(std::string_view(buffer.data(), size)));
}

Value missing(const Value& object, const std::string& name) {
  return make_undefined("'" + std::string(type_name(object)) + " object' has no attribute '" + name + "'");
}

Value loop_attribute(const Value& object, const std::shared_ptr<LoopState>& state, const std::string& name) {
  const auto number = [](std::size_t value) { return Value(static_cast<Int>(value)); };
  const auto index = state->index;
  const auto count = state->items.size();
  if (name == "index") return number(index + 1);
  if (name == "index0") return number(index);
  if (name == "revindex") return number(count - index);
  if (name == "revindex0") return number(count - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == count);
  if (name == "length") return number(count);
  if (name == "depth") return number(state->depth);
  if (name == "depth0") return number(state->depth - 1);
  if (name == "previtem")
    return index == 0 ? make_undefined("there is no previous item") : state->items[index - 1];
  if (name == "nextitem")
    return index + 1 == count ? make_undefined("there is no next item") : state->items[index + 1];
  if (name == "cycle") {
    return make_function("cycle", [index](Machine&, const Arguments& arguments) {
      if (arguments.positional.empty()) throw TemplateError("no items for cycling given");
      return arguments.positional[index % arguments.positional.size()];
    });
  }
  if (name == "changed") {
    return make_function(
        "changed",
        [state](Machine&, const Arguments& arguments) {
          const auto& now = arguments.positional;
          const auto& last = state->last_changed;
          const bool same =
              last != nullptr && std::equal(last->begin(), last->end(), now.begin(), now.end(), equal);
          if (!same) state->last_changed = std::make_shared<const Values>(now);
          return Value(!same);
        },
        nesting_of(object) + 1);
  }
  return missing(object, name);
}

}  // namespace

Value Machine::attribute(const Value& object, const std::string& name) {
  step();
  if (const auto* undefined = object.as<Undefined>()) undefined_used(*undefined);
  if (auto method = find_method(object, name)) return *std::move(method);
  if (const auto* mapping = object.as<Mapping>()) {
    step(mapping->entries->size() / 4);
    const auto* found = find_entry(*mapping->entries, make_text(name));
    return found != nullptr ? *found : missing(object, name);
  }
  if (const auto* space = object.as<Space>()) {
    const auto* found = find_entry(space->content->entries, make_text(name));
    return found != nullptr ? *found : missing(object, name);
  }
  if (const auto* loop = object.as<Loop>()) return loop_attribute(object, loop->state, name);
  if (const auto* sequence = object.as<Sequence>(); sequence && sequence->kind == Sequence::Kind::group) {
    if (name == "grouper") return sequence->items->front();
    if (name == "list") return sequence->items->back();
  }
  return missing(object, name);
}

Value Machine::item(const Value& object, const Value& key) {
  step();
  if (const auto* undefined = object.as<Undefined>()) undefined_used(*undefined);
  if (const auto* mapping = object.as<Mapping>()) {
    step(mapping->entries->size() / 4);
    if (const auto* found = find_entry(*mapping->entries, key)) return *found;
  }
  if (const auto* name = key.as<Text>()) return attribute(object, *name->text);
  const bool integer = key.is<Int>() || key.is<bool>();
  if (const auto* sequence = object.as<Sequence>();
      sequence && integer && sequence->kind != Sequence::Kind::generator) {
    const auto at = index_of(to_int(key, "an index"), sequence->items->size());
    if (at >= 0) return (*sequence->items)[static_cast<std::size_t>(at)];
  }
  if (const auto* text = object.as<Text>(); text && integer) {
    const auto letters = code_points(*text->text);
    step(letters.size() / 64);
    const auto at = index_of(to_int(key, "an index"), letters.size());
    if (at >= 0)
      return make_text(
          from_code_points(std::u32string_view(letters).substr(static_cast<std::size_t>(at), 1)));
  }
  return make_undefined("'" + std::string(type_name(object)) + " object' has no element " + to_repr(key));
}

const Value* find_global(std::string_view name) {
  static const std::map<std::string, Value, std::less<>> globals = {
      {"range", make_function("range", range)},
      {"dict", make_function("dict", dict)},
      {"namespace", make_function("namespace", make_space)},
      {"raise_exception", make_function("raise_exception", raise_exception)},
      {"strftime_now", make_function("strftime_now", strftime_now)},
  };
  const auto found = globals.find(name);
  if (found != globals.end()) return &found->second;
  for (const auto* known : {"lipsum", "cycler", "joiner"})
    if (name == known) throw TemplateError("the function '" + std::string(name) + "' is not known", true);
  return nullptr;
}

}  // namespace diffuse::jinja

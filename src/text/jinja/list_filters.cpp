#include <algorithm>
#include <functional>
#include <map>

#include "text/jinja/bind.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/python_text.hpp"

namespace diffuse::jinja {
namespace {

Value generator(Values items) {
  return make_sequence(std::move(items), Sequence::Kind::generator);
}

// The value at "a.b.0" of an item; `otherwise`, where given, stands for what is not there.
Value value_at(Machine& machine, const Value& item, const Value& path, const Value* otherwise) {
  if (!path.is<Text>()) return machine.item(item, path);
  auto value = item;
  for (const auto& part : split(*path.as<Text>()->text, ".", -1)) {
    const bool index =
        !part.empty() && part.find_first_not_of("0123456789") == std::string::npos && part.size() < 10;
    value = machine.item(value, index ? Value(static_cast<Int>(std::stoll(part))) : make_text(part));
    if (otherwise != nullptr && value.is<Undefined>()) value = *otherwise;
  }
  return value;
}

bool is_given(const Value* value) {
  return value != nullptr && !value->is<None>();
}

Value folded(const Value& value, bool case_sensitive) {
  const auto* text = value.as<Text>();
  return text != nullptr && !case_sensitive ? make_text(lower(*text->text)) : value;
}

// The keys that items are ordered by; several attributes stand with commas between.
Value sort_key(Machine& machine, const Value& item, const Value* attribute, bool case_sensitive) {
  if (!is_given(attribute)) return folded(item, case_sensitive);
  if (!attribute->is<Text>()) return folded(value_at(machine, item, *attribute, nullptr), case_sensitive);
  Values keys;
  for (const auto& path : split(*attribute->as<Text>()->text, ",", -1))
    keys.push_back(folded(value_at(machine, item, make_text(path), nullptr), case_sensitive));
  return make_sequence(std::move(keys));
}

using Keyed = std::vector<std::pair<Value, Value>>;  // key, item

void sort_by_key(Machine& machine, Keyed& keyed, bool reverse) {
  // Equal ones keep their order both ways.
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    machine.step();
    return reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
}

Values items_of(Keyed keyed) {
  Values items;
  for (auto& entry : keyed) items.push_back(std::move(entry.second));
  return items;
}

Value sort_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.flag(1, false);
  Keyed keyed;
  for (auto& item : machine.iterate(operand))
    keyed.emplace_back(sort_key(machine, item, bound.find(2), case_sensitive), item);
  sort_by_key(machine, keyed, bound.flag(0, false));
  return make_sequence(items_of(std::move(keyed)));
}

Value dictsort_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const auto* mapping = operand.as<Mapping>();
  if (mapping == nullptr) throw TemplateError("dictsort needs a mapping");
  const auto by = bound.text(1).value_or("key");
  if (by != "key" && by != "value") throw TemplateError("you can only sort by either \"key\" or \"value\"");
  Keyed keyed;
  for (const auto& [key, value] : *mapping->entries) {
    machine.step();
    keyed.emplace_back(folded(by == "key" ? key : value, bound.flag(0, false)),
                       make_sequence({key, value}, Sequence::Kind::tuple));
  }
  sort_by_key(machine, keyed, bound.flag(2, false));
  return make_sequence(items_of(std::move(keyed)));
}

Value unique_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  Values keys;
  Values items;
  for (auto& item : machine.iterate(operand)) {
    auto key = folded(is_given(bound.find(1)) ? value_at(machine, item, *bound.find(1), nullptr) : item,
                      bound.flag(0, false));
    machine.step(keys.size());
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& seen) { return equal(seen, key); })) continue;
    keys.push_back(std::move(key));
    items.push_back(std::move(item));
  }
  return generator(std::move(items));
}

template <bool highest>
Value extreme_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound(highest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const auto items = machine.iterate(operand);
  if (items.empty()) return make_undefined("no aggregated item, sequence was empty");
  const auto key_of = [&](const Value& item) {
    return folded(is_given(bound.find(1)) ? value_at(machine, item, *bound.find(1), nullptr) : item,
                  bound.flag(0, false));
  };
  auto best = items.front();
  auto best_key = key_of(best);
  for (std::size_t i = 1; i < items.size(); ++i) {
    auto key = key_of(items[i]);
    if (!(highest ? less(best_key, key) : less(key, best_key))) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

Value sum_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  auto sum = bound.find(1) != nullptr ? *bound.find(1) : Value(Int{0});
  for (const auto& item : machine.iterate(operand))
    sum = arithmetic(machine, Operator::add, sum,
                     is_given(bound.find(0)) ? value_at(machine, item, *bound.find(0), nullptr) : item);
  return sum;
}

Value join_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const auto between = bound.find(0) != nullptr ? to_text(*bound.find(0)) : std::string();
  std::string made;
  bool first = true;
  for (const auto& item : machine.iterate(operand)) {
    const auto part =
        to_text(is_given(bound.find(1)) ? value_at(machine, item, *bound.find(1), nullptr) : item);
    machine.expect_text(part.size() + between.size());
    if (!first) made += between;
    made += part;
    first = false;
  }
  return make_text(std::move(made));
}

Value first_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("first", arguments, {});
  if (const auto* sequence = operand.as<Sequence>();
      sequence && sequence->taken && *sequence->taken < sequence->items->size())
    return (*sequence->items)[(*sequence->taken)++];
  auto items = machine.iterate(operand);
  return items.empty() ? make_undefined("no first item, sequence was empty") : std::move(items.front());
}

Value last_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("last", arguments, {});
  if (const auto* sequence = operand.as<Sequence>(); sequence && sequence->taken)
    throw TemplateError("'generator' object is not reversible");
  auto items = machine.iterate(operand);
  return items.empty() ? make_undefined("no last item, sequence was empty") : std::move(items.back());
}

Value reverse_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("reverse", arguments, {});
  if (const auto* text = operand.as<Text>()) {
    auto letters = code_points(*text->text);
    std::reverse(letters.begin(), letters.end());
    return machine.text(from_code_points(letters));
  }
  auto items = machine.iterate(operand);
  std::reverse(items.begin(), items.end());
  return generator(std::move(items));
}

Value list_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("list", arguments, {});
  return make_sequence(machine.iterate(operand));
}

Value items_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("items", arguments, {});
  if (operand.is<Undefined>()) return generator({});
  if (!operand.is<Mapping>()) throw TemplateError("can only get item pairs from a mapping");
  return generator(machine.iterate(machine.call(machine.attribute(operand, "items"), {})));
}

// The arguments from the `from`-th on, as those of the filter or test that is applied to each item.
Arguments rest_of(const Arguments& arguments, std::size_t from) {
  return {
      Values(arguments.positional.begin() + static_cast<std::ptrdiff_t>(from), arguments.positional.end()),
      arguments.named};
}

Value map_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  Values items;
  if (!is_true(operand)) return generator({});
  const bool by_attribute = arguments.positional.empty() &&
                            std::any_of(arguments.named.begin(), arguments.named.end(),
                                        [](const auto& entry) { return entry.first == "attribute"; });
  if (by_attribute) {
    const Bound bound("map", arguments, {"attribute", "default"});
    const auto* otherwise = is_given(bound.find(1)) ? bound.find(1) : nullptr;
    for (const auto& item : machine.iterate(operand))
      items.push_back(value_at(machine, item, bound.require(0), otherwise));
    return generator(std::move(items));
  }
  if (arguments.positional.empty()) throw TemplateError("map requires a filter argument");
  const auto name = to_text(arguments.positional.front());
  const auto rest = rest_of(arguments, 1);
  for (const auto& item : machine.iterate(operand)) items.push_back(machine.filter(name, item, rest));
  return generator(std::move(items));
}

template <bool keep, bool by_attribute>
Value select_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  Values items;
  if (!is_true(operand)) return generator({});
  const std::size_t at = by_attribute ? 1 : 0;
  if (arguments.positional.size() < at) throw TemplateError("missing parameter for attribute name");
  const bool has_test = arguments.positional.size() > at;
  const auto name = has_test ? to_text(arguments.positional[at]) : std::string();
  const auto rest = has_test ? rest_of(arguments, at + 1) : Arguments();
  for (auto& item : machine.iterate(operand)) {
    const auto value = by_attribute ? value_at(machine, item, arguments.positional.front(), nullptr) : item;
    const bool passes = has_test ? machine.test(name, value, rest) : is_true(value);
    if (passes == keep) items.push_back(std::move(item));
  }
  return generator(std::move(items));
}

Value batch_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"});
  const auto size = bound.count(0, 0);
  bound.require(0);
  Values batches;
  Values batch;
  const auto full = [&] { return static_cast<std::int64_t>(batch.size()) == size; };
  for (auto& item : machine.iterate(operand)) {
    if (full()) batches.push_back(make_sequence(std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    while (is_given(bound.find(1)) && static_cast<std::int64_t>(batch.size()) < size) {
      machine.step();
      batch.push_back(*bound.find(1));
    }
    batches.push_back(make_sequence(std::move(batch)));
  }
  return generator(std::move(batches));
}

Value slice_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"});
  const auto items = machine.iterate(operand);
  bound.require(0);
  const auto slices = bound.count(0, 0);
  if (slices <= 0) throw TemplateError("slice: 'slices' must be positive");
  const auto size = static_cast<std::int64_t>(items.size());
  Values made;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    machine.step();
    const bool longer = i < size % slices;
    const auto end = begin + size / slices + (longer ? 1 : 0);
    Values part(items.begin() + begin, items.begin() + end);
    if (is_given(bound.find(1)) && !longer) part.push_back(*bound.find(1));
    made.push_back(make_sequence(std::move(part)));
    begin = end;
  }
  return generator(std::move(made));
}

Value groupby_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"});
  const auto* otherwise = is_given(bound.find(1)) ? bound.find(1) : nullptr;
  const auto key_of = [&](const Value& item) { return value_at(machine, item, bound.require(0), otherwise); };
  Keyed keyed;
  for (auto& item : machine.iterate(operand))
    keyed.emplace_back(folded(key_of(item), bound.flag(2, false)), item);
  sort_by_key(machine, keyed, false);
  Values groups;
  for (std::size_t begin = 0; begin < keyed.size();) {
    Values members;
    auto end = begin;
    for (; end < keyed.size() && equal(keyed[end].first, keyed[begin].first); ++end)
      members.push_back(keyed[end].second);
    auto key = key_of(members.front());
    groups.push_back(
        make_sequence({std::move(key), make_sequence(std::move(members))}, Sequence::Kind::group));
    begin = end;
  }
  return make_sequence(std::move(groups));
}

}  // namespace

FilterFunction find_list_filter(std::string_view name) {
  static const std::map<std::string_view, FilterFunction> filters = {
      {"batch", batch_filter},
      {"dictsort", dictsort_filter},
      {"first", first_filter},
      {"groupby", groupby_filter},
      {"items", items_filter},
      {"join", join_filter},
      {"last", last_filter},
      {"list", list_filter},
      {"map", map_filter},
      {"max", extreme_filter<true>},
      {"min", extreme_filter<false>},
      {"reject", select_filter<false, false>},
      {"rejectattr", select_filter<false, true>},
      {"reverse", reverse_filter},
      {"select", select_filter<true, false>},
      {"selectattr", select_filter<true, true>},
      {"slice", slice_filter},
      {"sort", sort_filter},
      {"sum", sum_filter},
      {"unique", unique_filter},
  };
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

}  // namespace diffuse::jinja

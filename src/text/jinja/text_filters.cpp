#include <algorithm>
#include <map>

#include "core/utf8.hpp"
#include "text/jinja/bind.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/python_text.hpp"
#include "text/unicode.hpp"

namespace diffuse::jinja {
namespace {

template <std::string (*change)(std::string_view)>
Value change_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("the filter", arguments, {});
  return machine.text(change(to_text(operand)));
}

Value trim_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  return machine.text(strip(to_text(operand), Side::both, bound.text(0)));
}

Value replace_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  return machine.text(replace(machine, to_text(operand), to_text(bound.require(0)), to_text(bound.require(1)),
                              bound.count(2, -1)));
}

// Unlike str.title: a word begins behind a space, a dash or an opening bracket.
Value title_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("title", arguments, {});
  const auto text = to_text(operand);
  std::string made;
  for (std::size_t at = 0; at < text.size();) {
    const auto separates = [&](std::size_t& next) {
      const auto code = take_utf8(text, next);
      return is_python_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
    };
    const auto begin = at;
    if (separates(at)) {
      made += text.substr(begin, at - begin);
      continue;
    }
    const auto first = at;
    for (auto next = at; next < text.size() && !separates(next);) at = next;
    made += upper(text.substr(begin, first - begin)) + lower(text.substr(first, at - first));
  }
  return machine.text(std::move(made));
}

Value indent_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  if (!operand.is<Text>())
    throw TemplateError("indent needs a string, not '" + std::string(type_name(operand)) + "'");
  const auto* width = bound.find(0);
  std::string margin;
  if (width != nullptr && width->is<Text>()) {
    margin = *width->as<Text>()->text;
  } else {
    const auto spaces = std::max<std::int64_t>(bound.count(0, 4), 0);
    machine.expect_text(static_cast<std::uint64_t>(spaces));
    margin.assign(static_cast<std::size_t>(spaces), ' ');
  }
  const bool first = bound.flag(1, false);
  const bool blank = bound.flag(2, false);
  const auto lines = split_lines(*operand.as<Text>()->text + "\n");
  std::string made = first ? margin : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool moved = i > 0 && (blank || !lines[i].empty());
    machine.expect_text(lines[i].size() + 1 + (moved ? margin.size() : 0));
    if (i > 0) made += '\n';
    if (moved) made += margin;
    made += lines[i];
  }
  return make_text(std::move(made));
}

Value word_count_filter(Machine&, const Value& operand, const Arguments& arguments) {
  const Bound bound("wordcount", arguments, {});
  Int count = 0;
  bool inside = false;
  for (const auto code : code_points(to_text(operand))) {
    const bool word = code == '_' || is_alphanumeric(code);
    if (word && !inside) ++count;
    inside = word;
  }
  return Value(count);
}

Value center_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  const auto width = bound.find(0) != nullptr ? *bound.find(0) : Value(Int{80});
  return machine.call(machine.attribute(make_text(to_text(operand)), "center"), Arguments{{width}, {}});
}

Value truncate_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const auto letters = code_points(to_text(operand));
  const auto end = code_points(bound.text(2).value_or("..."));
  const auto length = bound.count(0, 255);
  const auto leeway = bound.count(3, 5);
  if (length < static_cast<std::int64_t>(end.size()) || leeway < 0)
    throw TemplateError("truncate: the length is too small");
  if (static_cast<std::int64_t>(letters.size()) <= length + leeway) return operand;
  auto kept = letters.substr(0, static_cast<std::size_t>(length) - end.size());
  if (!bound.flag(1, false)) kept = kept.substr(0, kept.rfind(U' '));
  return machine.text(from_code_points(kept + end));
}

Value escape_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("escape", arguments, {});
  if (const auto* text = operand.as<Text>(); text && text->markup) return operand;
  return machine.text(escape_html(to_text(operand)), true);
}

Value force_escape_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("forceescape", arguments, {});
  return machine.text(escape_html(to_text(operand)), true);
}

Value safe_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("safe", arguments, {});
  return machine.text(to_text(operand), true);
}

Value format_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    throw TemplateError("format cannot take positional and keyword arguments at the same time");
  return machine.text(percent_format(machine, to_text(operand), arguments));
}

Value tojson_filter(Machine& machine, const Value& operand, const Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  if (const auto* indent = bound.find(1); indent != nullptr && !indent->is<None>()) {
    constexpr std::int64_t kMost = 1000;
    style.indent =
        indent->is<Text>()
            ? *indent->as<Text>()->text
            : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(bound.count(1, 0), 0, kMost)),
                          ' ');
  }
  style.item_separator = style.indent ? "," : ", ";
  style.key_separator = ": ";
  if (const auto* separators = bound.find(2); separators != nullptr && !separators->is<None>()) {
    const auto parts = machine.iterate(*separators);
    if (parts.size() != 2) throw TemplateError("tojson: 'separators' must be two strings");
    style.item_separator = to_text(parts[0]);
    style.key_separator = to_text(parts[1]);
  }
  return machine.text(to_json(machine, operand, style));
}

}  // namespace

FilterFunction find_text_filter(std::string_view name) {
  static const std::map<std::string_view, FilterFunction> filters = {
      {"capitalize", change_filter<capitalize>},
      {"center", center_filter},
      {"e", escape_filter},
      {"escape", escape_filter},
      {"forceescape", force_escape_filter},
      {"format", format_filter},
      {"indent", indent_filter},
      {"lower", change_filter<lower>},
      {"replace", replace_filter},
      {"safe", safe_filter},
      {"title", title_filter},
      {"tojson", tojson_filter},
      {"trim", trim_filter},
      {"truncate", truncate_filter},
      {"upper", change_filter<upper>},
      {"wordcount", word_count_filter},
  };
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

}  // namespace diffuse::jinja

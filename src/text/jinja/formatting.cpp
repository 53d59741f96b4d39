// Python's ways to write values into text: % formatting, str.format, json.dumps.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/utf8.hpp"
#include "text/jinja/operators.hpp"
#include "text/jinja/python_text.hpp"

namespace diffuse::jinja {
namespace {

// One conversion of a % pattern, e.g. %-05.2f.
struct Conversion {
  std::string name;  // of %(name)s
  std::string flags;
  int width = 0;
  int precision = -1;
  char kind = 's';
};

constexpr int kMaxWidth = 1000;

int read_count(const std::string& pattern, std::size_t& at) {
  int count = 0;
  for (; at < pattern.size() && pattern[at] >= '0' && pattern[at] <= '9'; ++at) {
    count = count * 10 + (pattern[at] - '0');
    if (count > kMaxWidth) throw TemplateError("a format width above " + std::to_string(kMaxWidth));
  }
  return count;
}

Conversion read_conversion(const std::string& pattern, std::size_t& at) {
  Conversion conversion;
  if (at < pattern.size() && pattern[at] == '(') {
    const auto close = pattern.find(')', at);
    if (close == std::string::npos) throw TemplateError("incomplete format key");
    conversion.name = pattern.substr(at + 1, close - at - 1);
    at = close + 1;
  }
  constexpr std::string_view kFlags = "-+ #0";
  for (; at < pattern.size() && kFlags.find(pattern[at]) != kFlags.npos; ++at)
    if (conversion.flags.find(pattern[at]) == std::string::npos) conversion.flags += pattern[at];
  conversion.width = read_count(pattern, at);
  if (at < pattern.size() && pattern[at] == '.') conversion.precision = read_count(pattern, ++at);
  if (at >= pattern.size()) throw TemplateError("incomplete format");
  conversion.kind = pattern[at++];
  return conversion;
}

std::string padded(std::string text, const Conversion& conversion) {
  const auto size = static_cast<int>(count_utf8(text));
  if (size >= conversion.width) return text;
  const std::string fill(static_cast<std::size_t>(conversion.width - size), ' ');
  return conversion.flags.find('-') != std::string::npos ? text + fill : fill + text;
}

std::string format_number(const Conversion& conversion, const Value& value) {
  const auto spec = "%" + conversion.flags + (conversion.width > 0 ? std::to_string(conversion.width) : "") +
                    (conversion.precision >= 0 ? "." + std::to_string(conversion.precision) : "");
  char buffer[2 * kMaxWidth + 400];
  const bool whole = std::string_view("diuxXo").find(conversion.kind) != std::string_view::npos;
  if (whole) {
    Int number = 0;
    if (const auto* real = value.as<double>()) {
      if (!std::isfinite(*real) || std::fabs(*real) > 9e18)
        throw TemplateError("a number that %d cannot print");
      number = static_cast<Int>(*real);
    } else {
      number = to_int(value, std::string("what %") + conversion.kind + " prints");
    }
    if (number > INT64_MAX || number < INT64_MIN) throw TemplateError("a number that %d cannot print");
    const bool negative_hex =
        number < 0 && conversion.kind != 'd' && conversion.kind != 'i' && conversion.kind != 'u';
    if (negative_hex) throw TemplateError("a negative number in hex or octal is not known", true);
    const auto kind = conversion.kind == 'u' || conversion.kind == 'i' ? 'd' : conversion.kind;
    std::snprintf(buffer, sizeof buffer, (spec + "ll" + kind).c_str(), static_cast<long long>(number));
    return buffer;
  }
  const auto* real = value.as<double>();
  const double number = real != nullptr ? *real : static_cast<double>(to_int(value, "what %f prints"));
  std::snprintf(buffer, sizeof buffer, (spec + conversion.kind).c_str(), number);
  return buffer;
}

std::string format_one(const Conversion& conversion, const Value& value) {
  if (conversion.kind == 's' || conversion.kind == 'r') {
    auto text = conversion.kind == 's' ? to_text(value) : to_repr(value);
    if (conversion.precision >= 0)
      text = from_code_points(code_points(text).substr(0, static_cast<std::size_t>(conversion.precision)));
    return padded(std::move(text), conversion);
  }
  if (std::string_view("diuxXofFeEgG").find(conversion.kind) != std::string_view::npos)
    return format_number(conversion, value);
  throw TemplateError(std::string("the format %") + conversion.kind + " is not known", true);
}

const Value& named_argument(const Arguments& arguments, const std::string& name) {
  for (const auto& [key, value] : arguments.named)
    if (key == name) return value;
  throw TemplateError("the format names '" + name + "', which is not given");
}

std::string json_text(std::string_view text, bool ensure_ascii) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  const auto escape = [&](std::uint32_t unit) {
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kHex[(unit >> shift) & 15];
  };
  for (std::size_t at = 0; at < text.size();) {
    const auto begin = at;
    const auto code = take_utf8(text, at);
    constexpr std::string_view kFrom = "\"\\\n\r\t\f\b";
    constexpr std::string_view kTo = "\"\\nrtfb";
    const auto known = code < 0x80 ? kFrom.find(static_cast<char>(code)) : kFrom.npos;
    if (known != kFrom.npos) {
      out += '\\';
      out += kTo[known];
    } else if (code < 0x20 || (ensure_ascii && code > 0x7E && code < 0x10000)) {
      escape(code);
    } else if (ensure_ascii && code >= 0x10000) {
      escape(0xD800 + ((code - 0x10000) >> 10));
      escape(0xDC00 + ((code - 0x10000) & 0x3FF));
    } else {
      out += text.substr(begin, at - begin);
    }
  }
  return out + '"';
}

std::string json_real(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return float_repr(number);
}

std::string json_key(const Value& key) {
  if (key.is<Text>()) return *key.as<Text>()->text;
  if (key.is<None>()) return "null";
  if (const auto* flag = key.as<bool>()) return *flag ? "true" : "false";
  if (const auto* number = key.as<Int>()) return int_text(*number);
  if (const auto* real = key.as<double>()) return json_real(*real);
  throw TemplateError("keys of JSON must be str, int, float, bool or None, not " +
                      std::string(type_name(key)));
}

class JsonWriter {
 public:
  JsonWriter(Machine& machine, const JsonStyle& style) : machine_(machine), style_(style) {}

  std::string run(const Value& value) {
    write(value);
    return std::move(out_);
  }

 private:
  void line(std::size_t level) {
    if (!style_.indent) return;
    machine_.expect_text(1 + level * style_.indent->size());
    out_ += '\n';
    for (std::size_t i = 0; i < level; ++i) out_ += *style_.indent;
  }

  void write(const Value& value) {
    machine_.step();
    if (const auto* text = value.as<Text>()) {
      out_ += json_text(*text->text, style_.ensure_ascii);
    } else if (value.is<None>()) {
      out_ += "null";
    } else if (const auto* flag = value.as<bool>()) {
      out_ += *flag ? "true" : "false";
    } else if (const auto* number = value.as<Int>()) {
      out_ += int_text(*number);
    } else if (const auto* real = value.as<double>()) {
      out_ += json_real(*real);
    } else if (const auto* mapping = value.as<Mapping>()) {
      write_object(*mapping->entries);
    } else if (const auto* sequence = value.as<Sequence>();
               sequence && sequence->kind != Sequence::Kind::generator) {
      write_list(*sequence->items);
    } else {
      throw TemplateError("an object of type " + std::string(type_name(value)) + " is not JSON serializable");
    }
  }

  void write_list(const Values& items) {
    out_ += '[';
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      line(level_);
      write(items[i]);
    }
    --level_;
    if (!items.empty()) line(level_);
    out_ += ']';
  }

  void write_object(const Entries& given) {
    auto entries = given;
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return less(a.first, b.first); });
    out_ += '{';
    ++level_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      line(level_);
      out_ += json_text(json_key(entries[i].first), style_.ensure_ascii);
      out_ += style_.key_separator;
      write(entries[i].second);
    }
    --level_;
    if (!entries.empty()) line(level_);
    out_ += '}';
  }

  Machine& machine_;
  const JsonStyle& style_;
  std::string out_;
  std::size_t level_ = 0;
};

}  // namespace

std::string percent_format(Machine& machine, const std::string& pattern, const Arguments& arguments) {
  std::string out;
  std::size_t used = 0;
  for (std::size_t at = 0; at < pattern.size();) {
    if (pattern[at] != '%') {
      out += pattern[at++];
      continue;
    }
    const auto conversion = read_conversion(pattern, ++at);
    if (conversion.kind == '%') {
      out += '%';
      continue;
    }
    if (conversion.name.empty() && used >= arguments.positional.size())
      throw TemplateError("not enough arguments for format string");
    const auto& value =
        conversion.name.empty() ? arguments.positional[used++] : named_argument(arguments, conversion.name);
    const auto made = format_one(conversion, value);
    machine.expect_text(made.size());
    out += made;
  }
  if (used < arguments.positional.size())
    throw TemplateError("not all arguments converted during string formatting");
  return out;
}

std::string brace_format(Machine& machine, const std::string& pattern, const Arguments& arguments) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < pattern.size();) {
    const char letter = pattern[at++];
    const bool doubled = at < pattern.size() && pattern[at] == letter;
    if ((letter == '{' || letter == '}') && doubled) {
      out += letter;
      ++at;
      continue;
    }
    if (letter == '}') throw TemplateError("single '}' encountered in format string");
    if (letter != '{') {
      out += letter;
      continue;
    }
    const auto close = pattern.find('}', at);
    if (close == std::string::npos) throw TemplateError("single '{' encountered in format string");
    const auto field = pattern.substr(at, close - at);
    at = close + 1;
    if (field.find_first_of(":!.[") != std::string::npos)
      throw TemplateError("the format field '{" + field + "}' is not known", true);
    std::size_t index = next;
    const auto [end, failed] = std::from_chars(field.data(), field.data() + field.size(), index);
    const bool numbered = !field.empty() && failed == std::errc() && end == field.data() + field.size();
    if (field.empty()) ++next;
    if ((field.empty() || numbered) && index >= arguments.positional.size())
      throw TemplateError("the format names an argument that is not given");
    const auto made =
        to_text(field.empty() || numbered ? arguments.positional[index] : named_argument(arguments, field));
    machine.expect_text(made.size());
    out += made;
  }
  return out;
}

std::string to_json(Machine& machine, const Value& value, const JsonStyle& style) {
  return JsonWriter(machine, style).run(value);
}

}  // namespace diffuse::jinja

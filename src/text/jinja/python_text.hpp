#pragma once
// Python's string methods on UTF-8, as far as templates call them. Positions count characters.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/machine.hpp"

namespace diffuse::jinja {

std::u32string code_points(std::string_view text);
std::string from_code_points(std::u32string_view letters);

enum class Side { left, right, both };
// Takes off characters of `letters`; white space where it is not given.
std::string strip(std::string_view text, Side side, const std::optional<std::string>& letters);

// str.split and str.rsplit: at white space where there is no separator. `limit` < 0: no limit.
std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               std::int64_t limit);
std::vector<std::string> split_right(std::string_view text, const std::optional<std::string>& separator,
                                     std::int64_t limit);
std::vector<std::string> split_lines(std::string_view text);
std::string replace(Machine& machine, std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t limit);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // str.title
std::string swap_case(std::string_view text);
bool is_alphabetic(char32_t code);  // str.isalpha of one character, and so on
bool is_digit(char32_t code);
bool is_decimal(char32_t code);
bool is_any_number(char32_t code);
bool is_alphanumeric(char32_t code);
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);

std::string escape_html(std::string_view text);

// '%s is %d' % (...), and '{} {name}'.format(...). Throw for what is not known.
std::string percent_format(Machine& machine, const std::string& pattern, const Arguments& arguments);
std::string brace_format(Machine& machine, const std::string& pattern, const Arguments& arguments);

// json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; nothing: on one line
  std::string item_separator;
  std::string key_separator;
};
std::string to_json(Machine& machine, const Value& value, const JsonStyle& style);

}  // namespace diffuse::jinja

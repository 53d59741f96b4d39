#include "text/element.hpp"

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace diffuse {
namespace {

const Json* find_member(const Json& element, const char* key) {
  const auto found = element.find(key);
  return found == element.end() || found->is_null() ? nullptr : &*found;
}

// A whole number from 0 to `most`; JSON may hold it signed or not.
bool is_count(const Json& value, std::int64_t most) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
  return value.is_number_integer() && value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() <= most;
}

[[noreturn]] void wrong(const std::string& where, const char* key, const char* expected) {
  throw_bad_data(where + ": '" + key + "' must be " + expected);
}

}  // namespace

std::string element_type(const Json& element, const std::string& where) {
  if (!element.is_object()) throw_bad_data(where + " must be an object");
  return require_string(element, "type", where);
}

bool bool_member(const Json& element, const char* key, bool otherwise, const std::string& where) {
  const auto* value = find_member(element, key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) wrong(where, key, "true or false");
  return value->get<bool>();
}

std::optional<std::string> string_member(const Json& element, const char* key, const std::string& where) {
  const auto* value = find_member(element, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong(where, key, "a string");
  return value->get<std::string>();
}

std::string require_string(const Json& element, const char* key, const std::string& where) {
  auto value = string_member(element, key, where);
  if (!value) wrong(where, key, "a string");
  return *std::move(value);
}

const Json& require_array(const Json& element, const char* key, const std::string& where) {
  const auto* value = find_member(element, key);
  if (value == nullptr || !value->is_array()) wrong(where, key, "a list");
  return *value;
}

std::size_t require_count(const Json& element, const char* key, const std::string& where) {
  const auto* value = find_member(element, key);
  constexpr std::int64_t kMost = 1'000'000;
  if (value == nullptr || !is_count(*value, kMost)) wrong(where, key, "a number from 0 to 1000000");
  return value->get<std::size_t>();
}

std::string require_letter(const Json& element, const char* key, const std::string& where) {
  auto letter = require_string(element, key, where);
  if (count_utf8(letter) != 1) wrong(where, key, "one character");
  return letter;
}

std::int32_t token_id(const Json& value, const std::string& where) {
  if (!is_count(value, kMaxTokenId)) {
    throw_bad_data(where + ": " + in_quotes(value.dump()) + " is not a token id (0 to " +
                   std::to_string(kMaxTokenId) + ")");
  }
  return value.get<std::int32_t>();
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::string shown = "'";
  for (std::size_t at = 0; at < text.size();) {
    if (at >= kShown) return shown + "'...";
    const auto step = next_utf8(text.substr(at));
    if (step.kind != Utf8Step::Kind::whole) {
      shown += kReplacementUtf8;
    } else if (step.code < 0x20 || step.code == 0x7F) {
      shown += ' ';
    } else {
      shown += text.substr(at, step.bytes);
    }
    at += step.bytes;
  }
  return shown + "'";
}

}  // namespace diffuse

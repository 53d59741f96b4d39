#include "verify/json_fields.hpp"

#include <limits>

#include "core/error.hpp"

namespace diffuse {

JsonFields::JsonFields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object_.is_object()) throw_bad_data(path_ + ": not an object");
}

void JsonFields::refuse(const std::string& key, const std::string& expected) const {
  throw_bad_data(path(key) + ": not " + expected);
}

const Json& JsonFields::at(const std::string& key) const {
  const auto found = object_.find(key);
  if (found == object_.end()) throw_bad_data(path(key) + ": missing");
  return *found;
}

const Json& JsonFields::array(const std::string& key) const {
  const auto& value = at(key);
  if (!value.is_array()) refuse(key, "a list");
  return value;
}

std::string JsonFields::text(const std::string& key) const {
  const auto& value = at(key);
  if (!value.is_string()) refuse(key, "a string");
  return value.get<std::string>();
}

bool JsonFields::flag(const std::string& key) const {
  const auto& value = at(key);
  if (!value.is_boolean()) refuse(key, "true or false");
  return value.get<bool>();
}

std::uint64_t JsonFields::count(const std::string& key) const {
  const auto& value = at(key);
  const bool is_count =
      value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() >= 0);
  if (!is_count) refuse(key, "a count");
  return value.get<std::uint64_t>();
}

std::int64_t JsonFields::integer(const std::string& key) const {
  const auto& value = at(key);
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() ||
       value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (!fits) refuse(key, "an integer");
  return value.get<std::int64_t>();
}

std::optional<std::int64_t> JsonFields::optional_integer(const std::string& key) const {
  if (at(key).is_null()) return std::nullopt;
  return integer(key);
}

double JsonFields::number(const std::string& key) const {
  const auto& value = at(key);
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value.is_number()) refuse(key, "a number");
  return value.get<double>();
}

}  // namespace diffuse

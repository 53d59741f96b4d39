#include "recipe/config_reader.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "recipe/dictionary.hpp"

namespace diffuse {
namespace {

[[noreturn]] void wrong(const std::string& path, const Json& value, const std::string& wanted) {
  throw_bad_data("config.json: '" + path + "' is " + shown(value) + ", not " + wanted);
}

}  // namespace

bool says_nothing(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_structured() && value.empty());
}

ConfigReader::ConfigReader(const Json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {
  if (!object.is_object()) {
    throw_bad_data(
        "config.json: " + (prefix_.empty() ? "it" : "'" + prefix_.substr(0, prefix_.size() - 1) + "'") +
        " is " + shown(object) + ", not an object");
  }
  for (const auto& [key, value] : object.items()) entries_.try_emplace(key);
}

void ConfigReader::mark_read(std::string_view name) {
  const auto entry = entries_.find(name);
  if (entry != entries_.end()) entry->second.read = true;
}

void ConfigReader::read_as(Names own) {
  own_ = own;
  for (auto& [key, entry] : entries_) {
    if (entry.inside) entry.inside->read_as(own);
  }
}

bool ConfigReader::is_own(std::string_view name) const {
  return own_.empty() || std::find(own_.begin(), own_.end(), name) != own_.end() || !keys::is_disputed(name);
}

bool ConfigReader::states(Names names) {
  bool there = false;
  for (const auto name : names) {
    if (!is_own(name)) continue;
    there = there || entries_.contains(name);
    mark_read(name);
  }
  return there;
}

std::optional<ConfigReader::Found> ConfigReader::find(Names names) {
  std::optional<Found> found;
  std::vector<std::string_view> foreign;
  for (const auto name : names) {
    const auto at = object_.find(name);
    if (!is_own(name)) {
      if (at != object_.end()) foreign.push_back(name);
      continue;
    }
    mark_read(name);
    if (at == object_.end() || at->is_null()) continue;
    const auto path = prefix_ + std::string(name);
    if (!found) {
      found = Found{path, &*at};
    } else if (*found->value != *at) {
      throw_refused("config.json: '" + found->path + "' is " + shown(*found->value) + " and '" + path +
                    "' is " + shown(*at) + ", two names for one thing; remove the wrong one");
    }
  }
  for (const auto name : foreign) {
    if (found && *found->value == object_.at(name)) mark_read(name);
  }
  return found;
}

std::optional<std::int64_t> ConfigReader::integer(Names names, std::int64_t least, std::int64_t most) {
  const auto found = find(names);
  if (!found) return std::nullopt;
  const auto& value = *found->value;
  const auto range = "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  if (!value.is_number_integer()) wrong(found->path, value, range);
  // Over 63 bits it turns negative, which is out of range: `least` is not.
  const auto number = value.get<std::int64_t>();
  if (number < least || number > most) wrong(found->path, value, range);
  return number;
}

std::optional<double> ConfigReader::number(Names names, double least, double most) {
  const auto found = find(names);
  if (!found) return std::nullopt;
  const auto& value = *found->value;
  if (!value.is_number() || !(value.get<double>() >= least) || !(value.get<double>() <= most))
    wrong(found->path, value, "a number from " + Json(least).dump() + " to " + Json(most).dump());
  return value.get<double>();
}

std::optional<bool> ConfigReader::boolean(Names names) {
  const auto found = find(names);
  if (!found) return std::nullopt;
  if (!found->value->is_boolean()) wrong(found->path, *found->value, "true or false");
  return found->value->get<bool>();
}

std::optional<std::string> ConfigReader::text(Names names) {
  const auto found = find(names);
  if (!found) return std::nullopt;
  if (!found->value->is_string()) wrong(found->path, *found->value, "a text");
  return found->value->get<std::string>();
}

std::optional<std::vector<std::string>> ConfigReader::texts(Names names) {
  const auto found = find(names);
  if (!found) return std::nullopt;
  if (!found->value->is_array()) wrong(found->path, *found->value, "a list of texts");
  std::vector<std::string> list;
  for (const auto& value : *found->value) {
    if (!value.is_string()) wrong(found->path, *found->value, "a list of texts");
    list.push_back(value.get<std::string>());
  }
  return list;
}

ConfigReader* ConfigReader::object(std::string_view name) {
  const auto at = object_.find(name);
  mark_read(name);
  if (at == object_.end() || at->is_null()) return nullptr;
  auto& entry = entries_.find(name)->second;
  if (!entry.inside) {
    entry.inside = std::make_unique<ConfigReader>(*at, prefix_ + std::string(name) + ".");
    entry.inside->read_as(own_);
  }
  return entry.inside.get();
}

std::vector<ConfigReader::Leftover> ConfigReader::leftovers() const {
  std::vector<Leftover> list;
  for (const auto& [key, entry] : entries_) {
    const auto& value = object_.at(key);
    if (!entry.read && !says_nothing(value)) list.push_back({prefix_ + key, &value, !is_own(key)});
    if (!entry.inside) continue;
    const auto inside = entry.inside->leftovers();
    list.insert(list.end(), inside.begin(), inside.end());
  }
  return list;
}

}  // namespace diffuse

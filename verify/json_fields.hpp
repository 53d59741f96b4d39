#pragma once
// Reading members of a JSON object that must be there and of one type. Every failure throws bad data and
// names the member's path.

#include <cstdint>
#include <optional>
#include <string>

#include "core/json.hpp"

namespace diffuse {

// Keeps a reference to the object, which must outlive it.
class JsonFields {
 public:
  JsonFields(const Json& object, std::string path);

  const Json& at(const std::string& key) const;
  const Json& array(const std::string& key) const;
  std::string text(const std::string& key) const;
  bool flag(const std::string& key) const;
  std::uint64_t count(const std::string& key) const;                           // >= 0
  std::int64_t integer(const std::string& key) const;                          // any that fits
  std::optional<std::int64_t> optional_integer(const std::string& key) const;  // null: nothing
  double number(const std::string& key) const;  // null: NaN, as JSON has no spelling for it

  std::string path(const std::string& key) const { return path_ + "." + key; }
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;

 private:
  const Json& object_;
  std::string path_;
};

}  // namespace diffuse

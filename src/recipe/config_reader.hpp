#pragma once
// Reads a stranger's config object and keeps account of what was read: whatever is left over can be named.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/shown.hpp"
#include "core/json.hpp"

namespace diffuse {

// The names that the field uses for one role, the first being the usual one.
using Names = std::span<const std::string_view>;

// Null, false, or empty: an unknown key with such a value changes nothing.
bool says_nothing(const Json& value);

// What a size in a config may be at most where its place sets no closer bound.
inline constexpr std::int64_t kMostSize = 2147483647;

// Every getter marks all of `names` as read, returns nothing where none is there or it is null, and throws
// bad data for a value of another type or out of range, refused where two names disagree. A name that
// read_as() says is another family's is no name at all: it is never used, and is left over unless it says
// what the family's own name says.
class ConfigReader {
 public:
  struct Leftover {
    std::string path;  // "foo" or "rope_parameters.foo"
    const Json* value;
    bool foreign = false;  // read_as() says that it is another family's
  };

  // `object` must outlive the reader. Throws bad data where it is not an object.
  explicit ConfigReader(const Json& object, std::string prefix = {});

  // Of the names whose use differs by family (is_disputed), only `own` are names from now on, here and in
  // objects inside. `own` must outlive the reader; empty: all of them are.
  void read_as(Names own);

  bool states(Names names);  // one of them is there, be it null
  // 0 <= least
  std::optional<std::int64_t> integer(Names names, std::int64_t least, std::int64_t most);
  std::optional<double> number(Names names, double least, double most);
  std::optional<bool> boolean(Names names);
  std::optional<std::string> text(Names names);
  std::optional<std::vector<std::string>> texts(Names names);
  // An object inside, with its own account that leftovers() includes; null where there is none. The same
  // object again for the same name.
  ConfigReader* object(std::string_view name);

  void mark_read(std::string_view name);
  const Json& json() const { return object_; }
  // Keys that nobody read and whose value says something: not null, false or empty.
  std::vector<Leftover> leftovers() const;

 private:
  struct Entry {
    bool read = false;
    std::unique_ptr<ConfigReader> inside;
  };
  struct Found {
    std::string path;
    const Json* value;
  };
  std::optional<Found> find(Names names);
  bool is_own(std::string_view name) const;

  const Json& object_;
  std::string prefix_;
  Names own_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace diffuse

#pragma once
// Matches a call's arguments to a builtin's parameters.

#include <initializer_list>
#include <optional>
#include <string>

#include "text/jinja/operators.hpp"
#include "text/jinja/value.hpp"

namespace diffuse::jinja {

class Bound {
 public:
  // Throws where there are more arguments than parameters, or one by an unknown name.
  Bound(const std::string& function, const Arguments& arguments,
        std::initializer_list<const char*> parameters);

  const Value* find(std::size_t index) const { return values_[index]; }
  const Value& require(std::size_t index) const;
  bool flag(std::size_t index, bool otherwise) const;
  // None counts as not given.
  std::optional<std::string> text(std::size_t index) const;
  Int integer(std::size_t index, Int otherwise) const;
  // The same, held within what loops over texts count with.
  std::int64_t count(std::size_t index, std::int64_t otherwise) const;

 private:
  std::string function_;
  std::vector<std::string> names_;
  std::vector<const Value*> values_;
};

}  // namespace diffuse::jinja

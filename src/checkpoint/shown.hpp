#pragma once
// A stranger's value or name in a message.

#include <string>

#include "core/json.hpp"

namespace diffuse {

// As JSON in plain ASCII, so that no control character reaches a terminal, and shortened, so that a header of
// 100 MB cannot fill a log.
std::string shown(const Json& value);

}  // namespace diffuse

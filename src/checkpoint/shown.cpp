#include "checkpoint/shown.hpp"

namespace diffuse {

std::string shown(const Json& value) {
  constexpr std::size_t kMost = 120;
  auto text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost - 3) + "...";
  return text;
}

}  // namespace diffuse

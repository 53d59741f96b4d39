#pragma once
// Numbers as people read them.

#include <cstdint>
#include <span>
#include <string>

namespace diffuse {

std::string human_bytes(std::uint64_t bytes);                 // "953.1 MiB"
std::string fixed(double value, int digits);                  // "12.30"
std::string short_number(double value);                       // "0.03", "1e+08"
std::string shape_text(std::span<const std::int64_t> shape);  // "[16, 21, 60, 104]"

}  // namespace diffuse

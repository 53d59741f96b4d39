#include "job/npy.hpp"

#include <string_view>

#include "core/error.hpp"
#include "core/size.hpp"

namespace diffuse {

std::string npy_file(std::span<const float> values, std::span<const std::int64_t> shape) {
  if (count_of(shape) != values.size()) throw_internal("writing .npy: other values than its shape says");
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < shape.size(); ++i)
    header += (i == 0 ? "" : " ") + std::to_string(shape[i]) + (i == 0 || i + 1 < shape.size() ? "," : "");
  header += "), }";
  // Mark, version and length take ten bytes; the values begin at a multiple of 64, and a line ends before
  // them.
  constexpr std::string_view kMark("\x93NUMPY\x01\x00", 8);
  constexpr std::size_t kAlign = 64;
  const auto used = kMark.size() + 2 + header.size() + 1;
  header.append((kAlign - used % kAlign) % kAlign, ' ');
  header += '\n';
  std::string file(kMark);
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  const auto bytes = std::as_bytes(values);
  file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return file;
}

}  // namespace diffuse

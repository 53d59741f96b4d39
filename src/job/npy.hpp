#pragma once
// Numbers as a .npy file, which `numpy.load` reads (NumPy's format, version 1.0).

#include <cstdint>
#include <span>
#include <string>

namespace diffuse {

// The bytes of the file: f32, little-endian, `values` in row-major order of `shape`. Throws internal where
// the shape has other elements.
std::string npy_file(std::span<const float> values, std::span<const std::int64_t> shape);

}  // namespace diffuse

#pragma once
// Type and shape of a tensor as a safetensors header states them.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.hpp"

namespace diffuse {

struct TensorHeader {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // no dimension is negative; the product fits 64 bits
  bool operator==(const TensorHeader&) const = default;
};
using TensorHeaders = std::map<std::string, TensorHeader>;

}  // namespace diffuse

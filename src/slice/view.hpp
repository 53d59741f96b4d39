#pragma once
// A buffer of the backend read as rows that lie one behind the other.

#include "backend/backend.hpp"

namespace diffuse {

// The first rows x cols floats of `buffer`, which must hold as many.  // [rows, cols]
inline Rows view(const Buffer& buffer, std::int64_t rows, std::int64_t cols) {
  return {buffer.floats(), rows, cols, cols};
}

}  // namespace diffuse

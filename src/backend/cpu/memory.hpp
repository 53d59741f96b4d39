#pragma once
// Memory of the CPU backend: zeroed, aligned, in large pages where it is large.

#include <cstddef>

#include "backend/backend.hpp"

namespace diffuse::cpu {

// Zeroed and aligned to 64 bytes; from a few megabytes on it is mapped on its own, backed by large pages
// where the system has them, and takes memory only when it is written.
Buffer allocate_zeroed(std::size_t bytes);

// Grows and never shrinks; what it holds is lost when it grows.
class Scratch {
 public:
  template <class T>
  T* get(std::size_t count) {
    return reinterpret_cast<T*>(reserve(count * sizeof(T)));
  }

 private:
  std::byte* reserve(std::size_t bytes);
  Buffer memory_;
};

}  // namespace diffuse::cpu

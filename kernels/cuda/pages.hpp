#pragma once
// How keys and values lie in the CUDA backend's pages. A page holds kTile positions of one sequence for every
// key-value head; a head's part is its keys, then its values:
//   keys    [head_dim rounded up / kChunk][kTile][kChunk]  chunks of 16 bytes, so that threads side by side
//   read
//                                                          neighbouring keys' chunks
//   values  [kTile][value_dim rounded up]                  rows of whole chunks
// kChunk is 4 elements of f32 or 8 of bf16; what pads a chunk is zero.

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.hpp"

namespace diffuse::kernels::cuda {

struct PageShape {
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;   // of keys
  std::int64_t value_dim = 0;  // of values
  bool bf16 = false;

  constexpr std::int64_t element() const { return bf16 ? 2 : 4; }
  constexpr std::int64_t chunk() const { return 16 / element(); }
  constexpr std::int64_t key_chunks() const { return (head_dim + chunk() - 1) / chunk(); }
  constexpr std::int64_t value_stride() const { return round_up(value_dim, chunk()); }
  constexpr std::int64_t key_bytes() const { return key_chunks() * kTile * 16; }
  constexpr std::int64_t value_bytes() const { return kTile * value_stride() * element(); }
  constexpr std::int64_t head_bytes() const { return key_bytes() + value_bytes(); }
  constexpr std::int64_t page_bytes() const { return kv_heads * head_bytes(); }
};

}  // namespace diffuse::kernels::cuda

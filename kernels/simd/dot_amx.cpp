// The product of bf16 by bf16 in AMX tiles: one tile multiplication adds kDepthStep inputs to 16 rows x 16
// outputs. A row's sums do not depend on the rows beside it in a tile, and every block of rows walks k in the
// same steps.

#include <immintrin.h>

#include "kernels/kernels.hpp"

namespace diffuse::kernels {

void matmul_amx(const PanelProduct& args);

namespace {

constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kTileCols = 16;
constexpr std::int64_t kWeightRow = kPanel * 4;               // bytes between pairs of k
constexpr std::int64_t kAccRow = kPanel * sizeof(float);      // bytes
constexpr std::int64_t kAccTile = kTileCols * sizeof(float);  // bytes between tiles of a panel

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// Tiles 0-3 are sums, 4 and 5 activations (5 for the second 16 rows), 6 and 7 weights.
void configure(std::int64_t first_rows, std::int64_t second_rows) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = kTileRows;
  }
  config.rows[0] = config.rows[1] = config.rows[4] = static_cast<std::uint8_t>(first_rows);
  if (second_rows == 0) {
    config.rows[2] = config.rows[3] = static_cast<std::uint8_t>(first_rows);
  } else {
    config.rows[2] = config.rows[3] = config.rows[5] = static_cast<std::uint8_t>(second_rows);
  }
  _tile_loadconfig(&config);
}

struct Walk {
  const std::uint16_t* x;
  std::int64_t stride;
  const std::byte* w;
  std::int64_t depth;
  bool add;
  std::byte* acc;
  const std::byte* fetch;    // into the second cache meanwhile
  std::int64_t fetch_lines;  // a step
};

inline void fetch_some(Walk& walk) {
  for (std::int64_t line = 0; line < walk.fetch_lines; ++line)
    __builtin_prefetch(walk.fetch + line * 64, 0, 2);
  walk.fetch += walk.fetch_lines * 64;
}

// The only pass over these weights, which come from memory: one line in four is asked for ahead, and the
// processor's own prefetching adds the others.
inline void fetch_ahead(const std::byte* weights) {
  constexpr std::int64_t kAhead = 2048;
#pragma GCC unroll 16
  for (std::int64_t line = 0; line < kDepthStep / 2 * kWeightRow; line += 256)
    __builtin_prefetch(weights + kAhead + line, 0, 2);
}

// Up to 16 rows by a whole panel.
void one_tile_of_rows(Walk walk) {
  if (walk.add) {
    _tile_loadd(0, walk.acc, kAccRow);
    _tile_loadd(1, walk.acc + kAccTile, kAccRow);
    _tile_loadd(2, walk.acc + 2 * kAccTile, kAccRow);
    _tile_loadd(3, walk.acc + 3 * kAccTile, kAccRow);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t k = 0; k < walk.depth; k += kDepthStep) {
    const std::byte* weights = walk.w + k / 2 * kWeightRow;
    fetch_ahead(weights);
    _tile_loadd(4, walk.x + k, walk.stride * 2);
    _tile_loadd(6, weights, kWeightRow);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, weights + 64, kWeightRow);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(6, weights + 128, kWeightRow);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(7, weights + 192, kWeightRow);
    _tile_dpbf16ps(3, 4, 7);
  }
  _tile_stored(0, walk.acc, kAccRow);
  _tile_stored(1, walk.acc + kAccTile, kAccRow);
  _tile_stored(2, walk.acc + 2 * kAccTile, kAccRow);
  _tile_stored(3, walk.acc + 3 * kAccTile, kAccRow);
}

// 17 to 32 rows by half a panel.
void two_tiles_of_rows(Walk& walk, std::int64_t half) {
  const std::uint16_t* second = walk.x + kTileRows * walk.stride;
  std::byte* to = walk.acc + half * 2 * kAccTile;
  std::byte* second_to = to + kTileRows * kAccRow;
  if (walk.add) {
    _tile_loadd(0, to, kAccRow);
    _tile_loadd(1, to + kAccTile, kAccRow);
    _tile_loadd(2, second_to, kAccRow);
    _tile_loadd(3, second_to + kAccTile, kAccRow);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t k = 0; k < walk.depth; k += kDepthStep) {
    fetch_some(walk);
    const std::byte* weights = walk.w + k / 2 * kWeightRow + half * 128;
    _tile_loadd(4, walk.x + k, walk.stride * 2);
    _tile_loadd(6, weights, kWeightRow);
    _tile_loadd(7, weights + 64, kWeightRow);
    _tile_loadd(5, second + k, walk.stride * 2);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, to, kAccRow);
  _tile_stored(1, to + kAccTile, kAccRow);
  _tile_stored(2, second_to, kAccRow);
  _tile_stored(3, second_to + kAccTile, kAccRow);
}

}  // namespace

void matmul_amx(const PanelProduct& args) {
  const std::int64_t pairs = (args.rows + 2 * kTileRows - 1) / (2 * kTileRows);
  const std::int64_t steps = (args.depth + kDepthStep - 1) / kDepthStep * pairs * 2;
  Walk walk{.x = static_cast<const std::uint16_t*>(args.x),
            .stride = args.x_stride,
            .w = static_cast<const std::byte*>(args.w),
            .depth = args.depth,
            .add = args.add,
            .acc = reinterpret_cast<std::byte*>(args.acc),
            .fetch = args.next,
            .fetch_lines = args.next == nullptr ? 0 : (args.next_bytes / 64 + steps - 1) / steps};
  std::int64_t configured = 0;
  for (std::int64_t left = args.rows; left > 0; left -= 2 * kTileRows) {
    const std::int64_t count = left < 2 * kTileRows ? left : 2 * kTileRows;
    if (count != configured) {
      if (count > kTileRows) {
        configure(kTileRows, count - kTileRows);
      } else {
        configure(count, 0);
      }
      configured = count;
    }
    if (count > kTileRows) {
      two_tiles_of_rows(walk, 0);
      two_tiles_of_rows(walk, 1);
    } else {
      one_tile_of_rows(walk);
    }
    walk.x += 2 * kTileRows * walk.stride;
    walk.acc += 2 * kTileRows * kAccRow;
  }
  _tile_release();
}

}  // namespace diffuse::kernels

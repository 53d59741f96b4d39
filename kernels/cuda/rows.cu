// Operations on rows, element by element, and the copies that stage weights and inputs of products.

#include "kernels/cuda/quads.hpp"

namespace diffuse::kernels::cuda {
namespace {

constexpr int kTeamOfItems = kBlockItems;

struct ConvertBody {
  static constexpr int kTeam = kTeamOfItems;
  StoredQuads from;
  void* to;
  bool to_bf16;
  bool wide;
  std::int64_t count;

  template <class Team>
  __device__ void operator()(Team& team) const {
    each_quad(team, 1, count, [&](std::int64_t, std::int64_t col, int size) {
      const Quad quad = from.load(0, col, size);
      if (to_bf16) {
        store_half_quad(static_cast<std::uint16_t*>(to) + col, narrowed(quad), size, wide);
      } else {
        store_quad(static_cast<float*>(to) + col, quad, size, wide);
      }
    });
  }
};

// Rows picked by `members` (all in turn without it), padded with zeros.
struct CopyBody {
  static constexpr int kTeam = kTeamOfItems;
  InQuads x;
  std::int64_t x_rows;
  std::int64_t x_cols;
  const std::int32_t* members;
  OutQuads y;
  std::uint16_t* narrow;  // null: y is written
  std::int64_t narrow_stride;
  bool narrow_wide;
  std::int64_t y_rows;
  std::int64_t y_cols;

  template <class Team>
  __device__ void operator()(Team& team) const {
    each_quad(team, y_rows, y_cols, [&](std::int64_t row, std::int64_t col, int count) {
      const std::int64_t from = members == nullptr ? row : members[row];
      Quad quad{};
      const std::int64_t left = x_cols - col;
      if (from >= 0 && from < x_rows && left > 0)
        quad = x.load(from, col, static_cast<int>(left < count ? left : count));
      if (narrow != nullptr) {
        store_half_quad(narrow + row * narrow_stride + col, narrowed(quad), count, narrow_wide);
      } else {
        y.store(row, col, quad, count);
      }
    });
  }
};

struct EmbedBody {
  static constexpr int kTeam = kTeamOfItems;
  StoredQuads table;
  const std::int32_t* ids;
  float scale;
  OutQuads out;
  std::int64_t rows;
  std::int64_t cols;

  template <class Team>
  __device__ void operator()(Team& team) const {
    each_quad(team, rows, cols, [&](std::int64_t row, std::int64_t col, int count) {
      Quad quad = table.load(ids[row], col, count);
      DIFFUSE_UNROLL
      for (int i = 0; i < 4; ++i) quad.v[i] = scale * quad.v[i];
      out.store(row, col, quad, count);
    });
  }
};

// y[row] += scale * x[picked row]
struct AddBody {
  static constexpr int kTeam = kTeamOfItems;
  InQuads x;
  const std::int32_t* picked;  // null: each row's own
  float scale;
  OutQuads y;
  std::int64_t rows;
  std::int64_t cols;

  template <class Team>
  __device__ void operator()(Team& team) const {
    each_quad(team, rows, cols, [&](std::int64_t row, std::int64_t col, int count) {
      const Quad term = x.load(picked == nullptr ? row : picked[row], col, count);
      Quad sum = y.load(row, col, count);
      DIFFUSE_UNROLL
      for (int i = 0; i < 4; ++i) sum.v[i] = ::fmaf(term.v[i], scale, sum.v[i]);
      y.store(row, col, sum, count);
    });
  }
};

struct AddGatedBody {
  static constexpr int kTeam = kTeamOfItems;
  InQuads x;
  const float* gate;
  bool gate_wide;
  OutQuads y;
  std::int64_t rows;
  std::int64_t cols;

  template <class Team>
  __device__ void operator()(Team& team) const {
    each_quad(team, rows, cols, [&](std::int64_t row, std::int64_t col, int count) {
      const Quad term = x.load(row, col, count);
      const Quad factor = load_quad(gate + col, count, gate_wide);
      Quad sum = y.load(row, col, count);
      DIFFUSE_UNROLL
      for (int i = 0; i < 4; ++i) sum.v[i] = ::fmaf(term.v[i], factor.v[i], sum.v[i]);
      y.store(row, col, sum, count);
    });
  }
};

// Pages of keys and values as one run of elements each: y = x + weight * (x - y).
struct ExtrapolateBody {
  static constexpr int kTeam = kTeamOfItems;
  Extrapolate args;
  std::int64_t elements;  // of a page, a multiple of 4

  __device__ static float moved(float x, float y, float weight) {
    return weight == 0 ? x : ::fmaf(weight, x - y, x);
  }

  template <class Team>
  __device__ void operator()(Team& team) const {
    each_quad(team, args.pages, elements, [&](std::int64_t page, std::int64_t at, int count) {
      const std::byte* x = args.pool + args.from[page] * args.page_bytes;
      std::byte* y = args.pool + args.to[page] * args.page_bytes;
      if (args.bf16) {
        auto* halves = reinterpret_cast<std::uint16_t*>(y) + at;
        const HalfQuad ahead = load_half_quad(reinterpret_cast<const std::uint16_t*>(x) + at, count, true);
        const HalfQuad behind = load_half_quad(halves, count, true);
        Quad quad{};
        DIFFUSE_UNROLL
        for (int i = 0; i < 4; ++i)
          quad.v[i] = moved(bf16_to_f32(ahead.v[i]), bf16_to_f32(behind.v[i]), args.weight);
        store_half_quad(halves, narrowed(quad), count, true);
      } else {
        auto* floats = reinterpret_cast<float*>(y) + at;
        const Quad ahead = load_quad(reinterpret_cast<const float*>(x) + at, count, true);
        Quad quad = load_quad(floats, count, true);
        DIFFUSE_UNROLL
        for (int i = 0; i < 4; ++i) quad.v[i] = moved(ahead.v[i], quad.v[i], args.weight);
        store_quad(floats, quad, count, true);
      }
    });
  }
};

struct FinishBody {
  static constexpr int kTeam = kTeamOfItems;
  InQuads x;
  OutQuads y;
  const float* bias;
  bool bias_wide;
  Activation activation;
  float scale;
  bool accumulate;
  std::int64_t rows;
  std::int64_t cols;

  template <class Team>
  __device__ void operator()(Team& team) const {
    each_quad(team, rows, cols, [&](std::int64_t row, std::int64_t col, int count) {
      Quad quad = x.load(row, col, count);
      if (bias != nullptr) {
        const Quad added = load_quad(bias + col, count, bias_wide);
        DIFFUSE_UNROLL
        for (int i = 0; i < 4; ++i) quad.v[i] = quad.v[i] + added.v[i];
      }
      DIFFUSE_UNROLL
      for (int i = 0; i < 4; ++i) quad.v[i] = activated(activation, quad.v[i]);
      if (accumulate) {
        const Quad before = y.load(row, col, count);
        DIFFUSE_UNROLL
        for (int i = 0; i < 4; ++i) quad.v[i] = ::fmaf(quad.v[i], scale, before.v[i]);
      } else {
        DIFFUSE_UNROLL
        for (int i = 0; i < 4; ++i) quad.v[i] = quad.v[i] * scale;
      }
      y.store(row, col, quad, count);
    });
  }
};

struct GateBody {
  static constexpr int kTeam = kTeamOfItems;
  InQuads gated;
  InQuads up;
  OutQuads y;
  Activation activation;
  std::int64_t rows;
  std::int64_t cols;

  template <class Team>
  __device__ void operator()(Team& team) const {
    each_quad(team, rows, cols, [&](std::int64_t row, std::int64_t col, int count) {
      Quad quad = gated.load(row, col, count);
      const Quad factor = up.load(row, col, count);
      DIFFUSE_UNROLL
      for (int i = 0; i < 4; ++i) quad.v[i] = activated(activation, quad.v[i]) * factor.v[i];
      y.store(row, col, quad, count);
    });
  }
};

struct SoftcapBody {
  static constexpr int kTeam = kTeamOfItems;
  OutQuads y;
  float cap;
  std::int64_t rows;
  std::int64_t cols;

  template <class Team>
  __device__ void operator()(Team& team) const {
    each_quad(team, rows, cols, [&](std::int64_t row, std::int64_t col, int count) {
      Quad quad = y.load(row, col, count);
      DIFFUSE_UNROLL
      for (int i = 0; i < 4; ++i) quad.v[i] = cap * hyperbolic_tangent(quad.v[i] / cap);
      y.store(row, col, quad, count);
    });
  }
};

struct RopeBody {
  static constexpr int kTeam = kTeamOfItems;
  Rope args;

  template <class Team>
  __device__ void operator()(Team& team) const {
    each_item(team, args.x.rows, args.heads * args.pairs, [&](std::int64_t row, std::uint32_t item) {
      const auto pairs = static_cast<std::uint32_t>(args.pairs);
      const std::int64_t head = item / pairs;
      const std::int64_t pair = item % pairs;
      float* x = args.x.data + row * args.x.stride + head * args.head_dim;
      float& first = x[args.interleaved ? 2 * pair : pair];
      float& second = x[args.interleaved ? 2 * pair + 1 : args.pairs + pair];
      const float cosine = args.cos[row * args.pairs + pair];
      const float sine = args.sin[row * args.pairs + pair];
      const float a = first;
      const float b = second;
      first = ::fmaf(-b, sine, a * cosine);
      second = ::fmaf(a, sine, b * cosine);
    });
  }
};

struct UnfoldBody {
  static constexpr int kTeam = kTeamOfItems;
  Unfold args;

  template <class Team>
  __device__ void operator()(Team& team) const {
    each_item(team, args.out.rows, args.out.cols, [&](std::int64_t row, std::uint32_t col) {
      const auto width = static_cast<std::uint32_t>(args.width);
      const std::int64_t frame = row * args.stride + col % width - args.padding;
      const bool inside = frame >= 0 && frame < args.x.rows;
      args.out.data[row * args.out.stride + col] =
          inside ? args.x.data[frame * args.x.stride + col / width] : 0.0F;
    });
  }
};

cudaError_t copy(cudaStream_t stream, const RowsIn& x, const std::int32_t* members, const RowsOut& y) {
  return launch_quads(
      stream, y.rows, y.cols,
      CopyBody{InQuads(x), x.rows, x.cols, members, OutQuads(y), nullptr, 0, false, y.rows, y.cols});
}

cudaError_t copy_narrow(cudaStream_t stream, const RowsIn& x, const std::int32_t* members, std::uint16_t* y,
                        std::int64_t y_rows, std::int64_t y_cols, std::int64_t y_stride) {
  return launch_quads(stream, y_rows, y_cols,
                      CopyBody{InQuads(x), x.rows, x.cols, members, OutQuads(), y, y_stride,
                               aligned(y, y_stride, 2), y_rows, y_cols});
}

bool same_shape(const RowsIn& x, const RowsOut& y) {
  return x.rows == y.rows && x.cols == y.cols;
}

}  // namespace

cudaError_t convert(cudaStream_t stream, const void* from, Element from_type, void* to, Element to_type,
                    std::int64_t count) {
  if (to_type == Element::f16) return cudaErrorInvalidValue;
  const bool to_bf16 = to_type == Element::bf16;
  return launch_quads(
      stream, 1, count,
      ConvertBody{StoredQuads(from, from_type, 0), to, to_bf16, aligned(to, 0, to_bf16 ? 2 : 4), count});
}

cudaError_t copy_rows(cudaStream_t stream, RowsIn x, RowsOut y) {
  if (y.rows < x.rows || y.cols < x.cols) return cudaErrorInvalidValue;
  return copy(stream, x, nullptr, y);
}

cudaError_t narrow_rows(cudaStream_t stream, RowsIn x, std::uint16_t* y, std::int64_t y_rows,
                        std::int64_t y_cols, std::int64_t y_stride) {
  if (y_rows < x.rows || y_cols < x.cols) return cudaErrorInvalidValue;
  return copy_narrow(stream, x, nullptr, y, y_rows, y_cols, y_stride);
}

cudaError_t gather_rows(cudaStream_t stream, RowsIn x, const std::int32_t* members, RowsOut y) {
  if (y.cols < x.cols) return cudaErrorInvalidValue;
  return copy(stream, x, members, y);
}

cudaError_t gather_narrow_rows(cudaStream_t stream, RowsIn x, const std::int32_t* members, std::uint16_t* y,
                               std::int64_t y_rows, std::int64_t y_cols, std::int64_t y_stride) {
  if (y_cols < x.cols) return cudaErrorInvalidValue;
  return copy_narrow(stream, x, members, y, y_rows, y_cols, y_stride);
}

cudaError_t embed(cudaStream_t stream, const void* table, Element type, const std::int32_t* ids, float scale,
                  RowsOut out) {
  return launch_quads(
      stream, out.rows, out.cols,
      EmbedBody{StoredQuads(table, type, out.cols), ids, scale, OutQuads(out), out.rows, out.cols});
}

cudaError_t add_positions(cudaStream_t stream, const float* table, const std::int32_t* positions,
                          RowsOut out) {
  const RowsIn rows{table, out.rows, out.cols, out.cols};
  return launch_quads(stream, out.rows, out.cols,
                      AddBody{InQuads(rows), positions, 1.0F, OutQuads(out), out.rows, out.cols});
}

cudaError_t finish(cudaStream_t stream, const Finish& args) {
  if (!same_shape(args.x, args.y)) return cudaErrorInvalidValue;
  return launch_quads(stream, args.y.rows, args.y.cols,
                      FinishBody{InQuads(args.x), OutQuads(args.y), args.bias, aligned(args.bias, 0, 4),
                                 args.activation, args.scale, args.accumulate, args.y.rows, args.y.cols});
}

cudaError_t gate(cudaStream_t stream, RowsIn x, RowsOut y, Activation activation) {
  if (x.rows != y.rows || x.cols != 2 * y.cols) return cudaErrorInvalidValue;
  const RowsIn up{x.data + y.cols, x.rows, y.cols, x.stride};
  return launch_quads(stream, y.rows, y.cols,
                      GateBody{InQuads(x), InQuads(up), OutQuads(y), activation, y.rows, y.cols});
}

cudaError_t activate(cudaStream_t stream, RowsIn x, RowsOut y, Activation activation) {
  return finish(stream, {x, y, nullptr, activation, 1.0F, false});
}

cudaError_t add_scaled(cudaStream_t stream, RowsIn x, RowsOut y, float scale) {
  if (!same_shape(x, y)) return cudaErrorInvalidValue;
  return launch_quads(stream, y.rows, y.cols,
                      AddBody{InQuads(x), nullptr, scale, OutQuads(y), y.rows, y.cols});
}

cudaError_t add_gated(cudaStream_t stream, RowsIn x, const float* gate, RowsOut y) {
  if (!same_shape(x, y)) return cudaErrorInvalidValue;
  return launch_quads(stream, y.rows, y.cols,
                      AddGatedBody{InQuads(x), gate, aligned(gate, 0, 4), OutQuads(y), y.rows, y.cols});
}

cudaError_t extrapolate(cudaStream_t stream, const Extrapolate& args) {
  // Pages consist of chunks of 16 bytes.
  if (args.page_bytes % 16 != 0) return cudaErrorInvalidValue;
  const std::int64_t elements = args.page_bytes / (args.bf16 ? 2 : 4);
  return launch_quads(stream, args.pages, elements, ExtrapolateBody{args, elements});
}

cudaError_t scale_rows(cudaStream_t stream, RowsOut y, float factor) {
  return finish(stream, {y, y, nullptr, Activation::none, factor, false});
}

cudaError_t softcap(cudaStream_t stream, RowsOut y, float cap) {
  return launch_quads(stream, y.rows, y.cols, SoftcapBody{OutQuads(y), cap, y.rows, y.cols});
}

cudaError_t unfold(cudaStream_t stream, const Unfold& args) {
  if (args.width < 1 || args.stride < 1 || args.out.cols != args.x.cols * args.width)
    return cudaErrorInvalidValue;
  return launch_items(stream, args.out.rows, args.out.cols, UnfoldBody{args});
}

cudaError_t rope(cudaStream_t stream, const Rope& args) {
  if (args.x.cols != args.heads * args.head_dim || 2 * args.pairs > args.head_dim)
    return cudaErrorInvalidValue;
  return launch_items(stream, args.x.rows, args.heads * args.pairs, RopeBody{args});
}

}  // namespace diffuse::kernels::cuda

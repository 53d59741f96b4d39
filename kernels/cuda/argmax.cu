// The largest logit of each row, in two steps: blocks over slices of a row, then one block a row over its
// slices. "Larger, or equal and lower" is a total order, so no cut changes the answer.

#include "kernels/cuda/quads.hpp"

namespace diffuse::kernels::cuda {
namespace {

constexpr int kArgmaxTeam = 256;
// Elements of a slice: a vocabulary of 150,000 makes 37 blocks a row.
constexpr std::int64_t kSlice = 4096;

struct Best {
  float value;
  std::int32_t index;
};
constexpr std::int32_t kNothing = 0x7fffffff;
constexpr std::int32_t kNan = -1;

constexpr std::int64_t slices_of(std::int64_t cols) {
  return cols > 0 ? (cols + kSlice - 1) / kSlice : 1;
}

__device__ inline Best nothing() {
  return {-kInfinity, kNothing};
}

__device__ inline Best better(const Best& a, const Best& b) {
  if (a.index == kNan || b.index == kNan) return {0, kNan};
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

// lanes[0] becomes the best of all kArgmaxTeam lanes.
template <class Team>
__device__ void join(Team& team, Best* lanes) {
  for (int half = kArgmaxTeam / 2; half > 0; half /= 2) {
    team.sync();
    for (int i = team.rank(); i < half; i += team.size()) lanes[i] = better(lanes[i], lanes[i + half]);
  }
}

struct SliceBody {
  static constexpr int kTeam = kArgmaxTeam;
  InQuads logits;
  std::int64_t cols;
  std::int64_t slices;
  Best* out;  // [rows, slices]

  __device__ Best of_quad(std::int64_t row, std::int64_t col, Best best) const {
    const std::int64_t left = cols - col;
    const int count = static_cast<int>(left < 4 ? left : 4);
    const Quad quad = logits.load(row, col, count);
    DIFFUSE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float value = quad.v[i];
      if (i < count) best = better(best, {value, value != value ? kNan : static_cast<std::int32_t>(col + i)});
    }
    return best;
  }

  template <class Team>
  __device__ void operator()(Team& team) const {
    auto* lanes = reinterpret_cast<Best*>(team.scratch());
    const std::int64_t row = team.block_x() / slices;
    const std::int64_t first = team.block_x() % slices * kSlice;
    const std::int64_t end = first + kSlice < cols ? first + kSlice : cols;
    for (int lane = team.rank(); lane < kArgmaxTeam; lane += team.size()) {
      Best best = nothing();
      for (std::int64_t col = first + std::int64_t{4} * lane; col < end; col += std::int64_t{4} * kArgmaxTeam)
        best = of_quad(row, col, best);
      lanes[lane] = best;
    }
    join(team, lanes);
    if (team.rank() == 0) out[team.block_x()] = lanes[0];
  }
};

struct PickBody {
  static constexpr int kTeam = kArgmaxTeam;
  const Best* slices;  // [rows, count]
  std::int64_t count;
  std::int32_t* ids;

  template <class Team>
  __device__ void operator()(Team& team) const {
    auto* lanes = reinterpret_cast<Best*>(team.scratch());
    const std::int64_t row = team.block_x();
    for (int lane = team.rank(); lane < kArgmaxTeam; lane += team.size()) {
      Best best = nothing();
      for (std::int64_t i = lane; i < count; i += kArgmaxTeam) best = better(best, slices[row * count + i]);
      lanes[lane] = best;
    }
    join(team, lanes);
    if (team.rank() != 0) return;
    const bool finite = lanes[0].value - lanes[0].value == 0;
    ids[row] = finite && lanes[0].index != kNothing ? lanes[0].index : -1;
  }
};

constexpr std::int64_t kScratchBytes = kArgmaxTeam * sizeof(Best);

}  // namespace

std::size_t argmax_workspace_bytes(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(rows * slices_of(cols)) * sizeof(Best);
}

cudaError_t argmax(cudaStream_t stream, RowsIn logits, std::byte* workspace, std::int32_t* ids) {
  if (logits.rows == 0) return cudaSuccess;
  const std::int64_t slices = slices_of(logits.cols);
  if (logits.cols >= kNothing || logits.rows * slices > 0x7fffffff) return cudaErrorInvalidValue;
  auto* best = reinterpret_cast<Best*>(workspace);
  const cudaError_t error = launch(stream, {logits.rows * slices, 1, 1}, kScratchBytes,
                                   SliceBody{InQuads(logits), logits.cols, slices, best});
  if (error != cudaSuccess) return error;
  return launch(stream, {logits.rows, 1, 1}, kScratchBytes, PickBody{best, slices, ids});
}

}  // namespace diffuse::kernels::cuda

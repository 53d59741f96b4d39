// RMS and layer norms. A sum over n elements: lane l takes the quads l, l + lanes, ... in ascending order,
// one chain a place in the quad; then the lanes' tree (kernels/cuda/team.hpp). The number of lanes follows
// from n.

#include "kernels/cuda/quads.hpp"

namespace diffuse::kernels::cuda {
namespace {

// Long rows get a block each; short ones (query and key norms of a head) a warp each.
constexpr int kNormTeam = 256;
constexpr int kShortLanes = 32;
constexpr std::int64_t kShort = 1024;

template <int kLanes>
struct NormBody {
  static constexpr int kTeam = kNormTeam;
  static constexpr int kUnits = kNormTeam / kLanes;  // runs of elements that a block norms
  static constexpr std::int64_t kScratchBytes = std::int64_t{4} * (kUnits * kLanes + 2 * kUnits);
  InQuads x;
  OutQuads y;
  const float* weight;
  const float* bias;
  bool weight_wide;
  bool bias_wide;
  bool layer;
  float weight_offset;
  float eps;
  std::uint32_t groups;
  std::int64_t size;
  std::uint32_t runs;  // rows * groups

  __device__ static int in_quad(std::int64_t left) { return static_cast<int>(left < 4 ? left : 4); }

  // term(element) summed over the elements of the team's run `unit` that are lane's.
  template <class Term>
  __device__ float lane_sum(std::uint32_t run, int lane, const Term& term) const {
    if (run >= runs) return 0;
    const std::int64_t row = run / groups;
    const std::int64_t first = (run % groups) * size;
    float chains[4] = {};
    for (std::int64_t col = std::int64_t{4} * lane; col < size; col += std::int64_t{4} * kLanes) {
      const int count = in_quad(size - col);
      const Quad quad = x.load(row, first + col, count);
      DIFFUSE_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (i < count) chains[i] = term(quad.v[i], chains[i]);
      }
    }
    return (chains[0] + chains[1]) + (chains[2] + chains[3]);
  }

  __device__ void write_quad(std::uint32_t run, std::int64_t col, float mean, float factor) const {
    const std::int64_t row = run / groups;
    const std::int64_t at = (run % groups) * size + col;
    const int count = in_quad(size - col);
    Quad quad = x.load(row, at, count);
    DIFFUSE_UNROLL
    for (int i = 0; i < 4; ++i) quad.v[i] = (quad.v[i] - mean) * factor;
    if (weight != nullptr) {
      const Quad by = load_quad(weight + col, count, weight_wide);
      DIFFUSE_UNROLL
      for (int i = 0; i < 4; ++i) quad.v[i] = quad.v[i] * (by.v[i] + weight_offset);
    }
    if (bias != nullptr) {
      const Quad added = load_quad(bias + col, count, bias_wide);
      DIFFUSE_UNROLL
      for (int i = 0; i < 4; ++i) quad.v[i] = quad.v[i] + added.v[i];
    }
    y.store(row, at, quad, count);
  }

  template <class Team>
  __device__ void operator()(Team& team) const {
    auto* lanes = reinterpret_cast<float*>(team.scratch());
    float* sums = lanes + kUnits * kLanes;
    float* squares = sums + kUnits;
    const auto first = static_cast<std::uint32_t>(team.block_x()) * kUnits;
    const auto count = static_cast<float>(size);
    if (layer) {
      team.template sum<kLanes>(kUnits, lanes, sums, [&](int unit, int lane) {
        return lane_sum(first + static_cast<std::uint32_t>(unit), lane,
                        [](float value, float sum) { return sum + value; });
      });
    }
    team.template sum<kLanes>(kUnits, lanes, squares, [&](int unit, int lane) {
      const float mean = layer ? sums[unit] / count : 0.0F;
      return lane_sum(first + static_cast<std::uint32_t>(unit), lane, [mean](float value, float sum) {
        const float centred = value - mean;
        return ::fmaf(centred, centred, sum);
      });
    });
    const auto quads = static_cast<int>(quads_of(size));
    for (int item = team.rank(); item < kUnits * quads; item += team.size()) {
      const int unit = item / quads;
      const std::uint32_t run = first + static_cast<std::uint32_t>(unit);
      if (run >= runs) return;
      const float mean = layer ? sums[unit] / count : 0.0F;
      const float factor = 1.0F / ::sqrtf(squares[unit] / count + eps);
      write_quad(run, std::int64_t{4} * (item % quads), mean, factor);
    }
  }
};

template <int kLanes>
cudaError_t launch_norm(cudaStream_t stream, const Norm& args) {
  using Body = NormBody<kLanes>;
  const std::int64_t size = args.x.cols / args.groups;
  // A run that does not begin on a whole quad of its row is read element by element.
  const bool whole = args.groups == 1 || size % 4 == 0;
  InQuads x(args.x);
  OutQuads y(args.y);
  x.wide = x.wide && whole;
  y.wide = y.wide && whole;
  const std::int64_t runs = args.x.rows * args.groups;
  return launch(stream, {(runs + Body::kUnits - 1) / Body::kUnits, 1, 1}, Body::kScratchBytes,
                Body{x, y, args.weight, args.bias, aligned(args.weight, 0, 4), aligned(args.bias, 0, 4),
                     args.layer, args.weight_offset, args.eps, static_cast<std::uint32_t>(args.groups), size,
                     static_cast<std::uint32_t>(runs)});
}

}  // namespace

cudaError_t norm(cudaStream_t stream, const Norm& args) {
  if (args.x.rows != args.y.rows || args.x.cols != args.y.cols || args.groups < 1 ||
      args.x.cols % args.groups != 0 || args.x.cols > (std::int64_t{1} << 28) ||
      args.x.rows * args.groups > 0x7fffffff)
    return cudaErrorInvalidValue;
  if (args.x.rows == 0 || args.x.cols == 0) return cudaSuccess;
  if (args.x.cols / args.groups <= kShort) return launch_norm<kShortLanes>(stream, args);
  return launch_norm<kNormTeam>(stream, args);
}

}  // namespace diffuse::kernels::cuda

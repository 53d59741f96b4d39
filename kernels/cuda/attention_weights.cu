// The weights of one attention head over all keys, a block a row. A lane takes the keys lane, lane + lanes,
// ... in ascending order, so a row's bits do not depend on the team.

#include "kernels/cuda/attention_body.hpp"

namespace diffuse::kernels::cuda {
namespace {

constexpr int kWeightLanes = 256;

template <class Page>
struct WeightsBody {
  static constexpr int kTeam = kWeightLanes;
  AttentionWeights args;

  __device__ static std::int64_t padded(std::int64_t head_dim) {
    return (head_dim + Page::kChunk - 1) / Page::kChunk * Page::kChunk;
  }

  template <class Team>
  __device__ void operator()(Team& team) const {
    const std::int64_t row = team.block_x();
    const auto chunks = static_cast<int>(args.shape.key_chunks());
    const auto width = static_cast<int>(padded(args.shape.head_dim));
    auto* q = reinterpret_cast<float*>(team.scratch());
    float* lanes = q + width;
    float* totals = lanes + kWeightLanes;  // the largest score, then the sum
    const float* from = args.q.data + row * args.q.stride + args.head * args.shape.head_dim;
    for (int i = team.rank(); i < width; i += team.size())
      q[i] = i < args.shape.head_dim ? Page::rounded(from[i]) : 0.0F;
    team.sync();
    float* out = args.out.data + row * args.out.stride;
    const auto keys = static_cast<int>(args.out.cols);
    const std::int64_t kv_head = args.head / (args.heads / args.shape.kv_heads);
    for (int key = team.rank(); key < keys; key += team.size()) {
      const std::byte* page = args.pool + args.pages[key / kPageKeys] * args.shape.page_bytes() +
                              kv_head * args.shape.head_bytes();
      float product[1][1];
      multiply_keys<Page, 1, 1>(q, width, page, key % kPageKeys, 0, chunks, product);
      out[key] = product[0][0] * args.scale;
    }
    team.sync();
    team.template largest<kWeightLanes>(1, lanes, totals, [&](int, int lane) {
      float largest = -__builtin_inff();
      for (int key = lane; key < keys; key += kWeightLanes) largest = out[key] > largest ? out[key] : largest;
      return largest;
    });
    team.template sum<kWeightLanes>(1, lanes, totals + 1, [&](int, int lane) {
      float sum = 0;
      for (int key = lane; key < keys; key += kWeightLanes) {
        out[key] = exponential(out[key] - totals[0]);
        sum = sum + out[key];
      }
      return sum;
    });
    for (int key = team.rank(); key < keys; key += team.size()) out[key] = out[key] / totals[1];
  }
};

template <class Page>
cudaError_t launch_weights(cudaStream_t stream, const AttentionWeights& args) {
  const auto floats = args.shape.key_chunks() * Page::kChunk + kWeightLanes + 2;
  return launch(stream, {args.q.rows, 1, 1}, floats * 4, WeightsBody<Page>{args});
}

}  // namespace

cudaError_t attention_weights(cudaStream_t stream, const AttentionWeights& args) {
  if (args.shape.kv_heads < 1 || args.heads % args.shape.kv_heads != 0 || args.head < 0 ||
      args.head >= args.heads || args.q.cols != args.heads * args.shape.head_dim ||
      args.q.rows != args.out.rows || args.out.cols < 1 || args.out.cols > (std::int64_t{1} << 30))
    return cudaErrorInvalidValue;
  if (args.q.rows == 0) return cudaSuccess;
  return args.shape.bf16 ? launch_weights<PageOfBf16>(stream, args) : launch_weights<PageOfF32>(stream, args);
}

}  // namespace diffuse::kernels::cuda

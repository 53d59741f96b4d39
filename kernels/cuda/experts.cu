// Routing of a mixture of experts: which rows go to which expert, and the sum of what they give back.

#include "kernels/cuda/quads.hpp"

namespace diffuse::kernels::cuda {
namespace {

constexpr int kRouteTeam = 128;
constexpr int kRouteLanes = 32;

// One row a block. An expert's place among a row's experts is the number of better ones, so that all threads
// rank at once instead of choosing one expert after the other.
struct RouteBody {
  static constexpr int kTeam = kRouteTeam;
  Route args;

  static std::int64_t scratch_bytes(std::int64_t experts, std::int64_t top_k) {
    return (experts + kRouteLanes + 2 + 2 * top_k) * 4;
  }

  __device__ bool better(const float* scores, int a, int b) const {
    const float x = scores[a];
    const float y = scores[b];
    const bool x_nan = x != x;
    const bool y_nan = y != y;
    if (x_nan != y_nan) return y_nan;
    if (x > y) return true;
    if (x < y) return false;
    return a < b;
  }

  template <class Team>
  __device__ void softmax(Team& team, const float* logits, float* scores, int experts, float* lanes,
                          float* totals) const {
    team.template largest<kRouteLanes>(1, lanes, totals, [&](int, int lane) {
      float most = -kInfinity;
      for (int e = lane; e < experts; e += kRouteLanes) most = logits[e] > most ? logits[e] : most;
      return most;
    });
    team.template sum<kRouteLanes>(1, lanes, totals + 1, [&](int, int lane) {
      float sum = 0;
      for (int e = lane; e < experts; e += kRouteLanes) {
        const float weight = exponential(logits[e] - totals[0]);
        scores[e] = weight;
        sum = sum + weight;
      }
      return sum;
    });
    for (int e = team.rank(); e < experts; e += team.size()) scores[e] = scores[e] / totals[1];
  }

  template <class Team>
  __device__ void operator()(Team& team) const {
    const auto experts = static_cast<int>(args.logits.cols);
    const auto top_k = static_cast<int>(args.top_k);
    auto* scores = reinterpret_cast<float*>(team.scratch());
    float* lanes = scores + experts;
    float* totals = lanes + kRouteLanes;
    float* weights = totals + 2;                                      // [top_k] best first
    auto* chosen = reinterpret_cast<std::int32_t*>(weights + top_k);  // [top_k]
    const std::int64_t row = team.block_x();
    const float* logits = args.logits.data + row * args.logits.stride;

    if (args.sigmoid) {
      for (int e = team.rank(); e < experts; e += team.size()) scores[e] = sigmoid(logits[e]);
    } else {
      softmax(team, logits, scores, experts, lanes, totals);
    }
    team.sync();
    for (int e = team.rank(); e < experts; e += team.size()) {
      int before = 0;
      for (int other = 0; other < experts; ++other) before += better(scores, other, e) ? 1 : 0;
      if (before >= top_k) continue;
      chosen[before] = e;
      weights[before] = scores[e];
    }
    team.sync();
    for (int k = team.rank(); k < top_k; k += team.size()) {
      int place = 0;
      float total = 0;
      for (int other = 0; other < top_k; ++other) {
        place += chosen[other] < chosen[k] ? 1 : 0;
        total = total + weights[other];
      }
      float weight = weights[k];
      if (args.renormalize) weight = weight / total;
      args.chosen[row * top_k + place] = chosen[k];
      args.weights[row * top_k + place] = weight * args.scale;
    }
  }
};

constexpr int kGroupTeam = 256;

struct CountBody {
  static constexpr int kTeam = kGroupTeam;
  Group args;

  template <class Team>
  __device__ void operator()(Team& team) const {
    auto* counts = reinterpret_cast<std::int32_t*>(team.scratch());
    const auto expert = static_cast<std::int32_t>(team.block_x());
    const std::int64_t pairs = args.rows * args.top_k;
    for (int lane = team.rank(); lane < kGroupTeam; lane += team.size()) {
      std::int32_t count = 0;
      for (std::int64_t i = lane; i < pairs; i += kGroupTeam) count += args.chosen[i] == expert ? 1 : 0;
      counts[lane] = count;
    }
    for (int half = kGroupTeam / 2; half > 0; half /= 2) {
      team.sync();
      for (int i = team.rank(); i < half; i += team.size()) counts[i] += counts[i + half];
    }
    if (team.rank() == 0) args.counts[expert] = counts[0];
  }
};

// One expert a block. A lane walks a run of pairs of its own, so its members come behind those of the lanes
// before: ascending rows.
struct PlaceBody {
  static constexpr int kTeam = kGroupTeam;
  Group args;
  std::int64_t places;

  __device__ std::int64_t padded(std::int64_t count) const {
    return (count + args.row_step - 1) / args.row_step * args.row_step;
  }

  template <class Team>
  __device__ void operator()(Team& team) const {
    auto* counts = reinterpret_cast<std::int32_t*>(team.scratch());
    const auto expert = static_cast<std::int32_t>(team.block_x());
    const std::int64_t pairs = args.rows * args.top_k;
    const std::int64_t run = (pairs + kGroupTeam - 1) / kGroupTeam;
    const auto end_of = [&](int lane) { return (lane + 1) * run < pairs ? (lane + 1) * run : pairs; };
    for (int lane = team.rank(); lane < kGroupTeam; lane += team.size()) {
      std::int32_t count = 0;
      for (std::int64_t i = lane * run; i < end_of(lane); ++i) count += args.chosen[i] == expert ? 1 : 0;
      counts[lane] = count;
    }
    std::int64_t offset = 0;
    for (int e = 0; e < expert; ++e) offset += padded(args.counts[e]);
    team.sync();
    for (int lane = team.rank(); lane < kGroupTeam; lane += team.size()) {
      std::int64_t place = offset;
      for (int before = 0; before < lane; ++before) place += counts[before];
      for (std::int64_t i = lane * run; i < end_of(lane); ++i) {
        if (args.chosen[i] != expert) continue;
        args.members[place] = static_cast<std::int32_t>(i / args.top_k);
        args.places[i] = static_cast<std::int32_t>(place);
        ++place;
      }
    }
    const std::int64_t filled = offset + args.counts[expert];
    const std::int64_t end = expert + 1 == args.experts ? places : offset + padded(args.counts[expert]);
    for (std::int64_t i = filled + team.rank(); i < end; i += team.size()) args.members[i] = -1;
    if (team.rank() == 0) args.offsets[expert] = static_cast<std::int32_t>(offset);
  }
};

struct CombineBody {
  static constexpr int kTeam = kBlockItems;
  InQuads results;
  const std::int32_t* places;
  const float* weights;
  std::int64_t top_k;
  OutQuads out;
  std::int64_t rows;
  std::int64_t cols;

  template <class Team>
  __device__ void operator()(Team& team) const {
    each_quad(team, rows, cols, [&](std::int64_t row, std::int64_t col, int count) {
      Quad sum{};
      for (std::int64_t k = 0; k < top_k; ++k) {
        const Quad term = results.load(places[row * top_k + k], col, count);
        const float weight = weights[row * top_k + k];
        DIFFUSE_UNROLL
        for (int i = 0; i < 4; ++i) sum.v[i] = ::fmaf(term.v[i], weight, sum.v[i]);
      }
      out.store(row, col, sum, count);
    });
  }
};

}  // namespace

cudaError_t route(cudaStream_t stream, const Route& args) {
  // Scores of a row stay in what scratch every device has.
  constexpr std::int64_t kMostExperts = 8192;
  if (args.top_k < 1 || args.top_k > args.logits.cols || args.top_k > kMostChosen ||
      args.logits.cols > kMostExperts || args.logits.rows > 0x7fffffff)
    return cudaErrorInvalidValue;
  if (args.logits.rows == 0) return cudaSuccess;
  return launch(stream, {args.logits.rows, 1, 1}, RouteBody::scratch_bytes(args.logits.cols, args.top_k),
                RouteBody{args});
}

cudaError_t group_rows(cudaStream_t stream, const Group& args) {
  if (args.top_k < 1 || args.experts < 1 || args.row_step < 1 || args.top_k > args.experts)
    return cudaErrorInvalidValue;
  if (args.rows == 0) return cudaSuccess;
  const std::int64_t places = group_places(args.rows, args.top_k, args.experts, args.row_step);
  if (places > 0x7fffffff) return cudaErrorInvalidValue;
  constexpr std::int64_t kScratchBytes = kGroupTeam * sizeof(std::int32_t);
  const cudaError_t error = launch(stream, {args.experts, 1, 1}, kScratchBytes, CountBody{args});
  if (error != cudaSuccess) return error;
  return launch(stream, {args.experts, 1, 1}, kScratchBytes, PlaceBody{args, places});
}

cudaError_t combine(cudaStream_t stream, const Combine& args) {
  if (args.results.cols != args.out.cols) return cudaErrorInvalidValue;
  return launch_quads(stream, args.out.rows, args.out.cols,
                      CombineBody{InQuads(args.results), args.places, args.weights, args.top_k,
                                  OutQuads(args.out), args.out.rows, args.out.cols});
}

}  // namespace diffuse::kernels::cuda

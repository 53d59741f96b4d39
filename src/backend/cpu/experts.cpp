#include <algorithm>

#include "backend/cpu/cpu_backend.hpp"
#include "core/error.hpp"

namespace diffuse::cpu {

// chosen and weights: [rows, top_k], best first; at equal scores the lower expert is the better.
void CpuBackend::route(const ExpertsArgs& args, std::int32_t* chosen, float* weights) {
  const auto experts = static_cast<std::int64_t>(args.experts.size());
  const std::int64_t rows = args.x.rows;
  float* logits = router_.get<float>(static_cast<std::size_t>(rows * experts));
  product(args.x, matrix_of(*args.router), {logits, rows, experts, experts}, {}, false);
  each_row(rows, experts * args.top_k, [&](std::int64_t row) {
    float* scores = logits + row * experts;
    (args.score == RouterScore::softmax ? kernels_.softmax : kernels_.sigmoid)(scores, experts);
    float total = 0;
    for (std::int64_t k = 0; k < args.top_k; ++k) {
      std::int64_t best = -1;
      for (std::int64_t expert = 0; expert < experts; ++expert) {
        const bool taken = std::find(chosen + row * args.top_k, chosen + row * args.top_k + k,
                                     static_cast<std::int32_t>(expert)) != chosen + row * args.top_k + k;
        // A NaN is never greater, so where there are only NaNs the lowest experts are taken, and the row is
        // NaN.
        if (!taken && (best < 0 || scores[expert] > scores[best])) best = expert;
      }
      chosen[row * args.top_k + k] = static_cast<std::int32_t>(best);
      weights[row * args.top_k + k] = scores[best];
      total += scores[best];
    }
    for (std::int64_t k = 0; k < args.top_k; ++k) {
      float& weight = weights[row * args.top_k + k];
      if (args.renormalize) weight /= total;
      weight *= args.scale;
    }
  });
}

void CpuBackend::experts(const ExpertsArgs& args) {
  const auto experts = static_cast<std::int64_t>(args.experts.size());
  const std::int64_t rows = args.x.rows;
  const std::int64_t hidden = args.x.cols;
  if (args.router == nullptr || args.top_k < 1 || args.top_k > experts || args.router->rows() != experts ||
      args.out.rows != rows || args.out.cols != hidden || args.out.data == args.x.data)
    throw_internal(
        "CPU backend: experts over rows of another shape or onto their own input, or more chosen than there "
        "are");
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(rows * args.top_k));
  std::vector<float> weights(chosen.size());
  route(args, chosen.data(), weights.data());

  for (std::int64_t row = 0; row < rows; ++row)
    std::fill_n(args.out.data + row * args.out.stride, hidden, 0.0F);
  std::vector<std::int64_t> members;
  std::vector<float> shares;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    members.clear();
    shares.clear();
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i] != expert) continue;
      members.push_back(static_cast<std::int64_t>(i) / args.top_k);
      shares.push_back(weights[i]);
    }
    if (members.empty()) continue;
    const auto count = static_cast<std::int64_t>(members.size());
    const ExpertWeights& expert_weights = args.experts[static_cast<std::size_t>(expert)];
    const std::int64_t inner = expert_weights.down->cols();
    const auto rows_in = [&](Scratch& scratch, std::int64_t cols) {
      return Rows{scratch.get<float>(static_cast<std::size_t>(count * cols)), count, cols, cols};
    };

    const Rows in = rows_in(routed_[0], hidden);
    for (std::int64_t i = 0; i < count; ++i)
      std::copy_n(args.x.data + members[static_cast<std::size_t>(i)] * args.x.stride, hidden,
                  in.data + i * hidden);
    const Rows middle = rows_in(routed_[1], inner);
    if (args.gated) {
      const Rows both = rows_in(gated_, 2 * inner);
      matmul(in, *expert_weights.gate_up, both, {.bias = expert_weights.gate_up_bias});
      gate(both, middle, args.activation);
    } else {
      matmul(in, *expert_weights.gate_up, middle,
             {.bias = expert_weights.gate_up_bias, .activation = args.activation});
    }
    const Rows result = rows_in(routed_[2], hidden);
    matmul(middle, *expert_weights.down, result, {.bias = expert_weights.down_bias});
    for (std::int64_t i = 0; i < count; ++i)
      kernels_.add_scaled(result.data + i * hidden,
                          args.out.data + members[static_cast<std::size_t>(i)] * args.out.stride,
                          shares[static_cast<std::size_t>(i)], hidden);
  }
}

}  // namespace diffuse::cpu

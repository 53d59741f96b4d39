#include <algorithm>

#include "backend/cuda/cuda_backend.hpp"

namespace diffuse::cuda {

CudaBackend::Routes CudaBackend::route(const ExpertsArgs& args) {
  const auto experts = static_cast<std::int64_t>(args.experts.size());
  const std::int64_t rows = args.x.rows;
  const std::int64_t chosen = rows * args.top_k;
  const std::int64_t places = kernels::cuda::group_places(rows, args.top_k, experts, kRowTile);
  float* logits = router_.get<float>(*device_, rows * experts);
  product(args.x, matrix_of(*args.router), {logits, rows, experts, experts}, {});

  // One piece of memory, so that counts and offsets come to the host in one copy.
  auto* memory = routing_.get<std::int32_t>(*device_, 2 * experts + 3 * chosen + places);
  auto* counts = memory;
  auto* offsets = counts + experts;
  auto* chosen_at = offsets + experts;
  auto* places_at = chosen_at + chosen;
  auto* weights = reinterpret_cast<float*>(places_at + chosen);
  auto* members = places_at + 2 * chosen;
  device_->launched(kernels::cuda::route(stream(), {.logits = {logits, rows, experts, experts},
                                                    .top_k = args.top_k,
                                                    .sigmoid = args.score == RouterScore::sigmoid,
                                                    .renormalize = args.renormalize,
                                                    .scale = args.scale,
                                                    .chosen = chosen_at,
                                                    .weights = weights}),
                    "choosing experts");
  device_->launched(kernels::cuda::group_rows(stream(), {.chosen = chosen_at,
                                                         .rows = rows,
                                                         .top_k = args.top_k,
                                                         .experts = experts,
                                                         .row_step = kRowTile,
                                                         .counts = counts,
                                                         .offsets = offsets,
                                                         .members = members,
                                                         .places = places_at}),
                    "grouping rows by expert");
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(2 * experts));
  staging_.download(std::as_writable_bytes(std::span(numbers)), reinterpret_cast<const std::byte*>(counts));

  Routes routes;
  routes.members = members;
  routes.places = places_at;
  routes.weights = weights;
  const auto middle = numbers.begin() + experts;
  routes.counts.assign(numbers.begin(), middle);
  routes.offsets.assign(middle, numbers.end());
  for (std::size_t expert = 0; expert < routes.counts.size(); ++expert) {
    if (routes.counts[expert] == 0) continue;
    routes.used =
        std::max<std::int64_t>(routes.used, routes.offsets[expert] + padded_rows_of(routes.counts[expert]));
  }
  require(routes.used <= places, "experts were given more rows than there are");
  return routes;
}

void CudaBackend::expert_products(const ExpertsArgs& args, const Routes& routes,
                                  std::shared_ptr<const PackedMatrix> ExpertWeights::*matrix,
                                  const float* ExpertWeights::*bias, const StagedRows& x, float* y,
                                  std::int64_t y_stride) {
  for (std::size_t i = 0; i < args.experts.size(); ++i) {
    if (routes.counts[i] == 0) continue;
    const auto& expert = args.experts[i];
    const Matrix& weight = matrix_of(*(expert.*matrix));
    const std::int64_t rows = padded_rows_of(routes.counts[i]);
    float* result = y + routes.offsets[i] * y_stride;
    const auto* own = x.data + routes.offsets[i] * x.stride * weight.element();
    products_.run(weight, {own, rows, x.stride}, result, y_stride, {});
    if (expert.*bias == nullptr) continue;
    const Rows outputs{result, rows, weight.rows(), y_stride};
    device_->launched(
        kernels::cuda::finish(stream(), {.x = in(outputs), .y = out(outputs), .bias = expert.*bias}),
        "adding an expert's bias");
  }
}

void CudaBackend::experts(const ExpertsArgs& args) {
  const auto count = static_cast<std::int64_t>(args.experts.size());
  const std::int64_t rows = args.x.rows;
  require(args.router != nullptr && args.top_k >= 1 && args.top_k <= count && args.router->rows() == count &&
              args.top_k <= kernels::cuda::kMostChosen && args.out.rows == rows &&
              args.out.cols == args.x.cols && args.out.data != args.x.data,
          "experts over rows of another shape or onto their own input, or more chosen than there are");
  if (rows == 0) return;
  const Matrix& first = matrix_of(*args.experts.front().gate_up);
  const Matrix& last = matrix_of(*args.experts.front().down);
  for (const auto& expert : args.experts) {
    const Matrix& up = matrix_of(*expert.gate_up);
    const Matrix& down = matrix_of(*expert.down);
    require(up.rows() == first.rows() && up.bf16() == first.bf16() && down.cols() == last.cols() &&
                down.bf16() == last.bf16() && up.cols() == args.x.cols && down.rows() == args.x.cols,
            "experts of different shapes");
  }
  device_->use();
  const Routes routes = route(args);
  const std::int64_t used = routes.used;
  // Memory is for the most places that so many rows can need, so that it does not depend on their choice.
  const std::int64_t places = kernels::cuda::group_places(rows, args.top_k, count, kRowTile);
  const std::int64_t inner = last.cols();
  const auto gather = [&]() -> StagedRows {
    const std::int64_t cols = first.padded_cols();
    auto* memory = expert_inputs_.get<std::byte>(*device_, places * cols * first.element());
    device_->launched(
        first.bf16()
            ? kernels::cuda::gather_narrow_rows(stream(), in(args.x), routes.members,
                                                reinterpret_cast<std::uint16_t*>(memory), used, cols, cols)
            : kernels::cuda::gather_rows(stream(), in(args.x), routes.members,
                                         {reinterpret_cast<float*>(memory), used, cols, cols}),
        "gathering the experts' rows");
    return {memory, used, cols};
  };
  const std::int64_t up_width = first.padded_rows();
  float* both = expert_both_.get<float>(*device_, places * up_width);
  expert_products(args, routes, &ExpertWeights::gate_up, &ExpertWeights::gate_up_bias, gather(), both,
                  up_width);

  // Rows that only pad are worked on too: what they hold reaches no other row.
  const Rows middle{expert_middle_.get<float>(*device_, places * inner), used, inner, inner};
  if (args.gated) {
    gate({both, used, 2 * inner, up_width}, middle, args.activation);
  } else {
    activate({both, used, inner, up_width}, middle, args.activation);
  }
  const std::int64_t width = last.padded_rows();
  float* results = expert_results_.get<float>(*device_, places * width);
  expert_products(args, routes, &ExpertWeights::down, &ExpertWeights::down_bias, stage(middle, last), results,
                  width);
  device_->launched(kernels::cuda::combine(stream(), {.results = {results, used, args.x.cols, width},
                                                      .places = routes.places,
                                                      .weights = routes.weights,
                                                      .top_k = args.top_k,
                                                      .out = out(args.out)}),
                    "adding up the experts");
}

}  // namespace diffuse::cuda

// Room for the largest steps of a run, before the first: a card waits for all its work where memory is taken
// or freed, and so would hold up rows that are on their way.

#include <algorithm>
#include <bit>

#include "backend/cuda/cuda_backend.hpp"

namespace diffuse::cuda {
namespace {

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kInteger = sizeof(std::int32_t);
// Of attention's partial results: what longer contexts in larger groups need, few runs ever do.
constexpr std::int64_t kMostPartials = std::int64_t{256} << 20;

}  // namespace

void CudaBackend::expect_products(const ExpectedSteps& steps) {
  std::int64_t inputs = 0;
  std::int64_t results = 0;
  std::int64_t embedded = 0;
  std::int64_t widest = 0;
  for (const auto& shape : packed_) {
    const auto rows = padded_rows_of(shape.table() ? steps.samples : steps.rows);
    inputs = std::max(inputs, rows * shape.inputs * shape.element);
    results = std::max(results, rows * shape.outputs * kFloat);
    if (shape.crooked) embedded = std::max(embedded, steps.rows * shape.inputs * kFloat);
    widest = std::max(widest, shape.outputs);
  }
  inputs_.expect(*device_, inputs);
  results_.expect(*device_, results);
  embedded_.expect(*device_, embedded);
  argmax_.expect(*device_,
                 static_cast<std::int64_t>(kernels::cuda::argmax_workspace_bytes(steps.samples, widest)));
  chosen_.expect(*device_, steps.samples * kInteger);
}

void CudaBackend::expect_experts(const ExpertsArgs& args, std::int64_t rows) {
  const auto count = static_cast<std::int64_t>(args.experts.size());
  const auto places = kernels::cuda::group_places(rows, args.top_k, count, kRowTile);
  const Matrix& first = matrix_of(*args.experts.front().gate_up);
  const Matrix& last = matrix_of(*args.experts.front().down);
  router_.expect(*device_, rows * count * kFloat);
  routing_.expect(*device_, (2 * count + 3 * rows * args.top_k + places) * kInteger);
  expert_inputs_.expect(*device_, places * first.padded_cols() * first.element());
  expert_both_.expect(*device_, places * first.padded_rows() * kFloat);
  expert_middle_.expect(*device_, places * last.cols() * kFloat);
  expert_results_.expect(*device_, places * last.padded_rows() * kFloat);
  inputs_.expect(*device_, places * last.padded_cols() * last.element());
}

// A task and a merge hold a row at least. Rows of decoding are cut into as many parts as the longest context
// has, tiles only as far as the planner's own limit lets them.
void CudaBackend::expect_attention(const AttentionArgs& args, const ExpectedSteps& steps) {
  auto& planned = attentions_[key_of(args)];
  planned.segments.clear();  // its tables may move
  planned.tasks.expect(*device_,
                       steps.rows * static_cast<std::int64_t>(sizeof(kernels::cuda::AttentionSpan)));
  planned.merges.expect(*device_,
                        steps.rows * static_cast<std::int64_t>(sizeof(kernels::cuda::AttentionMerge)));
  planned.pages.expect(*device_, steps.pages * kInteger);
  auto parts = (steps.positions + kernels::cuda::kPartKeys - 1) / kernels::cuda::kPartKeys;
  if (parts <= 1) return;
  // As steady plans have them.
  if (graphs_) parts = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(parts)));
  const auto row = args.heads * parts * (kernels::round_up(args.kv->spec.value_dim, 4) + 2);
  const auto tiles = std::min(steps.rows * row, kernels::cuda::AttentionLimits().workspace_floats);
  partials_.expect(*device_, std::min((steps.samples * row + tiles) * kFloat, kMostPartials));
}

void CudaBackend::expect(const ExpectedSteps& steps) {
  device_->use();
  ids_.expect(*device_, steps.rows * kInteger);
  positions_.expect(*device_, steps.rows * kInteger);
  slots_.expect(*device_, steps.rows * static_cast<std::int64_t>(sizeof(kernels::cuda::KvSlot)));
  expect_products(steps);
  for (const auto& args : steps.attentions) expect_attention(args, steps);
  for (const auto& args : steps.experts) expect_experts(args, steps.rows);
}

}  // namespace diffuse::cuda

#include <algorithm>
#include <atomic>

#include "backend/cpu/cpu_backend.hpp"
#include "core/error.hpp"

namespace diffuse::cpu {
namespace {

using kernels::kPanel;

// Rows that one call of a kernel computes: whole blocks of every kernel's rows (6 of FMA, 32 of AMX).
constexpr std::int64_t kRowStep = 96;
// Activations that stay in a core's second cache while panels of weights pass by.
constexpr std::int64_t kInputBytes = 768 << 10;
constexpr std::int64_t kMostRows = 4 * kRowStep;
// More rows walk the weights in pieces of this depth, each of which all rows pass while the next one is
// fetched.
constexpr std::int64_t kDepthPiece = 512;
constexpr std::int64_t kFewRows = 6;
// Multiply-adds that are worth handing to another thread.
constexpr std::int64_t kGrain = 65536;

}  // namespace

void CpuBackend::matmul(ConstRows x, const PackedMatrix& weight, Rows y, const Epilogue& epilogue) {
  product(x, matrix_of(weight), y, epilogue, compute_ == Compute::bf16);
}

void CpuBackend::product(ConstRows x, const Matrix& weight, Rows y, const Epilogue& epilogue, bool round) {
  if (x.cols != weight.cols() || y.cols != weight.rows() || x.rows != y.rows)
    throw_internal("CPU backend: a product of shapes that do not fit");
  const std::int64_t rows = x.rows;
  const std::int64_t depth = weight.cols();
  if (rows == 0 || weight.rows() == 0) return;

  // bf16 activations lie in rows of their own; 64 bytes more a row, so that the rows of a tile do not fall
  // into the same sets of the cache where the depth is a power of two.
  const bool native = round && weight.bf16() && kernels_.native_bf16;
  const std::int64_t padded = kernels::round_up(depth, kernels::kDepthStep);
  const void* input = x.data;
  std::int64_t stride = x.stride;
  if (native) {
    stride = padded + 32;
    auto* narrow = inputs_.get<std::uint16_t>(static_cast<std::size_t>(rows * stride));
    each_row(rows, depth, [&](std::int64_t row) {
      kernels_.narrow_bf16(x.data + row * x.stride, narrow + row * stride, depth, padded);
    });
    input = narrow;
  } else if (round) {
    stride = padded;
    auto* rounded = inputs_.get<float>(static_cast<std::size_t>(rows * stride));
    each_row(rows, depth, [&](std::int64_t row) {
      kernels_.round_bf16(x.data + row * x.stride, rounded + row * stride, depth);
    });
    input = rounded;
  }
  const auto kernel = native          ? kernels_.matmul_native
                      : weight.bf16() ? kernels_.matmul_bf16
                                      : kernels_.matmul_f32;
  const std::int64_t element = native ? 2 : 4;

  const std::int64_t end = native ? padded : depth;
  const std::int64_t panels = weight.panels();
  std::int64_t block =
      std::clamp(kInputBytes / (depth * element + 1) / kRowStep * kRowStep, kRowStep, kMostRows);
  if (panels < 2 * pool_.threads()) block = kRowStep;
  block = std::min(block, rows);
  const std::int64_t blocks = (rows + block - 1) / block;
  const std::int64_t tasks = panels * blocks;
  // A few rows pass through the weights once, as they come.
  const std::int64_t piece = rows <= kFewRows ? end : kDepthPiece;
  const std::int64_t weight_bytes = kPanel * (weight.bf16() ? 2 : 4);
  const kernels::Activation activation = kernel_activation(epilogue.activation);

  // next_task: -1 where there is none.
  const auto compute = [&](std::int64_t task, std::int64_t next_task, float* acc) {
    const std::int64_t panel = task % panels;
    const std::int64_t first = task / panels * block;
    const std::int64_t last = std::min(first + block, rows);
    for (std::int64_t begin = 0; begin < end; begin += piece) {
      const std::int64_t until = std::min(begin + piece, end);
      const std::byte* next = nullptr;
      if (until < end) {
        next = weight.panel(panel) + until * weight_bytes;
      } else if (next_task >= 0) {
        next = weight.panel(next_task % panels);
      }
      const std::int64_t calls = (last - first + kRowStep - 1) / kRowStep;
      const std::int64_t next_bytes = kernels::round_up(std::min(piece, end) * weight_bytes / calls, 64);
      for (std::int64_t row = first; row < last; row += kRowStep) {
        kernel({.x = static_cast<const std::byte*>(input) + row * stride * element,
                .x_stride = stride,
                .rows = std::min(kRowStep, last - row),
                .begin = begin,
                .end = until,
                .w = weight.panel(panel),
                .acc = acc + (row - first) * kPanel,
                .next = next,
                .next_bytes = next_bytes});
        if (next != nullptr) next += next_bytes;
      }
    }
    kernels_.store_panel({.acc = acc,
                          .rows = last - first,
                          .cols = std::min(kPanel, weight.rows() - panel * kPanel),
                          .bias = epilogue.bias == nullptr ? nullptr : epilogue.bias + panel * kPanel,
                          .activation = activation,
                          .scale = epilogue.scale,
                          .accumulate = epilogue.accumulate,
                          .y = y.data + first * y.stride + panel * kPanel,
                          .y_stride = y.stride});
  };
  // Each thread takes its next task before it computes one, so that it knows which weights to fetch.
  std::atomic<std::int64_t> taken{0};
  const auto take = [&] {
    const std::int64_t task = taken.fetch_add(1, std::memory_order_relaxed);
    return task < tasks ? task : -1;
  };
  const auto work = [&](std::size_t, int thread) {
    float* acc =
        thread_[static_cast<std::size_t>(thread)].get<float>(static_cast<std::size_t>(block * kPanel));
    for (std::int64_t task = take(); task >= 0;) {
      const std::int64_t next_task = take();
      compute(task, next_task, acc);
      task = next_task;
    }
  };
  if (rows * depth * weight.rows() < kGrain) {
    work(0, 0);
  } else {
    pool_.parallel_for(static_cast<std::size_t>(pool_.threads()), work);
  }
}

}  // namespace diffuse::cpu

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
// More rows than one pass over the weights serves walk them in pieces, each of which all rows pass while the
// next one is fetched: both lie in the second cache beside the activations.
constexpr std::int64_t kDepthPiece = 512;
constexpr std::int64_t kDepthPieceOfFew = 2048;  // of less than kRowStep rows
// Multiply-adds that are worth handing to another thread.
constexpr std::int64_t kGrain = 65536;

// Equal pieces, so that each lasts as long as the fetching of the next.
std::int64_t piece_of(std::int64_t depth, std::int64_t rows) {
  const std::int64_t most = rows < kRowStep ? kDepthPieceOfFew : kDepthPiece;
  const std::int64_t pieces = (depth + most - 1) / most;
  return kernels::round_up((depth + pieces - 1) / pieces, kernels::kDepthStep);
}

}  // namespace

void CpuBackend::matmul(ConstRows x, const PackedMatrix& weight, Rows y, const Epilogue& epilogue) {
  product(x, matrix_of(weight), y, epilogue, compute_ == Compute::bf16);
}

// bf16 activations lie in rows of their own, with 64 bytes more a row, so that the rows of a tile do not fall
// into the same sets of the cache where the depth is a power of two.
CpuBackend::Inputs CpuBackend::inputs_of(ConstRows x, const Matrix& weight, bool round) {
  const std::int64_t depth = weight.cols();
  const std::int64_t padded = kernels::round_up(depth, kernels::kDepthStep);
  if (!round) {
    return {reinterpret_cast<const std::byte*>(x.data),
            x.stride,
            depth,
            4,
            weight.bf16() ? kernels_.matmul_bf16 : kernels_.matmul_f32,
            kernels_.pass_rows};
  }
  if (weight.bf16() && kernels_.native_bf16) {
    const std::int64_t stride = padded + 32;
    auto* narrow = inputs_.get<std::uint16_t>(static_cast<std::size_t>(x.rows * stride));
    each_row(x.rows, depth, [&](std::int64_t row) {
      kernels_.narrow_bf16(x.data + row * x.stride, narrow + row * stride, depth, padded);
    });
    return {reinterpret_cast<const std::byte*>(narrow),
            stride,
            padded,
            2,
            kernels_.matmul_native,
            kernels_.native_pass_rows};
  }
  auto* rounded = inputs_.get<float>(static_cast<std::size_t>(x.rows * padded));
  each_row(x.rows, depth, [&](std::int64_t row) {
    kernels_.round_bf16(x.data + row * x.stride, rounded + row * padded, depth);
  });
  return {reinterpret_cast<const std::byte*>(rounded),
          padded,
          depth,
          4,
          weight.bf16() ? kernels_.matmul_bf16 : kernels_.matmul_f32,
          kernels_.pass_rows};
}

namespace {

// Rows [first, last) of one panel of outputs.
struct Task {
  std::int64_t panel;
  std::int64_t first;
  std::int64_t last;
};

}  // namespace

void CpuBackend::product(ConstRows x, const Matrix& weight, Rows y, const Epilogue& epilogue, bool round) {
  if (x.cols != weight.cols() || y.cols != weight.rows() || x.rows != y.rows)
    throw_internal("CPU backend: a product of shapes that do not fit");
  const std::int64_t rows = x.rows;
  if (rows == 0 || weight.rows() == 0) return;
  const Inputs inputs = inputs_of(x, weight, round);
  const std::int64_t row_bytes = inputs.stride * inputs.element;
  const std::int64_t weight_bytes = kPanel * (weight.bf16() ? 2 : 4);
  // Rows that pass through the weights once take them as they come.
  const std::int64_t piece = rows <= inputs.pass_rows ? inputs.depth : piece_of(inputs.depth, rows);
  const kernels::Activation activation = kernel_activation(epilogue.activation);

  // `next`: weights that this thread may want after the task, or null.
  const auto compute = [&](const Task& task, const std::byte* next, float* acc) {
    const std::int64_t calls = (task.last - task.first + kRowStep - 1) / kRowStep;
    const std::int64_t next_bytes =
        kernels::round_up(std::min(piece, inputs.depth) * weight_bytes / calls, 64);
    for (std::int64_t begin = 0; begin < inputs.depth; begin += piece) {
      const std::int64_t end = std::min(begin + piece, inputs.depth);
      const std::byte* fetch = end < inputs.depth ? weight.panel(task.panel) + end * weight_bytes : next;
      for (std::int64_t row = task.first; row < task.last; row += kRowStep) {
        inputs.kernel({.x = inputs.data + row * row_bytes,
                       .x_stride = inputs.stride,
                       .rows = std::min(kRowStep, task.last - row),
                       .begin = begin,
                       .end = end,
                       .w = weight.panel(task.panel),
                       .acc = acc + (row - task.first) * kPanel,
                       .next = fetch,
                       .next_bytes = next_bytes});
        if (fetch != nullptr) fetch += next_bytes;
      }
    }
    const std::int64_t output = task.panel * kPanel;
    kernels_.store_panel({.acc = acc,
                          .rows = task.last - task.first,
                          .cols = std::min(kPanel, weight.rows() - output),
                          .bias = epilogue.bias == nullptr ? nullptr : epilogue.bias + output,
                          .activation = activation,
                          .scale = epilogue.scale,
                          .accumulate = epilogue.accumulate,
                          .y = y.data + task.first * y.stride + output,
                          .y_stride = y.stride});
  };

  const std::int64_t panels = weight.panels();
  std::int64_t block = std::clamp(kInputBytes / row_bytes / kRowStep * kRowStep, kRowStep, kMostRows);
  if (panels < std::int64_t{2} * pool_.threads()) block = kRowStep;
  block = std::min(block, rows);
  const std::int64_t tasks = panels * ((rows + block - 1) / block);
  // Threads take tasks in turn, so the weights that a thread will want next can be guessed; a wrong guess
  // costs only a fetch.
  std::atomic<std::int64_t> taken{0};
  const auto work = [&](std::size_t, int thread) {
    float* acc =
        thread_[static_cast<std::size_t>(thread)].get<float>(static_cast<std::size_t>(block * kPanel));
    for (;;) {
      const std::int64_t task = taken.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks) return;
      const std::int64_t guess = task + pool_.threads();
      const std::int64_t first = task / panels * block;
      compute({task % panels, first, std::min(first + block, rows)},
              guess < tasks ? weight.panel(guess % panels) : nullptr, acc);
    }
  };
  if (rows * weight.cols() * weight.rows() < kGrain) {
    work(0, 0);
  } else {
    pool_.parallel_for(static_cast<std::size_t>(pool_.threads()), work);
  }
}

}  // namespace diffuse::cpu

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
// Weights that are expanded stay in the second cache until all rows have passed.
constexpr std::int64_t kExpandedPieceOfFew = 1024;
// Multiply-adds that are worth handing to another thread.
constexpr std::int64_t kGrain = 65536;

// Equal pieces, so that each lasts as long as the fetching of the next.
std::int64_t equal_pieces(std::int64_t depth, std::int64_t most) {
  const std::int64_t pieces = (depth + most - 1) / most;
  return kernels::round_up((depth + pieces - 1) / pieces, kernels::kDepthStep);
}

std::int64_t piece_of(std::int64_t depth, std::int64_t rows, std::int64_t pass_rows, bool expands) {
  if (expands) return equal_pieces(depth, rows < kRowStep ? kExpandedPieceOfFew : kDepthPiece);
  // Rows that pass through the weights once take them as they come.
  if (rows <= pass_rows) return depth;
  return equal_pieces(depth, rows < kRowStep ? kDepthPieceOfFew : kDepthPiece);
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

// Rows [first, last) of one panel of outputs.
struct CpuBackend::PanelTask {
  std::int64_t panel;
  std::int64_t first;
  std::int64_t last;
  std::int64_t next;  // the panel that its thread may want after the task, or -1
};

// How a product walks its weights: in pieces of this many inputs.
struct CpuBackend::PanelWalk {
  std::int64_t piece;
  bool expands;  // each into the cache, where all rows pass it; else the kernel takes what is stored
  bool coded;    // which is coded
  bool fetches;  // what comes next; else the kernel itself asks for what it needs
};

CpuBackend::PanelWalk CpuBackend::walk_of(const Inputs& inputs, const Matrix& weight, std::int64_t rows) {
  // A kernel that takes coded weights saves the way through the cache, as long as few rows share it.
  const bool coded = weight.format() == kernels::PanelFormat::coded &&
                     inputs.kernel == kernels_.matmul_native && rows <= kernels_.coded_rows;
  const bool expands = weight.expands() && !coded;
  return {.piece = piece_of(inputs.depth, rows, inputs.pass_rows, expands),
          .expands = expands,
          .coded = coded,
          .fetches = expands || rows > inputs.pass_rows};
}

// acc [rows of the task, kPanel] = their products with one panel; `expanded` holds one piece of it.
void CpuBackend::multiply_panel(const Inputs& inputs, const Matrix& weight, const PanelWalk& walk,
                                const PanelTask& task, float* acc, std::byte* expanded) {
  const std::int64_t calls = (task.last - task.first + kRowStep - 1) / kRowStep;
  for (std::int64_t begin = 0; begin < inputs.depth; begin += walk.piece) {
    const std::int64_t end = std::min(begin + walk.piece, inputs.depth);
    const std::byte* part = weight.at(task.panel, begin);
    const std::byte* next = nullptr;
    if (walk.fetches && end < inputs.depth) {
      next = weight.at(task.panel, end);
    } else if (walk.fetches && task.next >= 0) {
      next = weight.at(task.next, 0);
    }
    const std::int64_t next_bytes =
        kernels::round_up(kernels::input_bytes(weight.format(), end - begin) / calls, 64);
    if (walk.expands) {
      weight.expand(kernels_, task.panel, begin, end, expanded);
      part = expanded;
    }
    for (std::int64_t row = task.first; row < task.last; row += kRowStep) {
      const kernels::PanelProduct product{.x = inputs.data + (row * inputs.stride + begin) * inputs.element,
                                          .x_stride = inputs.stride,
                                          .rows = std::min(kRowStep, task.last - row),
                                          .depth = end - begin,
                                          .w = part,
                                          .acc = acc + (row - task.first) * kPanel,
                                          .add = begin > 0,
                                          .next = next,
                                          .next_bytes = next_bytes};
      if (walk.coded) {
        kernels_.matmul_coded(product, weight.coded(task.panel), begin);
      } else {
        inputs.kernel(product);
      }
      if (next != nullptr) next += next_bytes;
    }
  }
}

void CpuBackend::product(ConstRows x, const Matrix& weight, Rows y, const Epilogue& epilogue, bool round) {
  if (x.cols != weight.cols() || y.cols != weight.rows() || x.rows != y.rows)
    throw_internal("CPU backend: a product of shapes that do not fit");
  const std::int64_t rows = x.rows;
  if (rows == 0 || weight.rows() == 0) return;
  const Inputs inputs = inputs_of(x, weight, round);
  const PanelWalk walk = walk_of(inputs, weight, rows);
  const kernels::Activation activation = kernel_activation(epilogue.activation);

  const auto store = [&](const PanelTask& task, const float* acc) {
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
  const std::int64_t row_bytes = inputs.stride * inputs.element;
  std::int64_t block = std::clamp(kInputBytes / row_bytes / kRowStep * kRowStep, kRowStep, kMostRows);
  if (panels < std::int64_t{2} * pool_.threads()) block = kRowStep;
  block = std::min(block, rows);
  const std::int64_t tasks = panels * ((rows + block - 1) / block);
  const auto piece_format = weight.bf16() ? kernels::PanelFormat::bf16 : kernels::PanelFormat::f32;
  const std::int64_t piece_bytes = walk.expands ? kernels::panel_bytes(walk.piece, piece_format) : 0;
  // Threads take tasks in turn, so the weights that a thread will want next can be guessed; a wrong guess
  // costs only a fetch.
  std::atomic<std::int64_t> taken{0};
  const auto work = [&](std::size_t, int thread) {
    const auto own = static_cast<std::size_t>(thread);
    float* acc = thread_[own].get<float>(static_cast<std::size_t>(block * kPanel));
    std::byte* expanded = expanded_[own].get<std::byte>(static_cast<std::size_t>(piece_bytes));
    for (;;) {
      const std::int64_t index = taken.fetch_add(1, std::memory_order_relaxed);
      if (index >= tasks) return;
      const std::int64_t guess = index + pool_.threads();
      const std::int64_t first = index / panels * block;
      const PanelTask task{.panel = index % panels,
                           .first = first,
                           .last = std::min(first + block, rows),
                           .next = guess < tasks ? guess % panels : -1};
      multiply_panel(inputs, weight, walk, task, acc, expanded);
      store(task, acc);
    }
  };
  if (rows * weight.cols() * weight.rows() < kGrain) {
    work(0, 0);
  } else {
    pool_.parallel_for(static_cast<std::size_t>(pool_.threads()), work);
  }
}

}  // namespace diffuse::cpu

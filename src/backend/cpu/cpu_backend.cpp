#include "backend/cpu/cpu_backend.hpp"

#include <algorithm>
#include <cstring>

#include "core/error.hpp"

namespace diffuse {
namespace cpu {
namespace {

// Elements that are worth handing to another thread.
constexpr std::int64_t kGrain = 16384;

void require(bool condition, const char* what) {
  if (!condition) throw_internal(std::string("CPU backend: ") + what);
}

void same_shape(ConstRows x, const Rows& y, const char* what) {
  require(x.rows == y.rows && x.cols == y.cols, what);
}

}  // namespace

CpuBackend::CpuBackend(int threads, Compute compute, kernels::SimdTarget target)
    : pool_(threads),
      compute_(compute),
      target_(target),
      kernels_(kernels::kernels_for(target)),
      thread_(static_cast<std::size_t>(pool_.threads())),
      expanded_(static_cast<std::size_t>(pool_.threads())) {}

void CpuBackend::each_row(std::int64_t rows, std::int64_t cost,
                          const std::function<void(std::int64_t row)>& body) {
  const std::int64_t block = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, cost));
  const std::int64_t blocks = (rows + block - 1) / block;
  pool_.parallel_for(static_cast<std::size_t>(blocks), [&](std::size_t index, int) {
    const auto begin = static_cast<std::int64_t>(index) * block;
    for (std::int64_t row = begin; row < std::min(begin + block, rows); ++row) body(row);
  });
}

void CpuBackend::upload(std::byte* to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

void CpuBackend::download(std::span<std::byte> to, const std::byte* from) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

void CpuBackend::copy(ConstRows from, Rows to) {
  same_shape(from, to, "copy between different shapes");
  each_row(to.rows, to.cols, [&](std::int64_t row) {
    std::memmove(to.data + row * to.stride, from.data + row * from.stride,
                 static_cast<std::size_t>(to.cols) * sizeof(float));
  });
}

std::shared_ptr<const PackedMatrix> CpuBackend::pack(std::span<const HostMatrix> parts, WeightUse use) {
  const auto all = [&](DType type) {
    return std::all_of(parts.begin(), parts.end(),
                       [type](const HostMatrix& part) { return part.dtype == type; });
  };
  auto format = kernels::PanelFormat::f32;
  if (compute_ == Compute::bf16 && use == WeightUse::matmul) {
    format = kernels_.matmul_coded != nullptr ? kernels::PanelFormat::coded : kernels::PanelFormat::bf16;
  } else if (all(DType::bf16)) {
    format = kernels::PanelFormat::bf16;
  } else if (all(DType::f16)) {
    format = kernels::PanelFormat::f16;
  }
  return std::make_shared<Matrix>(parts, format, pool_);
}

void CpuBackend::embed(const PackedMatrix& table, std::span<const std::int32_t> ids, float scale, Rows out) {
  const Matrix& matrix = matrix_of(table);
  require(out.cols == matrix.cols() && static_cast<std::int64_t>(ids.size()) == out.rows,
          "embedding into rows of another shape");
  each_row(out.rows, out.cols * 4, [&](std::int64_t row) {
    matrix.unpack_row(ids[static_cast<std::size_t>(row)], scale, out.data + row * out.stride);
  });
}

void CpuBackend::add_positions(const float* table, std::span<const std::int32_t> rows, Rows out) {
  require(static_cast<std::int64_t>(rows.size()) == out.rows, "positions for another number of rows");
  each_row(out.rows, out.cols, [&](std::int64_t row) {
    kernels_.add_scaled(table + rows[static_cast<std::size_t>(row)] * out.cols, out.data + row * out.stride,
                        1.0F, out.cols);
  });
}

void CpuBackend::norm(const NormArgs& args) {
  same_shape(args.x, args.y, "norm between different shapes");
  require(args.groups > 0 && args.x.cols % args.groups == 0, "norm with groups that do not divide a row");
  each_row(args.x.rows, args.x.cols * 2, [&](std::int64_t row) {
    kernels_.norm({.x = args.x.data + row * args.x.stride,
                   .y = args.y.data + row * args.y.stride,
                   .groups = args.groups,
                   .size = args.x.cols / args.groups,
                   .weight = args.weight,
                   .bias = args.bias,
                   .weight_offset = args.weight_offset,
                   .eps = args.eps,
                   .layer = args.kind == NormKind::layer});
  });
}

void CpuBackend::gate(ConstRows x, Rows y, Activation activation) {
  require(x.rows == y.rows && x.cols == 2 * y.cols, "gate between rows of the wrong shapes");
  const auto kind = kernel_activation(activation);
  each_row(y.rows, y.cols * 4, [&](std::int64_t row) {
    const float* from = x.data + row * x.stride;
    kernels_.gate(kind, from, from + y.cols, y.data + row * y.stride, y.cols);
  });
}

void CpuBackend::activate(ConstRows x, Rows y, Activation activation) {
  same_shape(x, y, "activation between different shapes");
  const auto kind = kernel_activation(activation);
  each_row(y.rows, y.cols * 4, [&](std::int64_t row) {
    kernels_.activate(kind, x.data + row * x.stride, y.data + row * y.stride, y.cols);
  });
}

void CpuBackend::add(ConstRows x, Rows y, float scale) {
  same_shape(x, y, "addition of different shapes");
  each_row(y.rows, y.cols, [&](std::int64_t row) {
    kernels_.add_scaled(x.data + row * x.stride, y.data + row * y.stride, scale, y.cols);
  });
}

void CpuBackend::add_gated(ConstRows x, const float* gate, Rows y) {
  same_shape(x, y, "gated addition of different shapes");
  each_row(y.rows, y.cols, [&](std::int64_t row) {
    kernels_.add_gated(x.data + row * x.stride, gate, y.data + row * y.stride, y.cols);
  });
}

void CpuBackend::scale(Rows y, float factor) {
  each_row(y.rows, y.cols,
           [&](std::int64_t row) { kernels_.scale(y.data + row * y.stride, factor, y.cols); });
}

void CpuBackend::softcap(Rows y, float cap) {
  each_row(y.rows, y.cols * 4,
           [&](std::int64_t row) { kernels_.softcap(y.data + row * y.stride, cap, y.cols); });
}

void CpuBackend::rope(const RopeArgs& args) {
  require(args.x.cols == args.heads * args.head_dim && 2 * args.pairs <= args.head_dim,
          "rope over rows of another shape");
  each_row(args.x.rows, args.x.cols, [&](std::int64_t row) {
    kernels_.rope({.x = args.x.data + row * args.x.stride,
                   .heads = args.heads,
                   .head_dim = args.head_dim,
                   .pairs = args.pairs,
                   .interleaved = args.style == RopeStyle::interleaved,
                   .cos = args.cos + row * args.pairs,
                   .sin = args.sin + row * args.pairs});
  });
}

void CpuBackend::unfold(const UnfoldArgs& args) {
  require(args.width > 0 && args.stride > 0 && args.padding >= 0 && args.out.cols == args.x.cols * args.width,
          "unfolding into rows of another shape");
  each_row(args.out.rows, args.out.cols, [&](std::int64_t row) {
    float* to = args.out.data + row * args.out.stride;
    const std::int64_t first = row * args.stride - args.padding;
    for (std::int64_t k = 0; k < args.width; ++k) {
      const std::int64_t frame = first + k;
      const bool inside = frame >= 0 && frame < args.x.rows;
      const float* from = inside ? args.x.data + frame * args.x.stride : nullptr;
      for (std::int64_t channel = 0; channel < args.x.cols; ++channel)
        to[channel * args.width + k] = inside ? from[channel] : 0.0F;
    }
  });
}

void CpuBackend::argmax(ConstRows logits, std::span<std::int32_t> ids) {
  require(static_cast<std::int64_t>(ids.size()) == logits.rows, "arg-max of another number of rows");
  each_row(logits.rows, logits.cols, [&](std::int64_t row) {
    const float* values = logits.data + row * logits.stride;
    const auto id = kernels_.argmax(values, logits.cols);
    const bool finite = id >= 0 && values[id] - values[id] == 0;
    ids[static_cast<std::size_t>(row)] = finite ? static_cast<std::int32_t>(id) : -1;
  });
}

}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  if (options.threads < 1) throw_usage("the number of threads must be at least 1");
  const auto& targets = kernels::available_targets();
  auto target = targets.back();
  if (!options.simd.empty()) {
    const auto found = std::find_if(targets.begin(), targets.end(), [&](kernels::SimdTarget candidate) {
      return kernels::name_of(candidate) == options.simd;
    });
    if (found == targets.end()) throw_usage("this machine has no SIMD target '" + options.simd + "'");
    target = *found;
  }
  return std::make_unique<cpu::CpuBackend>(options.threads, options.compute, target);
}

std::vector<std::string> cpu_simd_targets() {
  const auto& targets = kernels::available_targets();
  std::vector<std::string> names;
  std::transform(targets.rbegin(), targets.rend(), std::back_inserter(names),
                 [](kernels::SimdTarget target) { return std::string(kernels::name_of(target)); });
  return names;
}

}  // namespace diffuse

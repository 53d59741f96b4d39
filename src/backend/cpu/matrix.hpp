#pragma once
// A weight matrix in the panels of kernels/layout.hpp.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "core/thread_pool.hpp"
#include "kernels/layout.hpp"

namespace diffuse::cpu {

class Matrix : public PackedMatrix {
 public:
  // Rows are stacked in the order of `parts`. With `coded` or `bf16` all elements are kept or rounded to
  // bf16; coding that saves little is left out. `f16` is for parts of f16; with `f32` all are widened.
  Matrix(std::span<const HostMatrix> parts, kernels::PanelFormat format, ThreadPool& pool);

  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return cols_; }
  std::size_t bytes() const override;

  kernels::PanelFormat format() const { return format_; }
  // True where products read bf16, else f32.
  bool bf16() const {
    return format_ == kernels::PanelFormat::bf16 || format_ == kernels::PanelFormat::coded;
  }
  // True where a product reads what expand() writes, and not the panel.
  bool expands() const {
    return format_ == kernels::PanelFormat::f16 || format_ == kernels::PanelFormat::coded;
  }
  std::int64_t panels() const;
  // Where the inputs of a panel lie from `k` on, a multiple of kernels::kDepthStep.
  const std::byte* at(std::int64_t panel, std::int64_t k) const;
  // The inputs [begin, end) of a panel as a product reads them; both multiples of kernels::kDepthStep, or the
  // end the depth itself.
  void expand(const kernels::KernelTable& kernels, std::int64_t panel, std::int64_t begin, std::int64_t end,
              std::byte* to) const;
  kernels::CodedPanel coded(std::int64_t panel) const;  // of a coded matrix
  // out[k] = scale * weight[row, k]
  void unpack_row(std::int64_t row, float scale, float* out) const;

 private:
  // Pairs of inputs of one panel that coding left out, in ascending order.
  struct Escaped {
    std::vector<std::uint32_t> pairs;
    std::vector<std::uint16_t> weights;  // [pairs, kPanel, 2]
  };

  void pack_panel(std::span<const HostMatrix> parts, std::int64_t index, std::byte* panel) const;
  bool code(std::span<const HostMatrix> parts, ThreadPool& pool);

  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  kernels::PanelFormat format_;
  Buffer memory_;
  std::vector<Escaped> escaped_;  // one a panel of a coded matrix
};

const Matrix& matrix_of(const PackedMatrix& packed);

}  // namespace diffuse::cpu

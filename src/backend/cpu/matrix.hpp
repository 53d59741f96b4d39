#pragma once
// A weight matrix in the panels of kernels/layout.hpp.

#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.hpp"
#include "core/thread_pool.hpp"

namespace diffuse::cpu {

class Matrix : public PackedMatrix {
 public:
  // Rows are stacked in the order of `parts`. With `bf16` all elements are kept or rounded to bf16, else they
  // are widened to f32.
  Matrix(std::span<const HostMatrix> parts, bool bf16, ThreadPool& pool);

  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return cols_; }
  std::size_t bytes() const override { return memory_.bytes(); }

  bool bf16() const { return bf16_; }
  std::int64_t panels() const;
  const std::byte* panel(std::int64_t index) const;
  // out[k] = scale * weight[row, k]
  void unpack_row(std::int64_t row, float scale, float* out) const;

 private:
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  bool bf16_ = false;
  Buffer memory_;
};

const Matrix& matrix_of(const PackedMatrix& packed);

}  // namespace diffuse::cpu

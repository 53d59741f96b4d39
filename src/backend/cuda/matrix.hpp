#pragma once
// A weight matrix on a card: row-major, rows and columns padded with zeros to what a product wants.

#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.hpp"
#include "backend/cuda/device.hpp"
#include "backend/cuda/staging.hpp"

namespace diffuse::cuda {

class Matrix : public PackedMatrix {
 public:
  // Rows are stacked in the order of `parts`. With `bf16` all elements are kept or rounded to bf16, else they
  // are widened to f32. Conversions run on the card, so what a checkpoint stores is what travels to it.
  Matrix(std::span<const HostMatrix> parts, bool bf16, Device& device, Staging& staging);

  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return cols_; }
  std::size_t bytes() const override { return memory_.bytes(); }

  bool bf16() const { return bf16_; }
  std::int64_t element() const { return bf16_ ? 2 : 4; }
  std::int64_t padded_rows() const { return padded_rows_; }
  std::int64_t padded_cols() const { return padded_cols_; }
  const std::byte* data() const { return memory_.data(); }  // [padded_rows, padded_cols]

 private:
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::int64_t padded_rows_ = 0;
  std::int64_t padded_cols_ = 0;
  bool bf16_ = false;
  Buffer memory_;
};

const Matrix& matrix_of(const PackedMatrix& packed);

}  // namespace diffuse::cuda

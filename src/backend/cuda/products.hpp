#pragma once
// Products of rows by weights through cuBLASLt, such that a row's bits do not depend on its company.
//
// For each shape of weights (padded outputs and inputs), type and fused epilogue one algorithm is chosen, for
// products of kRowTile rows, from those that cuBLASLt offers without splitting the summed dimension and
// without a reduction; it then serves any number of rows, padded with zeros to a multiple of kRowTile. Where
// it was chosen it is checked that a row alone and among others has the same bits; a library that breaks this
// is refused.

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "backend/cuda/device.hpp"
#include "backend/cuda/matrix.hpp"
#include "backend/cuda/staging.hpp"
#include "kernels/kernels.hpp"

namespace diffuse::cuda {

// Rows of a product come in multiples of this.
inline constexpr std::int64_t kRowTile = 64;

constexpr std::int64_t padded_rows_of(std::int64_t rows) {
  return kernels::round_up(rows, kRowTile);
}

// What cuBLASLt does to a product before it stores it: y = activation(x W^T + bias).
struct Fused {
  const float* bias = nullptr;  // [padded outputs] or null
  Activation activation = Activation::none;
};

// Inputs as products read them: [rows, weights' padded columns], f32 or bf16 like the weights.
struct StagedRows {
  const std::byte* data = nullptr;  // aligned to 16 bytes
  std::int64_t rows = 0;            // a multiple of kRowTile
  std::int64_t stride = 0;          // elements; a multiple of 16 bytes
};

class Products {
 public:
  Products(std::shared_ptr<Device> device, Staging& staging);

  // True where an algorithm serves these weights with this epilogue; chosen and checked at the first
  // question.
  bool serves(const Matrix& weight, const Fused& fused);
  // y[rows, weight.padded_rows()] = fused(x W^T), row i at y + i * y_stride; y is aligned to 16 bytes and so
  // is its stride. Refuses where nothing serves them.
  void run(const Matrix& weight, const StagedRows& x, float* y, std::int64_t y_stride, const Fused& fused);

 private:
  struct Shape {
    std::int64_t outputs = 0;  // padded
    std::int64_t inputs = 0;   // padded
    bool bf16 = false;
    std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    auto operator<=>(const Shape&) const = default;
  };
  struct Plan {
    Shape shape;
    LtDesc desc;
    LtLayout weights, inputs, results;
    cublasLtMatmulAlgo_t algo{};
    std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>>
        seen;  // rows and strides that were checked
  };

  Shape shape_of(const Matrix& weight, const Fused& fused) const;
  Plan* find(const Matrix& weight, const Fused& fused);  // null: nothing serves it
  std::optional<Plan> choose(const Shape& shape, const Fused& fused);
  bool usable(const Plan& plan, const cublasLtMatmulHeuristicResult_t& offer) const;
  void set_rows(Plan& plan, std::int64_t rows, std::int64_t x_stride, std::int64_t y_stride);
  void set_bias(const Plan& plan, const Fused& fused) const;
  void run(Plan& plan, const Matrix& weight, const StagedRows& x, float* y, std::int64_t y_stride,
           const Fused& fused);
  void check_agreement(Plan& plan, const Matrix& weight, const Fused& fused);
  std::string describe(const Shape& shape) const;
  void check(cublasStatus_t status, const char* call, const Shape& shape) const;

  std::shared_ptr<Device> device_;
  Staging& staging_;
  LtHandle handle_;
  Buffer workspace_;
  std::map<Shape, std::optional<Plan>> plans_;
};

}  // namespace diffuse::cuda

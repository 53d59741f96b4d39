#include "backend/cuda/cuda_backend.hpp"

namespace diffuse::cuda {
namespace {

bool aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

// Floats of a stride that keeps rows at 16 bytes.
bool aligned_stride(std::int64_t stride) {
  return stride % 4 == 0;
}

// cuBLASLt's GELU is the tanh form, of a precision that is not stated: good enough for what is rounded to
// bf16 next.
bool fuses(Activation activation, bool bf16) {
  return activation == Activation::none || activation == Activation::relu ||
         (activation == Activation::gelu_tanh && bf16);
}

}  // namespace

Fused CudaBackend::fused_part(const Matrix& weight, const Epilogue& epilogue) {
  // A bias has as many elements as there are outputs, and cuBLASLt would read it up to the padding.
  const bool bias = epilogue.bias != nullptr;
  const bool whole = weight.rows() == weight.padded_rows() && aligned(epilogue.bias);
  if (bias && !whole) return {};
  // Ours scales and accumulates behind bias and activation; cuBLASLt would do so before.
  const bool plain = epilogue.scale == 1 && !epilogue.accumulate;
  if (!plain || !fuses(epilogue.activation, weight.bf16())) return {};
  const Fused fused{epilogue.bias, epilogue.activation};
  return products_.serves(weight, fused) ? fused : Fused{};
}

StagedRows CudaBackend::stage(ConstRows x, const Matrix& weight) {
  const std::int64_t rows = padded_rows_of(x.rows);
  const std::int64_t cols = weight.padded_cols();
  if (weight.bf16()) {
    auto* narrow = inputs_.get<std::uint16_t>(*device_, rows * cols);
    device_->launched(kernels::cuda::narrow_rows(stream(), in(x), narrow, rows, cols, cols),
                      "rounding a product's inputs");
    return {reinterpret_cast<const std::byte*>(narrow), rows, cols};
  }
  if (rows == x.rows && cols == x.cols && aligned(x.data) && aligned_stride(x.stride))
    return {reinterpret_cast<const std::byte*>(x.data), rows, x.stride};
  auto* padded = inputs_.get<float>(*device_, rows * cols);
  device_->launched(kernels::cuda::copy_rows(stream(), in(x), {padded, rows, cols, cols}),
                    "padding a product's inputs");
  return {reinterpret_cast<const std::byte*>(padded), rows, cols};
}

void CudaBackend::product(ConstRows x, const Matrix& weight, Rows y, const Epilogue& epilogue) {
  require(x.cols == weight.cols() && y.cols == weight.rows() && x.rows == y.rows,
          "a product of shapes that do not fit");
  if (x.rows == 0 || weight.rows() == 0) return;
  device_->use();
  const Fused fused = fused_part(weight, epilogue);
  const bool all_fused = fused.bias == epilogue.bias && fused.activation == epilogue.activation &&
                         epilogue.scale == 1 && !epilogue.accumulate;
  const StagedRows staged = stage(x, weight);
  const std::int64_t width = weight.padded_rows();
  // The same product with the same bits, whether its rows need a place of their own for their padding or not.
  if (all_fused && staged.rows == y.rows && width == y.cols && aligned(y.data) && aligned_stride(y.stride)) {
    products_.run(weight, staged, y.data, y.stride, fused);
    return;
  }
  auto* result = results_.get<float>(*device_, staged.rows * width);
  products_.run(weight, staged, result, width, fused);
  kernels::cuda::Finish finish{
      .x = {result, y.rows, y.cols, width},
      .y = out(y),
      .scale = epilogue.scale,
      .accumulate = epilogue.accumulate,
  };
  if (!all_fused) {
    finish.bias = epilogue.bias;
    finish.activation = kernel_activation(epilogue.activation);
  }
  device_->launched(kernels::cuda::finish(stream(), finish), "finishing a product");
}

void CudaBackend::matmul(ConstRows x, const PackedMatrix& weight, Rows y, const Epilogue& epilogue) {
  product(x, matrix_of(weight), y, epilogue);
}

}  // namespace diffuse::cuda

#include "backend/cuda/matrix.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/size.hpp"
#include "kernels/cuda/launches.hpp"

namespace diffuse::cuda {
namespace {

using kernels::cuda::Element;

// Columns start at multiples of 16 bytes, as fast products want it, and so do the rows of their results.
constexpr std::int64_t kRowStep = 8;
constexpr std::int64_t kColumnBytes = 16;

Element element_of(DType type) {
  switch (type) {
    case DType::f32:
      return Element::f32;
    case DType::f16:
      return Element::f16;
    case DType::bf16:
      return Element::bf16;
    default:
      throw_internal("CUDA backend: a matrix of a type that is none of f32, f16, bf16");
  }
}

// Writes one part into the rows of the matrix from `to` on, a few at a time.
class PartWriter {
 public:
  PartWriter(const Matrix& matrix, Device& device, Staging& staging)
      : matrix_(matrix), device_(device), staging_(staging) {}

  void write(const HostMatrix& part, std::byte* to) {
    const auto stored = static_cast<std::int64_t>(size_of(part.dtype));
    const std::int64_t row_bytes = part.cols * stored;
    const std::int64_t step =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(Staging::kPieceBytes) / row_bytes);
    for (std::int64_t row = 0; row < part.rows; row += step) {
      const std::int64_t rows = std::min(step, part.rows - row);
      const std::byte* from = part.data + row * row_bytes;
      write_rows({from, static_cast<std::size_t>(rows * row_bytes)}, element_of(part.dtype), rows,
                 to + row * matrix_.padded_cols() * matrix_.element());
    }
  }

 private:
  void write_rows(std::span<const std::byte> stored, Element type, std::int64_t rows, std::byte* to) {
    const auto wanted = matrix_.bf16() ? Element::bf16 : Element::f32;
    const bool padded = matrix_.padded_cols() != matrix_.cols();
    const std::int64_t elements = rows * matrix_.cols();
    std::byte* converted = padded ? converted_.get<std::byte>(device_, elements * matrix_.element()) : to;
    std::byte* raw =
        type == wanted ? converted : raw_.get<std::byte>(device_, static_cast<std::int64_t>(stored.size()));
    staging_.upload(raw, stored);
    if (type != wanted) {
      device_.launched(kernels::cuda::convert(device_.stream(), raw, type, converted, wanted, elements),
                       "converting weights");
    }
    if (!padded) return;
    const auto width = static_cast<std::size_t>(matrix_.cols() * matrix_.element());
    const auto pitch = static_cast<std::size_t>(matrix_.padded_cols() * matrix_.element());
    device_.check(cudaMemcpy2DAsync(to, pitch, converted, width, width, static_cast<std::size_t>(rows),
                                    cudaMemcpyDeviceToDevice, device_.stream()),
                  "cudaMemcpy2DAsync", "padding weights");
  }

  const Matrix& matrix_;
  Device& device_;
  Staging& staging_;
  Scratch raw_;
  Scratch converted_;
};

}  // namespace

Matrix::Matrix(std::span<const HostMatrix> parts, bool bf16, Device& device, Staging& staging) : bf16_(bf16) {
  if (parts.empty()) throw_internal("a matrix without parts was to be packed");
  cols_ = parts.front().cols;
  for (const auto& part : parts) {
    if (part.cols != cols_ || part.rows < 0 || part.cols <= 0)
      throw_internal("the parts of a packed matrix differ in their columns, or have none");
    rows_ += part.rows;
  }
  padded_rows_ = kernels::round_up(rows_, kRowStep);
  padded_cols_ = kernels::round_up(cols_, kColumnBytes / element());
  const auto bytes = (CheckedSize(static_cast<std::uint64_t>(padded_rows_)) *
                      static_cast<std::uint64_t>(padded_cols_ * element()))
                         .value();
  memory_ = device.allocate(bytes, "weights");
  if (padded_rows_ != rows_ || padded_cols_ != cols_) {
    device.check(cudaMemsetAsync(memory_.data(), 0, bytes, device.stream()), "cudaMemsetAsync",
                 "padding weights");
  }
  PartWriter writer(*this, device, staging);
  std::byte* to = memory_.data();
  for (const auto& part : parts) {
    writer.write(part, to);
    to += part.rows * padded_cols_ * element();
  }
}

const Matrix& matrix_of(const PackedMatrix& packed) {
  const auto* matrix = dynamic_cast<const Matrix*>(&packed);
  if (matrix == nullptr) throw_internal("a matrix that another backend packed was given to the CUDA backend");
  return *matrix;
}

}  // namespace diffuse::cuda

#include "backend/cpu/matrix.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/memory.hpp"
#include "core/error.hpp"
#include "core/size.hpp"
#include "kernels/layout.hpp"

namespace diffuse::cpu {
namespace {

using kernels::kPanel;

float element_as_f32(const std::byte* data, DType type, std::int64_t index) {
  if (type == DType::f32) {
    float value = 0;
    std::memcpy(&value, data + index * 4, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, data + index * 2, sizeof bits);
  return type == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// Packs rows of one part into the outputs [first, first + rows) of a panel; a stored element may lie at any
// address, and types that need it are converted row by row.
void pack_rows(const HostMatrix& part, std::int64_t from_row, std::int64_t rows, bool bf16,
               std::int64_t first, std::byte* panel) {
  const std::int64_t cols = part.cols;
  const std::byte* data = part.data + static_cast<std::size_t>(from_row * cols) * size_of(part.dtype);
  auto* narrow = reinterpret_cast<std::uint16_t*>(panel);
  auto* wide = reinterpret_cast<float*>(panel);
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % size_of(part.dtype) == 0;
  if (bf16 && part.dtype == DType::bf16 && aligned) {
    kernels::pack_panel_bf16(reinterpret_cast<const std::uint16_t*>(data), rows, cols, first, narrow);
    return;
  }
  std::vector<float> row(static_cast<std::size_t>(cols));
  std::vector<std::uint16_t> narrowed(static_cast<std::size_t>(bf16 ? cols : 0));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < cols; ++k)
      row[static_cast<std::size_t>(k)] = element_as_f32(data, part.dtype, r * cols + k);
    if (bf16) {
      std::transform(row.begin(), row.end(), narrowed.begin(),
                     [](float value) { return f32_to_bf16(value); });
      kernels::pack_panel_bf16(narrowed.data(), 1, cols, first + r, narrow);
    } else {
      kernels::pack_panel_f32(row.data(), 1, cols, first + r, wide);
    }
  }
}

}  // namespace

Matrix::Matrix(std::span<const HostMatrix> parts, bool bf16, ThreadPool& pool) : bf16_(bf16) {
  if (parts.empty()) throw_internal("a matrix without parts was to be packed");
  cols_ = parts.front().cols;
  for (const auto& part : parts) {
    if (part.cols != cols_ || part.rows < 0 || part.cols <= 0)
      throw_internal("the parts of a packed matrix differ in their columns, or have none");
    rows_ += part.rows;
  }
  const auto panel_size = static_cast<std::uint64_t>(kernels::panel_bytes(cols_, bf16_));
  memory_ = allocate_zeroed((CheckedSize(static_cast<std::uint64_t>(panels())) * panel_size).value());
  pool.parallel_for(static_cast<std::size_t>(panels()), [&](std::size_t index, int) {
    const auto begin = static_cast<std::int64_t>(index) * kPanel;
    const std::int64_t end = std::min(begin + kPanel, rows_);
    std::byte* to = memory_.data() + index * panel_size;
    std::int64_t part_begin = 0;
    for (const auto& part : parts) {
      const std::int64_t from = std::max(begin, part_begin);
      const std::int64_t until = std::min(end, part_begin + part.rows);
      if (from < until) pack_rows(part, from - part_begin, until - from, bf16_, from - begin, to);
      part_begin += part.rows;
    }
  });
}

std::int64_t Matrix::panels() const {
  return (rows_ + kPanel - 1) / kPanel;
}

const std::byte* Matrix::panel(std::int64_t index) const {
  return memory_.data() + index * kernels::panel_bytes(cols_, bf16_);
}

void Matrix::unpack_row(std::int64_t row, float scale, float* out) const {
  const std::byte* data = panel(row / kPanel);
  if (bf16_) {
    kernels::unpack_row_bf16(reinterpret_cast<const std::uint16_t*>(data), row % kPanel, cols_, scale, out);
  } else {
    kernels::unpack_row_f32(reinterpret_cast<const float*>(data), row % kPanel, cols_, scale, out);
  }
}

const Matrix& matrix_of(const PackedMatrix& packed) {
  const auto* matrix = dynamic_cast<const Matrix*>(&packed);
  if (matrix == nullptr) throw_internal("a matrix that another backend packed was given to the CPU backend");
  return *matrix;
}

}  // namespace diffuse::cpu

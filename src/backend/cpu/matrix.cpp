#include "backend/cpu/matrix.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "backend/cpu/memory.hpp"
#include "core/error.hpp"
#include "core/size.hpp"
#include "kernels/layout.hpp"

namespace diffuse::cpu {
namespace {

using kernels::kPanel;
using kernels::PanelFormat;

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

// Packs rows of one part into the outputs [first, first + rows) of a panel that is not coded; a stored
// element may lie at any address, and types that need it are converted row by row.
void pack_rows(const HostMatrix& part, std::int64_t from_row, std::int64_t rows, PanelFormat format,
               std::int64_t first, std::byte* panel) {
  const std::int64_t cols = part.cols;
  const std::byte* data = part.data + static_cast<std::size_t>(from_row * cols) * size_of(part.dtype);
  auto* narrow = reinterpret_cast<std::uint16_t*>(panel);
  if (format == PanelFormat::f16 || (format == PanelFormat::bf16 && part.dtype == DType::bf16)) {
    const auto pack = format == PanelFormat::f16 ? kernels::pack_panel_f16 : kernels::pack_panel_bf16;
    if (reinterpret_cast<std::uintptr_t>(data) % sizeof(std::uint16_t) == 0) {
      pack(reinterpret_cast<const std::uint16_t*>(data), rows, cols, first, narrow);
      return;
    }
    std::vector<std::uint16_t> row(static_cast<std::size_t>(cols));
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(row.data(), data + r * cols * 2, row.size() * 2);
      pack(row.data(), 1, cols, first + r, narrow);
    }
    return;
  }
  const bool rounded = format == PanelFormat::bf16;
  std::vector<float> row(static_cast<std::size_t>(cols));
  std::vector<std::uint16_t> narrowed(static_cast<std::size_t>(rounded ? cols : 0));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < cols; ++k)
      row[static_cast<std::size_t>(k)] = element_as_f32(data, part.dtype, r * cols + k);
    if (rounded) {
      std::transform(row.begin(), row.end(), narrowed.begin(),
                     [](float value) { return f32_to_bf16(value); });
      kernels::pack_panel_bf16(narrowed.data(), 1, cols, first + r, narrow);
    } else {
      kernels::pack_panel_f32(row.data(), 1, cols, first + r, reinterpret_cast<float*>(panel));
    }
  }
}

std::uint64_t bytes_of(std::int64_t panels, std::int64_t cols, PanelFormat format) {
  return (CheckedSize(static_cast<std::uint64_t>(panels)) *
          static_cast<std::uint64_t>(kernels::panel_bytes(cols, format)))
      .value();
}

}  // namespace

Matrix::Matrix(std::span<const HostMatrix> parts, PanelFormat format, ThreadPool& pool) : format_(format) {
  if (parts.empty()) throw_internal("a matrix without parts was to be packed");
  cols_ = parts.front().cols;
  for (const auto& part : parts) {
    if (part.cols != cols_ || part.rows < 0 || part.cols <= 0)
      throw_internal("the parts of a packed matrix differ in their columns, or have none");
    if (format == PanelFormat::f16 && part.dtype != DType::f16)
      throw_internal("a matrix of another type was to be packed as f16");
    rows_ += part.rows;
  }
  if (format == PanelFormat::coded) {
    if (code(parts, pool)) return;
    format_ = PanelFormat::bf16;
  }
  memory_ = allocate_zeroed(bytes_of(panels(), cols_, format_));
  const std::int64_t panel_size = kernels::panel_bytes(cols_, format_);
  pool.parallel_for(static_cast<std::size_t>(panels()), [&](std::size_t index, int) {
    const auto panel = static_cast<std::int64_t>(index);
    pack_panel(parts, panel, memory_.data() + panel * panel_size);
  });
}

// The rows of all parts that lie in a panel, into zeroed memory; bf16 where the matrix is coded.
void Matrix::pack_panel(std::span<const HostMatrix> parts, std::int64_t index, std::byte* panel) const {
  const PanelFormat format = format_ == PanelFormat::coded ? PanelFormat::bf16 : format_;
  const std::int64_t begin = index * kPanel;
  const std::int64_t end = std::min(begin + kPanel, rows_);
  std::int64_t part_begin = 0;
  for (const auto& part : parts) {
    const std::int64_t from = std::max(begin, part_begin);
    const std::int64_t until = std::min(end, part_begin + part.rows);
    if (from < until) pack_rows(part, from - part_begin, until - from, format, from - begin, panel);
    part_begin += part.rows;
  }
}

// False, with nothing kept, where more than one pair of inputs in eight is escaped: then coding saves less
// than an eighth of the memory, and costs more than that.
bool Matrix::code(std::span<const HostMatrix> parts, ThreadPool& pool) {
  constexpr std::int64_t kMostEscaped = 8;
  const std::int64_t pairs = kernels::round_up(cols_, kernels::kDepthStep) / 2;
  const std::int64_t size = kernels::panel_bytes(cols_, PanelFormat::coded);
  const std::int64_t words = pairs * 2 * kPanel;
  memory_ = allocate_zeroed(bytes_of(panels(), cols_, PanelFormat::coded));
  escaped_.resize(static_cast<std::size_t>(panels()));
  struct Space {
    std::vector<std::uint16_t> panel;
    std::vector<std::uint32_t> escaped;
  };
  std::vector<Space> spaces(static_cast<std::size_t>(pool.threads()));
  std::atomic<std::int64_t> all{0};
  pool.parallel_for(escaped_.size(), [&](std::size_t index, int thread) {
    auto& [panel, escaped] = spaces[static_cast<std::size_t>(thread)];
    panel.assign(static_cast<std::size_t>(words), 0);
    escaped.resize(static_cast<std::size_t>(pairs));
    pack_panel(parts, static_cast<std::int64_t>(index), reinterpret_cast<std::byte*>(panel.data()));
    const std::int64_t count = kernels::code_panel(
        panel.data(), cols_, memory_.data() + static_cast<std::int64_t>(index) * size, escaped.data());
    all += count;
    auto& kept = escaped_[index];
    kept.pairs.assign(escaped.begin(), escaped.begin() + count);
    kept.weights.reserve(static_cast<std::size_t>(count * 2 * kPanel));
    for (const auto pair : kept.pairs) {
      const auto from = panel.begin() + static_cast<std::int64_t>(pair) * 2 * kPanel;
      kept.weights.insert(kept.weights.end(), from, from + 2 * kPanel);
    }
  });
  if (all * kMostEscaped <= panels() * pairs) return true;
  memory_ = {};
  escaped_.clear();
  return false;
}

std::size_t Matrix::bytes() const {
  return std::accumulate(escaped_.begin(), escaped_.end(), memory_.bytes(),
                         [](std::size_t sum, const Escaped& panel) {
                           return sum + panel.weights.size() * 2 + panel.pairs.size() * 4;
                         });
}

std::int64_t Matrix::panels() const {
  return (rows_ + kPanel - 1) / kPanel;
}

const std::byte* Matrix::at(std::int64_t panel, std::int64_t k) const {
  const std::int64_t header = format_ == PanelFormat::coded ? kernels::kCodedHeader : 0;
  return memory_.data() + panel * kernels::panel_bytes(cols_, format_) + header +
         kernels::input_bytes(format_, k);
}

kernels::CodedPanel Matrix::coded(std::int64_t panel) const {
  const auto& escaped = escaped_[static_cast<std::size_t>(panel)];
  return {.panel = at(panel, 0) - kernels::kCodedHeader,
          .escaped = escaped.pairs.data(),
          .escaped_count = static_cast<std::int64_t>(escaped.pairs.size()),
          .escaped_weights = escaped.weights.data()};
}

void Matrix::expand(const kernels::KernelTable& kernels, std::int64_t panel, std::int64_t begin,
                    std::int64_t end, std::byte* to) const {
  if (format_ == PanelFormat::coded) {
    kernels.expand_coded(coded(panel), begin, kernels::round_up(end, kernels::kDepthStep),
                         reinterpret_cast<std::uint16_t*>(to));
  } else {
    kernels.expand_f16(reinterpret_cast<const std::uint16_t*>(at(panel, begin)), reinterpret_cast<float*>(to),
                       (end - begin) * kPanel);
  }
}

void Matrix::unpack_row(std::int64_t row, float scale, float* out) const {
  const std::int64_t panel = row / kPanel;
  const std::int64_t lane = row % kPanel;
  const std::byte* data = at(panel, 0);
  switch (format_) {
    case PanelFormat::f32:
      return kernels::unpack_row_f32(reinterpret_cast<const float*>(data), lane, cols_, scale, out);
    case PanelFormat::f16:
      return kernels::unpack_row_f16(reinterpret_cast<const std::uint16_t*>(data), lane, cols_, scale, out);
    case PanelFormat::bf16:
      return kernels::unpack_row_bf16(reinterpret_cast<const std::uint16_t*>(data), lane, cols_, scale, out);
    case PanelFormat::coded:
      return kernels::unpack_row_coded(coded(panel), lane, cols_, scale, out);
  }
}

const Matrix& matrix_of(const PackedMatrix& packed) {
  const auto* matrix = dynamic_cast<const Matrix*>(&packed);
  if (matrix == nullptr) throw_internal("a matrix that another backend packed was given to the CPU backend");
  return *matrix;
}

}  // namespace diffuse::cpu

#pragma once
// What the tests of the CUDA kernels share: rows with guarded gaps, at any alignment, and comparisons of
// bits. Kernels run at once (cuda_teams/team_launch.hpp); memory is the host's.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/dtype.hpp"

#include "kernels/cuda/launches.hpp"
#include "kernels/cuda/team.hpp"
#include "verify/tolerance.hpp"

namespace diffuse::kernels::cuda::test {

// Rows [rows, cols] with `gap` elements behind each, beginning `shift` elements behind an aligned address.
// What is no element of a row is a guard and must keep its content.
class Rows {
 public:
  Rows(std::int64_t rows, std::int64_t cols, std::int64_t gap = 0, std::int64_t shift = 0)
      : rows_(rows),
        cols_(cols),
        stride_(cols + gap),
        shift_(shift),
        data_(static_cast<std::size_t>(shift + rows * (cols + gap)), kGuard) {}

  static Rows normal(std::int64_t rows, std::int64_t cols, unsigned seed, std::int64_t gap = 0,
                     std::int64_t shift = 0, float size = 1.0F) {
    Rows made(rows, cols, gap, shift);
    std::mt19937 engine(seed);
    std::normal_distribution<float> draw(0.0F, size);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) made.at(r, c) = draw(engine);
    return made;
  }

  // The same elements at another place.
  Rows moved(std::int64_t gap, std::int64_t shift) const { return part(0, rows_, gap, shift); }
  Rows part(std::int64_t first, std::int64_t count, std::int64_t gap = 0, std::int64_t shift = 0) const {
    Rows made(count, cols_, gap, shift);
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t c = 0; c < cols_; ++c) made.at(r, c) = at(first + r, c);
    return made;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t stride() const { return stride_; }
  float* row(std::int64_t r) { return data_.data() + shift_ + r * stride_; }
  const float* row(std::int64_t r) const { return data_.data() + shift_ + r * stride_; }
  float& at(std::int64_t r, std::int64_t c) { return row(r)[c]; }
  float at(std::int64_t r, std::int64_t c) const { return row(r)[c]; }
  RowsIn in() const { return {row(0), rows_, cols_, stride_}; }
  RowsOut out() { return {row(0), rows_, cols_, stride_}; }

  bool guards_kept() const {
    for (std::size_t i = 0; i < data_.size(); ++i) {
      const std::int64_t at = static_cast<std::int64_t>(i) - shift_;
      if ((at < 0 || at % stride_ >= cols_) && data_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr float kGuard = -12345.0F;
  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t stride_;
  std::int64_t shift_;
  std::vector<float> data_;
};

// What an operation may differ by, of the table that all devices are held to.
inline double allowed(DeviceOp operation, bool bf16 = false) {
  return tolerance(operation, bf16 ? "bf16" : "f32").allowed;
}

inline std::uint32_t bits(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

// Equal in every bit; a NaN is as good as any other.
inline ::testing::AssertionResult same_bits(const Rows& a, const Rows& b) {
  if (a.rows() != b.rows() || a.cols() != b.cols()) return ::testing::AssertionFailure() << "other shapes";
  for (std::int64_t r = 0; r < a.rows(); ++r) {
    for (std::int64_t c = 0; c < a.cols(); ++c) {
      const float x = a.at(r, c);
      const float y = b.at(r, c);
      if (bits(x) != bits(y) && !(std::isnan(x) && std::isnan(y)))
        return ::testing::AssertionFailure() << x << " is not " << y << " at row " << r << ", column " << c;
    }
  }
  return ::testing::AssertionSuccess();
}

inline std::vector<float> normal_floats(std::int64_t count, unsigned seed, float size = 1.0F) {
  const Rows rows = Rows::normal(1, count, seed, 0, 0, size);
  return {rows.row(0), rows.row(0) + count};
}

inline std::vector<std::uint16_t> narrowed_floats(const std::vector<float>& from) {
  std::vector<std::uint16_t> to;
  for (const float value : from) to.push_back(f32_to_bf16(value));
  return to;
}

// Sets the teams of this thread's launches while it lives.
class Teams {
 public:
  explicit Teams(const TeamKind& kind) { team_kind() = kind; }
  ~Teams() { team_kind() = {}; }
  Teams(const Teams&) = delete;
  Teams& operator=(const Teams&) = delete;
};

#define LAUNCHED(call) ASSERT_EQ(call, cudaSuccess)

}  // namespace diffuse::kernels::cuda::test

#pragma once
// What the backend's tests share: backends of every SIMD target, of a CUDA card where there is one, and of
// both compute modes; rows with random content, comparison of bits.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "host_rows.hpp"
#include "verify/tolerance.hpp"

namespace diffuse::test {

inline const std::string kCuda = "cuda";

struct Mode {
  std::string simd;  // a SIMD target, or kCuda
  Compute compute = Compute::f32;
};

inline std::string name_of_mode(const Mode& mode) {
  return mode.simd + (mode.compute == Compute::f32 ? "_in_f32" : "_in_bf16");
}

inline void PrintTo(const Mode& mode, std::ostream* out) {
  *out << name_of_mode(mode);
}

// `products`: also the targets that differ from another one in their product of bf16 by bf16 alone. Where a
// card stands in for another, it is all that is tested.
inline std::vector<Mode> all_modes([[maybe_unused]] bool products) {
  std::vector<Mode> modes;
#ifndef DIFFUSE_TEST_STANDIN
  for (const auto& simd : cpu_simd_targets()) {
    if (!products && (simd == "amx" || simd == "avx512_bf16")) continue;
    modes.push_back({simd, Compute::f32});
    modes.push_back({simd, Compute::bf16});
  }
#endif
  if (cuda_device_count() > 0) {
    modes.push_back({kCuda, Compute::f32});
    modes.push_back({kCuda, Compute::bf16});
  }
  return modes;
}

inline std::vector<int> thread_counts(const Mode& mode) {
  return mode.simd == kCuda ? std::vector<int>{1} : std::vector<int>{1, 2, 3, 4};
}

inline std::unique_ptr<Backend> make(const Mode& mode, int threads = 1) {
  if (mode.simd == kCuda)
    return std::make_unique<HostRows>(make_cuda_backend({.device = 0, .compute = mode.compute}));
  return make_cpu_backend({.threads = threads, .compute = mode.compute, .simd = mode.simd});
}

// Rows with `gap` elements between them that must keep their content.
class Table {
 public:
  Table(std::int64_t rows, std::int64_t cols, std::int64_t gap = 0)
      : rows_(rows),
        cols_(cols),
        stride_(cols + gap),
        data_(static_cast<std::size_t>(rows * (cols + gap)), kGap) {}

  static Table random(std::int64_t rows, std::int64_t cols, unsigned seed, std::int64_t gap = 0,
                      float size = 1.0F) {
    Table table(rows, cols, gap);
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0.0F, size);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) table.at(r, c) = normal(engine);
    return table;
  }
  static Table of_small_integers(std::int64_t rows, std::int64_t cols, unsigned seed) {
    Table table(rows, cols);
    std::mt19937 engine(seed);
    for (auto& value : table.data_) value = static_cast<float>(static_cast<int>(engine() % 7) - 3);
    return table;
  }

  float& at(std::int64_t r, std::int64_t c) { return data_[static_cast<std::size_t>(r * stride_ + c)]; }
  float at(std::int64_t r, std::int64_t c) const { return data_[static_cast<std::size_t>(r * stride_ + c)]; }
  float* row(std::int64_t r) { return data_.data() + r * stride_; }
  const float* row(std::int64_t r) const { return data_.data() + r * stride_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }

  Rows view() { return {data_.data(), rows_, cols_, stride_}; }
  Rows view(std::int64_t first, std::int64_t count) { return {row(first), count, cols_, stride_}; }
  ConstRows view() const { return {data_.data(), rows_, cols_, stride_}; }
  ConstRows view(std::int64_t first, std::int64_t count) const { return {row(first), count, cols_, stride_}; }

  bool gaps_kept() const {
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t c = cols_; c < stride_; ++c)
        if (at(r, c) != kGap) return false;
    return true;
  }

 private:
  static constexpr float kGap = 12345.0F;
  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t stride_;
  std::vector<float> data_;
};

inline ::testing::AssertionResult same_bits(const float* a, const float* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]))
      return ::testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
  }
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult same_bits(const Table& a, const Table& b) {
  for (std::int64_t r = 0; r < a.rows(); ++r) {
    auto result = same_bits(a.row(r), b.row(r), a.cols());
    if (!result) return result << " in row " << r;
  }
  return ::testing::AssertionSuccess();
}

// A host matrix of one type made from f32 values, and the values that it really holds.
struct Stored {
  Stored(const Table& values, DType type) : rows(values.rows()), cols(values.cols()), dtype(type) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        float value = values.at(r, c);
        if (type == DType::bf16 || type == DType::f16) {
          // A value that both narrow types hold.
          value = bf16_to_f32(f32_to_bf16(value));
          const std::uint16_t bits = type == DType::bf16 ? f32_to_bf16(value) : f16_bits(value);
          if (type == DType::f16) value = f16_to_f32(bits);
          append(&bits, 2);
        } else {
          append(&value, 4);
        }
        held.push_back(value);
      }
    }
  }
  HostMatrix view() const { return {bytes.data(), dtype, rows, cols}; }
  double at(std::int64_t r, std::int64_t c) const { return held[static_cast<std::size_t>(r * cols + c)]; }

  std::int64_t rows;
  std::int64_t cols;
  DType dtype;
  std::vector<std::byte> bytes;
  std::vector<float> held;

 private:
  static std::uint16_t f16_bits(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000U);
    const int exponent = static_cast<int>(bits >> 23 & 0xffU) - 112;
    if (exponent <= 0) return sign;
    return static_cast<std::uint16_t>(sign | static_cast<unsigned>(exponent) << 10 | (bits >> 13 & 0x3ffU));
  }
  void append(const void* from, std::size_t count) {
    const auto* begin = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), begin, begin + count);
  }
};

inline double rounded(double value, Compute compute) {
  return compute == Compute::bf16 ? bf16_to_f32(f32_to_bf16(static_cast<float>(value))) : value;
}

// What an operation may differ by, of the table that all devices are held to.
inline double allowed(DeviceOp operation, Compute compute) {
  return tolerance(operation, compute == Compute::f32 ? "f32" : "bf16").allowed;
}

// The largest difference relative to the largest expected size.
struct Difference {
  void see(double expected, double found) {
    if (std::isnan(found)) broken = true;
    largest = std::max(largest, std::abs(expected));
    off = std::max(off, std::abs(expected - found));
  }
  double relative() const { return broken ? INFINITY : off / std::max(largest, 1e-30); }
  double largest = 0;
  double off = 0;
  bool broken = false;
};

class EveryMode : public ::testing::TestWithParam<Mode> {};

}  // namespace diffuse::test

#define DIFFUSE_EVERY_MODE(suite, products)                                                    \
  INSTANTIATE_TEST_SUITE_P(, suite, ::testing::ValuesIn(::diffuse::test::all_modes(products)), \
                           [](const auto& each) { return ::diffuse::test::name_of_mode(each.param); })

// How the CPU keeps weights: what they take, and that products and embeddings do not depend on it.

#include "harness.hpp"

namespace diffuse::test {
namespace {

using CpuWeights = EveryMode;
DIFFUSE_EVERY_MODE(CpuWeights, true);

std::uint64_t bytes_of(Backend& backend, const Stored& weight) {
  const HostMatrix parts[] = {weight.view()};
  return backend.pack(parts)->bytes();
}

// bf16 of any exponent: there is nothing to gain by coding them.
Stored of_any_exponent(std::int64_t rows, std::int64_t cols) {
  Table values(rows, cols);
  std::uint32_t state = 1;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      state = state * 1664525U + 1013904223U;
      values.at(r, c) = std::ldexp(1.0F, static_cast<int>(state >> 20) % 60 - 30);
    }
  }
  return {values, DType::bf16};
}

::testing::AssertionResult embed_alike(Backend& backend, const PackedMatrix& a, const PackedMatrix& b,
                                       const std::vector<std::int32_t>& ids) {
  Table one(static_cast<std::int64_t>(ids.size()), a.cols());
  Table other(static_cast<std::int64_t>(ids.size()), a.cols());
  backend.embed(a, ids, 2, one.view());
  backend.embed(b, ids, 2, other.view());
  return same_bits(one, other);
}

TEST_P(CpuWeights, TakeNoMoreThanInTheCheckpoint) {
  if (GetParam().simd == kCuda) GTEST_SKIP() << "of the CPU alone";
  auto backend = make(GetParam());
  const std::uint64_t count = 192 * 448;
  const Table values = Table::random(192, 448, 1);
  EXPECT_LE(bytes_of(*backend, Stored(values, DType::f16)), 2 * count);
  const auto narrow = bytes_of(*backend, Stored(values, DType::bf16));
  EXPECT_EQ(bytes_of(*backend, of_any_exponent(192, 448)), 2 * count);
  if (GetParam().simd == "avx512_bf16" && GetParam().compute == Compute::bf16) {
    EXPECT_LT(narrow, 2 * count * 8 / 10);
    EXPECT_EQ(bytes_of(*backend, Stored(values, DType::f32)), narrow);
  } else {
    EXPECT_EQ(narrow, 2 * count);
  }
}

TEST_P(CpuWeights, OfF16GiveTheBitsOfTheSameNumbersInF32) {
  if (GetParam().simd == kCuda) GTEST_SKIP() << "of the CPU alone";
  auto backend = make(GetParam(), 2);
  for (const std::int64_t depth : {1, 101, 1300}) {
    const Stored half(Table::random(130, depth, 2), DType::f16);
    Table values(130, depth);
    for (std::int64_t r = 0; r < 130; ++r)
      for (std::int64_t c = 0; c < depth; ++c) values.at(r, c) = static_cast<float>(half.at(r, c));
    const Stored wide(values, DType::f32);
    const HostMatrix halves[] = {half.view()};
    const HostMatrix wides[] = {wide.view()};
    const auto a = backend->pack(halves);
    const auto b = backend->pack(wides);
    for (const std::int64_t rows : {1, 6, 8, 40, 120}) {
      const Table x = Table::random(rows, depth, 3);
      Table from_halves(rows, 130);
      Table from_wides(rows, 130);
      backend->matmul(x.view(), *a, from_halves.view(), {});
      backend->matmul(x.view(), *b, from_wides.view(), {});
      ASSERT_TRUE(same_bits(from_halves, from_wides)) << rows << " rows of " << depth;
    }
    EXPECT_TRUE(embed_alike(*backend, *a, *b, {129, 0, 64, 64}));
  }
}

// Stacked upon rows that are not worth coding, the same weights are kept as they are.
TEST_P(CpuWeights, CodedOrNotGiveTheSameBits) {
  if (GetParam().simd == kCuda) GTEST_SKIP() << "of the CPU alone";
  auto backend = make(GetParam(), 2);
  for (const std::int64_t depth : {3, 448, 2500}) {
    const Stored weight(Table::random(128, depth, 4), DType::bf16);
    const Stored any = of_any_exponent(128, depth);
    const HostMatrix alone[] = {weight.view()};
    const HostMatrix stacked[] = {weight.view(), any.view()};
    const auto coded = backend->pack(alone);
    const auto stored = backend->pack(stacked);
    for (const std::int64_t rows : {1, 2, 6, 7, 12, 13, 40, 120}) {
      const Table x = Table::random(rows, depth, 5);
      Table from_coded(rows, 128);
      Table from_stored(rows, 256);
      backend->matmul(x.view(), *coded, from_coded.view(), {});
      backend->matmul(x.view(), *stored, from_stored.view(), {});
      for (std::int64_t r = 0; r < rows; ++r) {
        ASSERT_EQ(std::memcmp(from_coded.row(r), from_stored.row(r), 128 * sizeof(float)), 0)
            << rows << " rows of " << depth;
      }
    }
    EXPECT_TRUE(embed_alike(*backend, *coded, *stored, {127, 0, 63, 64}));
  }
}

}  // namespace
}  // namespace diffuse::test

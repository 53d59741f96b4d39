#include "harness.hpp"

namespace diffuse::test {
namespace {

double activation_of(Activation kind, double x) {
  switch (kind) {
    case Activation::none:
      return x;
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu_erf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::quick_gelu:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::relu_squared:
      return x > 0 ? x * x : 0;
  }
  return 0;
}

using Matmul = EveryMode;
DIFFUSE_EVERY_MODE(Matmul, true);

TEST_P(Matmul, AgreesWithDoubleForOddSizesAndEveryStoredType) {
  auto backend = make(GetParam());
  const Compute compute = GetParam().compute;
  for (const auto type : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t depth : {1, 3, 12, 101, 256}) {
      for (const std::int64_t outputs : {1, 12, 64, 203}) {
        const Stored weight(Table::random(outputs, depth, 1), type);
        const HostMatrix parts[] = {weight.view()};
        const auto packed = backend->pack(parts);
        EXPECT_EQ(packed->rows(), outputs);
        EXPECT_EQ(packed->cols(), depth);
        const Table x = Table::random(7, depth, 2, 5);
        Table y(7, outputs, 3);
        backend->matmul(x.view(), *packed, y.view(), {});
        Difference difference;
        for (std::int64_t r = 0; r < 7; ++r) {
          for (std::int64_t n = 0; n < outputs; ++n) {
            double sum = 0;
            for (std::int64_t k = 0; k < depth; ++k)
              sum += rounded(x.at(r, k), compute) * rounded(weight.at(n, k), compute);
            difference.see(sum, y.at(r, n));
          }
        }
        EXPECT_LT(difference.relative(), allowed(DeviceOp::product, compute))
            << name_of(type) << " " << outputs << " x " << depth;
        EXPECT_TRUE(y.gaps_kept());
      }
    }
  }
}

TEST_P(Matmul, IsExactForSmallIntegers) {
  auto backend = make(GetParam(), 2);
  const Table values = Table::of_small_integers(203, 101, 3);
  const Stored weight(values, DType::bf16);
  const HostMatrix parts[] = {weight.view()};
  const auto packed = backend->pack(parts);
  const Table x = Table::of_small_integers(40, 101, 4);
  Table y(40, 203);
  backend->matmul(x.view(), *packed, y.view(), {});
  for (std::int64_t r = 0; r < 40; ++r) {
    for (std::int64_t n = 0; n < 203; ++n) {
      float sum = 0;
      for (std::int64_t k = 0; k < 101; ++k) sum += x.at(r, k) * values.at(n, k);
      ASSERT_EQ(y.at(r, n), sum) << r << " " << n;
    }
  }
}

// The promise of the whole program: a row's bits do not depend on its company.
TEST_P(Matmul, RowsHaveTheSameBitsInEveryCompanyAndOnAnyNumberOfThreads) {
  struct Shape {
    std::int64_t outputs;
    std::int64_t depth;
  };
  for (const auto [outputs, depth] : {Shape{203, 101}, Shape{64, 896}, Shape{130, 12}, Shape{1, 333}}) {
    for (const auto type : {DType::f32, DType::bf16, DType::f16}) {
      const Stored weight(Table::random(outputs, depth, 5), type);
      const HostMatrix parts[] = {weight.view()};
      const Table x = Table::random(230, depth, 6, 1);
      const Table bias = Table::random(1, outputs, 7);
      const Epilogue epilogue{.bias = bias.row(0), .activation = Activation::silu, .scale = 0.7F};
      Table alone(230, outputs);
      {
        auto backend = make(GetParam());
        const auto packed = backend->pack(parts);
        for (std::int64_t r = 0; r < 230; ++r)
          backend->matmul(x.view(r, 1), *packed, alone.view(r, 1), epilogue);
      }
      for (const int threads : thread_counts(GetParam())) {
        auto backend = make(GetParam(), threads);
        const auto packed = backend->pack(parts);
        for (const std::int64_t company : {2, 7, 12, 16, 17, 33, 64, 100, 230}) {
          Table together(230, outputs, 2);
          for (std::int64_t first = 0; first < 230; first += company) {
            const std::int64_t count = std::min(company, 230 - first);
            backend->matmul(x.view(first, count), *packed, together.view(first, count), epilogue);
          }
          ASSERT_TRUE(same_bits(alone, together)) << company << " rows, " << threads << " threads, "
                                                  << name_of(type) << " " << outputs << " x " << depth;
        }
      }
    }
  }
}

TEST_P(Matmul, StacksPartsOfDifferentTypes) {
  auto backend = make(GetParam());
  const Table x = Table::random(3, 50, 8);
  const Stored a(Table::random(70, 50, 9), DType::bf16);
  const Stored b(Table::random(3, 50, 10), DType::f32);
  const Stored c(Table::random(64, 50, 11), DType::f16);
  const HostMatrix parts[] = {a.view(), b.view(), c.view()};
  const auto packed = backend->pack(parts);
  Table y(3, 137);
  backend->matmul(x.view(), *packed, y.view(), {});
  Difference difference;
  const Compute compute = GetParam().compute;
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t n = 0; n < 137; ++n) {
      double sum = 0;
      for (std::int64_t k = 0; k < 50; ++k) {
        const double w = n < 70 ? a.at(n, k) : n < 73 ? b.at(n - 70, k) : c.at(n - 73, k);
        sum += rounded(x.at(r, k), compute) * rounded(w, compute);
      }
      difference.see(sum, y.at(r, n));
    }
  }
  EXPECT_LT(difference.relative(), allowed(DeviceOp::product, compute));
}

TEST_P(Matmul, EpilogueAddsBiasActivatesScalesAndAccumulates) {
  auto backend = make(GetParam());
  const Compute compute = GetParam().compute;
  const Stored weight(Table::random(75, 33, 12), DType::bf16);
  const HostMatrix parts[] = {weight.view()};
  const auto packed = backend->pack(parts);
  const Table x = Table::random(5, 33, 13);
  const Table bias = Table::random(1, 75, 14);
  for (const auto kind : {Activation::none, Activation::silu, Activation::gelu_erf, Activation::gelu_tanh,
                          Activation::quick_gelu, Activation::relu, Activation::relu_squared}) {
    for (const bool accumulate : {false, true}) {
      Table y = Table::random(5, 75, 15);
      const Table before = y;
      backend->matmul(x.view(), *packed, y.view(),
                      {.bias = bias.row(0), .activation = kind, .scale = 0.5F, .accumulate = accumulate});
      Difference difference;
      for (std::int64_t r = 0; r < 5; ++r) {
        for (std::int64_t n = 0; n < 75; ++n) {
          double sum = bias.at(0, n);
          for (std::int64_t k = 0; k < 33; ++k) sum += rounded(x.at(r, k), compute) * weight.at(n, k);
          difference.see(0.5 * activation_of(kind, sum) + (accumulate ? before.at(r, n) : 0.0), y.at(r, n));
        }
      }
      EXPECT_LT(difference.relative(), allowed(DeviceOp::product, compute)) << static_cast<int>(kind);
    }
  }
}

TEST_P(Matmul, TakesUnalignedHostBytesAndNoRows) {
  auto backend = make(GetParam());
  const Stored weight(Table::random(9, 21, 16), DType::bf16);
  std::vector<std::byte> shifted(weight.bytes.size() + 1);
  std::copy(weight.bytes.begin(), weight.bytes.end(), shifted.begin() + 1);
  const HostMatrix aligned[] = {weight.view()};
  const HostMatrix unaligned[] = {{shifted.data() + 1, DType::bf16, 9, 21}};
  const Table x = Table::random(2, 21, 17);
  Table a(2, 9);
  Table b(2, 9);
  backend->matmul(x.view(), *backend->pack(aligned), a.view(), {});
  backend->matmul(x.view(), *backend->pack(unaligned), b.view(), {});
  EXPECT_TRUE(same_bits(a, b));
  backend->matmul(x.view(0, 0), *backend->pack(aligned), a.view(0, 0), {});
}

TEST_P(Matmul, OneBadRowLeavesTheOthersAlone) {
  auto backend = make(GetParam());
  const Stored weight(Table::random(80, 40, 18), DType::bf16);
  const HostMatrix parts[] = {weight.view()};
  const auto packed = backend->pack(parts);
  Table x = Table::random(20, 40, 19);
  Table clean(20, 80);
  backend->matmul(x.view(), *packed, clean.view(), {});
  x.at(3, 7) = NAN;
  x.at(17, 0) = INFINITY;
  Table y(20, 80);
  backend->matmul(x.view(), *packed, y.view(), {});
  for (std::int64_t r = 0; r < 20; ++r) {
    if (r == 3) {
      EXPECT_TRUE(std::isnan(y.at(r, 79)));
    } else if (r != 17) {
      EXPECT_TRUE(same_bits(clean.row(r), y.row(r), 80));
    }
  }
}

TEST(CpuBackend, RefusesATargetThatIsNotThere) {
  EXPECT_ANY_THROW(make_cpu_backend({.threads = 1, .compute = Compute::f32, .simd = "sse9"}));
  EXPECT_ANY_THROW(make_cpu_backend({.threads = 0, .compute = Compute::f32, .simd = ""}));
  EXPECT_EQ(make_cpu_backend({})->target(), cpu_simd_targets().front());
  EXPECT_EQ(cpu_simd_targets().back(), "baseline");
}

TEST(CudaBackend, IsThereOrSaysWhyNot) {
  EXPECT_EQ(why_no_cuda().empty(), cuda_device_count() > 0);
  if (cuda_device_count() == 0) {
    EXPECT_ANY_THROW(make_cuda_backend({}));
  } else {
    EXPECT_EQ(make_cuda_backend({})->name(), "cuda");
  }
}

}  // namespace
}  // namespace diffuse::test

// The CUDA kernels over rows: against plain formulas, and in bits against the CPU's kernels where these have
// fused multiply-adds, for the formulas are the same. Every shape runs at every alignment.

#include <algorithm>
#include <functional>

#include "cuda_harness.hpp"
#include "kernels/cuda/quads.hpp"
#include "kernels/targets.hpp"

namespace diffuse::kernels::cuda::test {
namespace {

constexpr std::int64_t kWidths[] = {1, 3, 4, 7, 64, 130, 257, 1024, 1500};
constexpr std::int64_t kHeights[] = {1, 2, 5, 33};
struct Place {
  std::int64_t gap;
  std::int64_t shift;
};
constexpr Place kPlaces[] = {{0, 0}, {4, 0}, {1, 0}, {0, 1}, {5, 3}};
constexpr Activation kActivations[] = {Activation::none,        Activation::silu,       Activation::gelu_erf,
                                       Activation::gelu_tanh,   Activation::quick_gelu, Activation::relu,
                                       Activation::relu_squared};

// The best target of this machine that fuses multiply-adds, or null.
const KernelTable* fused_target() {
  const auto target = available_targets().back();
  return target >= SimdTarget::avx2 ? &kernels_for(target) : nullptr;
}

void each_shape(const std::function<void(std::int64_t rows, std::int64_t cols, const Place& place)>& body) {
  for (const auto rows : kHeights)
    for (const auto cols : kWidths)
      for (const auto& place : kPlaces) {
        SCOPED_TRACE(::testing::Message()
                     << rows << " rows of " << cols << ", gap " << place.gap << ", shift " << place.shift);
        body(rows, cols, place);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

TEST(CudaRows, FinishIsTheEpilogueOfTheCpu) {
  each_shape([](std::int64_t rows, std::int64_t cols, const Place& place) {
    const Rows x = Rows::normal(rows, cols, 1, place.gap, place.shift, 3);
    const Rows before = Rows::normal(rows, cols, 2);
    const auto bias = normal_floats(cols, 3);
    for (const auto activation : kActivations) {
      for (const bool accumulate : {false, true}) {
        Rows y = before.moved(place.gap, place.shift);
        Rows expected = before;
        LAUNCHED(finish(nullptr, {x.in(), y.out(), bias.data(), activation, 0.75F, accumulate}));
        EXPECT_TRUE(y.guards_kept());
        const KernelTable* cpu = fused_target();
        if (cpu == nullptr) continue;
        std::vector<float> acc(static_cast<std::size_t>(kPanel), 0.0F);
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < cols; c += kPanel) {
            const std::int64_t count = std::min(kPanel, cols - c);
            std::copy_n(x.row(r) + c, count, acc.data());
            cpu->store_panel({.acc = acc.data(),
                              .rows = 1,
                              .cols = count,
                              .bias = bias.data() + c,
                              .activation = activation,
                              .scale = 0.75F,
                              .accumulate = accumulate,
                              .y = expected.row(r) + c,
                              .y_stride = cols});
          }
        }
        ASSERT_TRUE(same_bits(y, expected)) << static_cast<int>(activation);
      }
    }
  });
}

double expected_activation(Activation kind, double x) {
  switch (kind) {
    case Activation::none:
      return x;
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu_erf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::quick_gelu:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::relu_squared:
      return x > 0 ? x * x : 0;
  }
  return 0;
}

TEST(CudaRows, ActivationsAreAccurateAndKeepNan) {
  const Rows x = Rows::normal(1, 4000, 1, 0, 0, 4);
  for (const auto kind : kActivations) {
    Rows y(1, x.cols());
    LAUNCHED(activate(nullptr, x.in(), y.out(), kind));
    for (std::int64_t c = 0; c < x.cols(); ++c) {
      const double value = x.at(0, c);
      ASSERT_NEAR(y.at(0, c), expected_activation(kind, value),
                  allowed(DeviceOp::activation) * std::abs(value) * std::max(1.0, std::abs(value)))
          << static_cast<int>(kind) << " of " << value;
    }
    Rows edges(1, 3);
    edges.at(0, 0) = NAN;
    edges.at(0, 1) = 1;
    edges.at(0, 2) = 200;
    LAUNCHED(activate(nullptr, edges.in(), edges.out(), kind));
    EXPECT_TRUE(std::isnan(edges.at(0, 0)) && !std::isnan(edges.at(0, 1))) << static_cast<int>(kind);
    EXPECT_EQ(edges.at(0, 2), kind == Activation::relu_squared ? 40000.0F : 200.0F);
  }
}

TEST(CudaRows, GateAddScaleAndSoftcapAreTheCpus) {
  const KernelTable* cpu = fused_target();
  if (cpu == nullptr) GTEST_SKIP() << "no target with fused multiply-adds here";
  each_shape([&](std::int64_t rows, std::int64_t cols, const Place& place) {
    const Rows both = Rows::normal(rows, 2 * cols, 4, place.gap, place.shift, 2);
    Rows y(rows, cols, place.gap, place.shift);
    Rows expected(rows, cols);
    LAUNCHED(gate(nullptr, both.in(), y.out(), Activation::silu));
    for (std::int64_t r = 0; r < rows; ++r)
      cpu->gate(Activation::silu, both.row(r), both.row(r) + cols, expected.row(r), cols);
    ASSERT_TRUE(same_bits(y, expected));

    const Rows x = Rows::normal(rows, cols, 5, place.gap, place.shift);
    LAUNCHED(add_scaled(nullptr, x.in(), y.out(), -0.3F));
    for (std::int64_t r = 0; r < rows; ++r) cpu->add_scaled(x.row(r), expected.row(r), -0.3F, cols);
    ASSERT_TRUE(same_bits(y, expected));
    const Rows factors = Rows::normal(1, cols, 6, place.gap, place.shift);
    LAUNCHED(add_gated(nullptr, x.in(), factors.row(0), y.out()));
    for (std::int64_t r = 0; r < rows; ++r) cpu->add_gated(x.row(r), factors.row(0), expected.row(r), cols);
    ASSERT_TRUE(same_bits(y, expected));
    LAUNCHED(scale_rows(nullptr, y.out(), 11.3F));
    for (std::int64_t r = 0; r < rows; ++r) cpu->scale(expected.row(r), 11.3F, cols);
    ASSERT_TRUE(same_bits(y, expected));
    LAUNCHED(softcap(nullptr, y.out(), 5.5F));
    for (std::int64_t r = 0; r < rows; ++r) cpu->softcap(expected.row(r), 5.5F, cols);
    ASSERT_TRUE(same_bits(y, expected));
    EXPECT_TRUE(y.guards_kept());
  });
}

TEST(CudaRows, SoftcapReachesItsLimits) {
  Rows y(1, 5);
  const float values[] = {INFINITY, -INFINITY, NAN, 0, 1e-8F};
  std::copy_n(values, 5, y.row(0));
  LAUNCHED(softcap(nullptr, y.out(), 30.0F));
  EXPECT_EQ(y.at(0, 0), 30);
  EXPECT_EQ(y.at(0, 1), -30);
  EXPECT_TRUE(std::isnan(y.at(0, 2)));
  EXPECT_EQ(y.at(0, 3), 0);
  EXPECT_NEAR(y.at(0, 4), 1e-8F, 1e-15);
}

TEST(CudaRows, CopiesPadWithZeros) {
  each_shape([](std::int64_t rows, std::int64_t cols, const Place& place) {
    const Rows x = Rows::normal(rows, cols, 6, place.gap, place.shift);
    Rows y(rows + 3, cols + 5, place.gap, place.shift);
    LAUNCHED(copy_rows(nullptr, x.in(), y.out()));
    std::vector<std::uint16_t> narrow(static_cast<std::size_t>((rows + 3) * (cols + 5)), 0xabcd);
    LAUNCHED(narrow_rows(nullptr, x.in(), narrow.data(), rows + 3, cols + 5, cols + 5));
    for (std::int64_t r = 0; r < rows + 3; ++r) {
      for (std::int64_t c = 0; c < cols + 5; ++c) {
        const float expected = r < rows && c < cols ? x.at(r, c) : 0.0F;
        ASSERT_EQ(bits(y.at(r, c)), bits(expected));
        ASSERT_EQ(narrow[static_cast<std::size_t>(r * (cols + 5) + c)], f32_to_bf16(expected));
      }
    }
    EXPECT_TRUE(y.guards_kept());
  });
}

TEST(CudaRows, NarrowedRowsKeepWhatLiesBetweenThem) {
  const Rows x = Rows::normal(3, 6, 1);
  for (const std::int64_t stride : {8, 9}) {
    std::vector<std::uint16_t> y(static_cast<std::size_t>(3 * stride), 0xabcd);
    LAUNCHED(narrow_rows(nullptr, x.in(), y.data(), 3, 7, stride));
    for (std::size_t r = 0; r < 3; ++r)
      for (auto c = std::size_t{7}; c < static_cast<std::size_t>(stride); ++c)
        ASSERT_EQ(y[r * static_cast<std::size_t>(stride) + c], 0xabcd);
  }
}

TEST(CudaRows, ConvertWidensExactlyAndRoundsToNearestEven) {
  for (const std::int64_t shift : {0, 1}) {
    std::vector<std::uint16_t> halves(0x10000 + 1);
    for (std::size_t i = 0; i < 0x10000; ++i)
      halves[i + static_cast<std::size_t>(shift)] = static_cast<std::uint16_t>(i);
    std::vector<float> wide(0x10000);
    LAUNCHED(convert(nullptr, halves.data() + shift, Element::bf16, wide.data(), Element::f32, 0x10000));
    for (std::uint32_t i = 0; i < 0x10000; ++i) ASSERT_EQ(bits(wide[i]), i << 16);
    LAUNCHED(convert(nullptr, halves.data() + shift, Element::f16, wide.data(), Element::f32, 0x10000));
    for (std::uint32_t i = 0; i < 0x10000; ++i)
      ASSERT_EQ(bits(wide[i]), bits(f16_to_f32(static_cast<std::uint16_t>(i))));
    std::vector<std::uint16_t> narrow(0x10000);
    LAUNCHED(convert(nullptr, halves.data() + shift, Element::f16, narrow.data(), Element::bf16, 0x10000));
    for (std::uint32_t i = 0; i < 0x10000; ++i)
      ASSERT_EQ(narrow[i], f32_to_bf16(f16_to_f32(static_cast<std::uint16_t>(i))));
  }
  const auto x = normal_floats(1001, 9);
  std::vector<std::uint16_t> narrow(x.size());
  LAUNCHED(convert(nullptr, x.data(), Element::f32, narrow.data(), Element::bf16, 1001));
  EXPECT_EQ(narrow, narrowed_floats(x));
  EXPECT_EQ(convert(nullptr, x.data(), Element::f32, narrow.data(), Element::f16, 1001),
            cudaErrorInvalidValue);
}

TEST(CudaRows, EmbedPicksRowsOfEveryType) {
  constexpr std::int64_t kVocab = 9;
  for (const std::int64_t cols : {1, 6, 64}) {
    const auto table = normal_floats(kVocab * cols, 11);
    const auto narrow = narrowed_floats(table);
    const std::vector<std::int32_t> ids{8, 0, 3, 3};
    Rows wide_out(4, cols, 1);
    Rows narrow_out(4, cols);
    Rows half_out(4, cols);
    LAUNCHED(embed(nullptr, table.data(), Element::f32, ids.data(), 1.5F, wide_out.out()));
    LAUNCHED(embed(nullptr, narrow.data(), Element::bf16, ids.data(), 1.5F, narrow_out.out()));
    LAUNCHED(embed(nullptr, narrow.data(), Element::f16, ids.data(), 1.5F, half_out.out()));
    for (std::int64_t r = 0; r < 4; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        const auto at = static_cast<std::size_t>(ids[static_cast<std::size_t>(r)] * cols + c);
        ASSERT_EQ(wide_out.at(r, c), 1.5F * table[at]);
        ASSERT_EQ(narrow_out.at(r, c), 1.5F * bf16_to_f32(narrow[at]));
        const float half = f16_to_f32(narrow[at]);
        ASSERT_TRUE(half_out.at(r, c) == 1.5F * half || std::isnan(half));
      }
    }
    EXPECT_TRUE(wide_out.guards_kept());

    Rows sum = narrow_out;
    LAUNCHED(add_positions(nullptr, table.data(), ids.data(), sum.out()));
    for (std::int64_t r = 0; r < 4; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        ASSERT_EQ(sum.at(r, c),
                  narrow_out.at(r, c) +
                      table[static_cast<std::size_t>(ids[static_cast<std::size_t>(r)] * cols + c)]);
  }
}

TEST(CudaRows, RopeIsTheCpus) {
  const KernelTable* cpu = fused_target();
  if (cpu == nullptr) GTEST_SKIP() << "no target with fused multiply-adds here";
  constexpr std::int64_t kShapes[][3] = {{1, 2, 1}, {3, 10, 5}, {4, 64, 32}, {2, 80, 16}, {5, 7, 3}};
  for (const auto& [heads, dim, pairs] : kShapes) {
    for (const std::int64_t rows : {1, 7}) {
      for (const bool interleaved : {false, true}) {
        Rows x = Rows::normal(rows, heads * dim, 12, 3);
        Rows expected = x;
        const auto cosines = normal_floats(rows * pairs, 13);
        const auto sines = normal_floats(rows * pairs, 14);
        LAUNCHED(rope(nullptr, {x.out(), heads, dim, pairs, interleaved, cosines.data(), sines.data()}));
        for (std::int64_t r = 0; r < rows; ++r)
          cpu->rope({.x = expected.row(r),
                     .heads = heads,
                     .head_dim = dim,
                     .pairs = pairs,
                     .interleaved = interleaved,
                     .cos = cosines.data() + r * pairs,
                     .sin = sines.data() + r * pairs});
        ASSERT_TRUE(same_bits(x, expected)) << heads << " heads of " << dim;
        EXPECT_TRUE(x.guards_kept());
      }
    }
  }
}

TEST(CudaRows, UnfoldShowsTheWindowsOfAConvolution) {
  for (const std::int64_t channels : {1, 3, 8}) {
    for (const std::int64_t width : {1, 3, 4}) {
      for (const std::int64_t stride : {1, 2}) {
        for (const std::int64_t padding : {0, 1, 2}) {
          const std::int64_t windows = (11 + 2 * padding - width) / stride + 1;
          const Rows x = Rows::normal(11, channels, 21, 2);
          Rows out(windows, channels * width, 1);
          LAUNCHED(unfold(nullptr, {x.in(), out.out(), width, stride, padding}));
          EXPECT_TRUE(out.guards_kept());
          for (std::int64_t t = 0; t < windows; ++t) {
            for (std::int64_t c = 0; c < channels; ++c) {
              for (std::int64_t k = 0; k < width; ++k) {
                const std::int64_t frame = t * stride + k - padding;
                ASSERT_EQ(out.at(t, c * width + k), frame >= 0 && frame < 11 ? x.at(frame, c) : 0);
              }
            }
          }
        }
      }
    }
  }
}

struct NormCase {
  bool layer;
  bool weight;
  bool bias;
  float offset;
};

TEST(CudaNorm, IsAccurateForEveryKindAndSize) {
  constexpr std::int64_t kSizes[] = {1, 3, 4, 5, 64, 127, 128, 1000, 1024, 1025, 1030, 4096};
  constexpr NormCase kCases[] = {{false, true, false, 0}, {false, true, false, 1}, {false, false, false, 0},
                                 {true, true, true, 0},   {true, false, false, 0}, {true, true, false, 0}};
  for (const auto size : kSizes) {
    for (const std::int64_t groups : {1, 3}) {
      for (const auto& [layer, with_weight, with_bias, offset] : kCases) {
        const Rows x = Rows::normal(5, size * groups, 15, 2, 1, 2);
        Rows y(5, size * groups, 1);
        const auto weight = normal_floats(size, 16);
        const auto bias = normal_floats(size, 17);
        LAUNCHED(norm(nullptr, {x.in(), y.out(), layer, with_weight ? weight.data() : nullptr,
                                with_bias ? bias.data() : nullptr, offset, 1e-5F, groups}));
        EXPECT_TRUE(y.guards_kept());
        double largest = 0;
        double off = 0;
        for (std::int64_t r = 0; r < 5; ++r) {
          for (std::int64_t g = 0; g < groups; ++g) {
            const float* from = x.row(r) + g * size;
            double mean = 0;
            for (std::int64_t i = 0; layer && i < size; ++i) mean += from[i] / static_cast<double>(size);
            double squares = 0;
            for (std::int64_t i = 0; i < size; ++i) squares += (from[i] - mean) * (from[i] - mean);
            const double factor = 1 / std::sqrt(squares / static_cast<double>(size) + 1e-5F);
            for (std::int64_t i = 0; i < size; ++i) {
              const auto at = static_cast<std::size_t>(i);
              double expected = (from[i] - mean) * factor;
              if (with_weight) expected *= static_cast<double>(weight[at]) + offset;
              if (with_bias) expected += bias[at];
              largest = std::max(largest, std::abs(expected));
              const double distance = std::abs(y.at(r, g * size + i) - expected);
              ASSERT_FALSE(std::isnan(distance));
              off = std::max(off, distance);
            }
          }
        }
        ASSERT_LE(off, allowed(DeviceOp::norm) * largest)
            << size << " of " << groups << " groups, layer " << layer;
      }
    }
  }
}

TEST(CudaNorm, DependsOnTheRowAloneWhereverItLies) {
  for (const std::int64_t size : {7, 64, 1000, 1028, 2050}) {
    for (const bool layer : {false, true}) {
      const Rows x = Rows::normal(19, 2 * size, 18);
      const auto weight = normal_floats(size, 19);
      Rows all(19, 2 * size);
      LAUNCHED(norm(nullptr, {x.in(), all.out(), layer, weight.data(), nullptr, 0, 1e-6F, 2}));
      for (std::int64_t r = 0; r < 19; ++r) {
        for (const auto& place : kPlaces) {
          const Rows alone = x.part(r, 1, place.gap, place.shift);
          Rows y(1, 2 * size, place.gap, place.shift);
          LAUNCHED(norm(nullptr, {alone.in(), y.out(), layer, weight.data(), nullptr, 0, 1e-6F, 2}));
          ASSERT_TRUE(same_bits(y, all.part(r, 1)));
        }
      }
      Rows in_place = x;
      LAUNCHED(norm(nullptr, {in_place.in(), in_place.out(), layer, weight.data(), nullptr, 0, 1e-6F, 2}));
      ASSERT_TRUE(same_bits(in_place, all));
    }
  }
}

TEST(CudaItems, BlocksFarBeyond32BitsFindTheirItems) {
  constexpr std::int64_t kPerRow = 1000003;
  for (const std::int64_t block :
       {std::int64_t{3906}, std::int64_t{1} << 24, (std::int64_t{1} << 24) - 1, std::int64_t{1} << 31}) {
    OneThread team({block, 0, 0}, nullptr);
    std::int64_t item = block * kBlockItems;
    each_item(team, std::int64_t{1} << 40, kPerRow, [&](std::int64_t row, std::uint32_t at) {
      ASSERT_EQ(row * kPerRow + at, item);
      ++item;
    });
    EXPECT_EQ(item, (block + 1) * kBlockItems);
  }
  // Nothing behind the last row.
  OneThread team({0, 0, 0}, nullptr);
  std::int64_t items = 0;
  each_item(team, 5, 7, [&](std::int64_t, std::uint32_t) { ++items; });
  EXPECT_EQ(items, 35);
}

TEST(CudaRows, NothingIsLaunchedForNoRowsAndShapesThatDoNotFitAreRefused) {
  Rows y(4, 8);
  const Rows x = Rows::normal(4, 8, 1);
  const RowsOut none{nullptr, 0, 8, 8};
  LAUNCHED(copy_rows(nullptr, none, none));
  LAUNCHED(norm(nullptr, {none, none, false, nullptr, nullptr, 0, 1e-5F, 1}));
  LAUNCHED(finish(nullptr, {none, none, nullptr, Activation::none, 1, false}));
  LAUNCHED(rope(nullptr, {none, 2, 4, 2, false, nullptr, nullptr}));
  const RowsOut narrower{y.row(0), 4, 7, 8};
  EXPECT_EQ(copy_rows(nullptr, x.in(), narrower), cudaErrorInvalidValue);
  EXPECT_EQ(add_scaled(nullptr, x.in(), narrower, 1), cudaErrorInvalidValue);
  EXPECT_EQ(add_gated(nullptr, x.in(), x.row(0), narrower), cudaErrorInvalidValue);
  EXPECT_EQ(extrapolate(nullptr, {.pool = nullptr, .page_bytes = 24}), cudaErrorInvalidValue);
  EXPECT_EQ(gate(nullptr, x.in(), narrower, Activation::silu), cudaErrorInvalidValue);
  EXPECT_EQ(norm(nullptr, {x.in(), y.out(), false, nullptr, nullptr, 0, 1e-5F, 3}), cudaErrorInvalidValue);
  EXPECT_EQ(unfold(nullptr, {x.in(), y.out(), 2, 1, 0}), cudaErrorInvalidValue);
  EXPECT_EQ(rope(nullptr, {y.out(), 2, 4, 3, false, nullptr, nullptr}), cudaErrorInvalidValue);
  EXPECT_TRUE(y.guards_kept());
}

}  // namespace
}  // namespace diffuse::kernels::cuda::test

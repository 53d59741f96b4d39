// Elementary functions against the C library in double, and their edges.

#include "core/dtype.hpp"
#include "harness.hpp"

#include <bit>
#include <limits>

namespace diffuse::kernels::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Functions = EveryTarget;
DIFFUSE_EVERY_TARGET(Functions);

std::vector<float> wide_values() {
  std::vector<float> values;
  for (float x = -100; x <= 100; x += 0.0137F) values.push_back(x);
  for (float x = 1e-30F; x < 10; x *= 1.37F) {
    values.push_back(x);
    values.push_back(-x);
  }
  return values;
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

// The a of x / (1 + exp(-a)), for the kinds that are made so.
double exponent_of(Activation kind, double x) {
  switch (kind) {
    case Activation::silu:
      return x;
    case Activation::gelu_tanh:
      return 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    case Activation::quick_gelu:
      return 1.702 * x;
    default:
      return 0;
  }
}

constexpr Activation kActivations[] = {Activation::none,        Activation::silu,       Activation::gelu_erf,
                                       Activation::gelu_tanh,   Activation::quick_gelu, Activation::relu,
                                       Activation::relu_squared};

TEST_P(Functions, ActivationsAreAccurate) {
  const auto x = wide_values();
  for (const auto kind : kActivations) {
    std::vector<float> y(x.size());
    kernels().activate(kind, x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = expected_activation(kind, x[i]);
      // 1 + erf cancels for negative x, as in every library: an error relative to x and not to the result.
      // The others are x / (1 + exp(-a)): a few roundings, and each rounding of a costs its share of a.
      // Results under 1e-6 or so may lose more where they near the subnormals.
      const double per_rounding = 0x1p-24 * (8 + 4 * std::abs(exponent_of(kind, x[i])));
      const double scale = kind == Activation::gelu_erf ? std::abs(double{x[i]}) : std::abs(expected);
      const double allowed = per_rounding * scale + 1e-12;
      ASSERT_NEAR(y[i], expected, allowed) << static_cast<int>(kind) << " at " << x[i];
    }
  }
}

TEST_P(Functions, ActivationsKeepNaN) {
  for (const auto kind : kActivations) {
    float x[3] = {NAN, 1, NAN};
    kernels().activate(kind, x, x, 3);
    EXPECT_TRUE(std::isnan(x[0]) && !std::isnan(x[1]) && std::isnan(x[2])) << static_cast<int>(kind);
  }
}

TEST_P(Functions, SoftcapIsAnAccurateTanh) {
  const auto x = wide_values();
  auto y = x;
  kernels().softcap(y.data(), 1.0F, static_cast<std::int64_t>(y.size()));
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(y[i], std::tanh(double{x[i]}), 3e-7 * std::abs(std::tanh(double{x[i]}))) << x[i];
  float edges[] = {kInfinity, -kInfinity, NAN};
  kernels().softcap(edges, 1.0F, 3);
  EXPECT_EQ(edges[0], 1);
  EXPECT_EQ(edges[1], -1);
  EXPECT_TRUE(std::isnan(edges[2]));
}

TEST_P(Functions, SigmoidAndItsExponentialReachTheirLimits) {
  const auto x = wide_values();
  auto y = x;
  kernels().sigmoid(y.data(), static_cast<std::int64_t>(y.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = 1 / (1 + std::exp(-double{x[i]}));
    // Where exp(-x) is beyond f32, the quotient is 0.
    if (x[i] > -88) {
      ASSERT_NEAR(y[i], expected, 3e-7 * expected) << x[i];
    } else if (x[i] < -89) {
      ASSERT_EQ(y[i], 0) << x[i];
    }
  }
  float edges[] = {kInfinity, -kInfinity, NAN, 0};
  kernels().sigmoid(edges, 4);
  EXPECT_EQ(edges[0], 1);
  EXPECT_EQ(edges[1], 0);
  EXPECT_TRUE(std::isnan(edges[2]));
  EXPECT_EQ(edges[3], 0.5F);
}

TEST_P(Functions, SoftmaxSumsToOneAndSeesNaN) {
  for (const std::int64_t count : {1, 3, 16, 33, 200}) {
    auto x = normal_values(static_cast<std::size_t>(count), 1, 3);
    const auto before = x;
    kernels().softmax(x.data(), count);
    double total = 0;
    for (const float value : before) total += std::exp(double{value});
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(x[i], std::exp(double{before[i]}) / total,
                  5e-7 * std::exp(double{before[i]}) / total + 1e-9);
    x[0] = NAN;
    kernels().softmax(x.data(), count);
    for (const float value : x) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_P(Functions, RoundingToBf16IsToNearestEven) {
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 0x10000; high += 7) {
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
      values.push_back(std::bit_cast<float>(high << 16 | low));
  }
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<float> wide(values.size());
  kernels().round_bf16(values.data(), wide.data(), count);
  const std::int64_t padded = round_up(count + 1, kDepthStep);
  std::vector<std::uint16_t> narrow(static_cast<std::size_t>(padded), 0xabcd);
  kernels().narrow_bf16(values.data(), narrow.data(), count, padded);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t expected = f32_to_bf16(values[i]);
    if (std::isnan(values[i])) {
      ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(bf16_to_f32(narrow[i])));
      continue;
    }
    ASSERT_EQ(narrow[i], expected) << values[i];
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::uint32_t{expected} << 16) << values[i];
  }
  for (std::size_t i = values.size(); i < narrow.size(); ++i) ASSERT_EQ(narrow[i], 0);
}

TEST_P(Functions, ArgmaxOfNothingIsNothing) {
  EXPECT_EQ(kernels().argmax(nullptr, 0), -1);
  const float zeros[] = {-0.0F, 0.0F};
  EXPECT_EQ(kernels().argmax(zeros, 2), 0);
}

TEST(Targets, AscendFromBaselineAndHaveNames) {
  const auto& targets = available_targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(targets.front(), SimdTarget::baseline);
  for (std::size_t i = 1; i < targets.size(); ++i) EXPECT_LT(targets[i - 1], targets[i]);
  for (const auto target : targets) EXPECT_EQ(kernels_for(target).name, name_of(target));
}

}  // namespace
}  // namespace diffuse::kernels::test

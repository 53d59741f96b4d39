#include "core/exact_math.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace diffuse::exact {
namespace {

// ln 2 and pi/2 in two parts: the first has trailing zeros, so k * high is exact for the k that occur.
constexpr double kLn2High = 0x1.62e42fefa0000p-1;
constexpr double kLn2Low = 0x1.cf79abc9e3b39p-40;
constexpr double kHalfPi1 = 0x1.921fb54400000p+0;
constexpr double kHalfPi2 = 0x1.0b4611a600000p-34;
constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;

constexpr std::array<double, 14> kInverseFactorials = [] {
  std::array<double, 14> all{};
  double factorial = 1;
  for (std::size_t n = 0; n < all.size(); ++n) {
    if (n > 1) factorial *= static_cast<double>(n);
    all[n] = 1 / factorial;
  }
  return all;
}();

double power_of_two(std::int64_t exponent) {
  return std::bit_cast<double>((exponent + 1023) << 52);
}

std::int64_t nearest(double x) {
  return static_cast<std::int64_t>(x + (x < 0 ? -0.5 : 0.5));
}

double sin_reduced(double x) {
  const double s = x * x;
  double term = x;
  double sum = 0;
  for (int n = 1; n <= 11; ++n) {  // (pi/4)^23 / 23! is far under one ulp
    sum += term;
    term *= -s / (2.0 * n * (2.0 * n + 1.0));
  }
  return sum;
}

double cos_reduced(double x) {
  const double s = x * x;
  double term = 1;
  double sum = 0;
  for (int n = 1; n <= 12; ++n) {
    sum += term;
    term *= -s / ((2.0 * n - 1.0) * 2.0 * n);
  }
  return sum;
}

struct Reduced {
  double x;
  int quadrant;
};

Reduced reduce(double x) {
  const std::int64_t k = nearest(x * 0x1.45f306dc9c883p-1);
  const auto count = static_cast<double>(k);
  return {((x - count * kHalfPi1) - count * kHalfPi2) - count * kHalfPi3, static_cast<int>(k & 3)};
}

}  // namespace

double exp(double x) {
  if (x != x) return x;
  if (x > 709.78) return std::numeric_limits<double>::infinity();
  if (x < -708) return 0;  // subnormal results are not needed
  const std::int64_t k = nearest(x * 0x1.71547652b82fep+0);
  const auto count = static_cast<double>(k);
  const double r = (x - count * kLn2High) - count * kLn2Low;
  double sum = kInverseFactorials.back();
  for (std::size_t n = kInverseFactorials.size() - 1; n > 0; --n) sum = sum * r + kInverseFactorials[n - 1];
  // 2^1024 is no double.
  return k > 1023 ? sum * 2 * power_of_two(k - 1) : sum * power_of_two(k);
}

double log(double x) {
  if (!(x >= 0)) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (x > std::numeric_limits<double>::max()) return x;
  std::int64_t scaled = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    scaled = -54;
  }
  const auto bits = std::bit_cast<std::int64_t>(x);
  std::int64_t k = (bits >> 52) - 1023 + scaled;
  double m = std::bit_cast<double>((bits & 0xfffffffffffff) | (std::int64_t{1023} << 52));
  if (m > 0x1.6a09e667f3bcdp+0) {  // keep m near one, so that log(m) loses nothing against k * ln 2
    m *= 0.5;
    ++k;
  }
  // log(m) = 2 artanh(s)
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  double sum = 0;
  for (int n = 21; n >= 3; n -= 2) sum = (sum + 1.0 / n) * z;
  const auto count = static_cast<double>(k);
  return count * kLn2High + ((2 * s + 2 * s * sum) + count * kLn2Low);
}

double pow(double base, double exponent) {
  return exp(exponent * log(base));
}

double sin(double x) {
  const auto [r, quadrant] = reduce(x);
  switch (quadrant) {
    case 0:
      return sin_reduced(r);
    case 1:
      return cos_reduced(r);
    case 2:
      return -sin_reduced(r);
    default:
      return -cos_reduced(r);
  }
}

double cos(double x) {
  const auto [r, quadrant] = reduce(x);
  switch (quadrant) {
    case 0:
      return cos_reduced(r);
    case 1:
      return -sin_reduced(r);
    case 2:
      return -cos_reduced(r);
    default:
      return sin_reduced(r);
  }
}

}  // namespace diffuse::exact

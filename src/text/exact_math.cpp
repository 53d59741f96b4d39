#include "text/exact_math.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace diffuse {
namespace {

// log(2) in two parts; the first has 20 trailing zero bits, so that its products with exponents are exact.
constexpr double kLog2High = 0x1.62e42feep-1;
constexpr double kLog2Low = 0x1.a39ef35793c76p-33;
constexpr double kInverseLog2 = 0x1.71547652b82fep+0;

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
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

}  // namespace

double exact_exp(double x) {
  if (x < -708) return 0;
  if (x > 709) return std::numeric_limits<double>::infinity();
  const double scaled = x * kInverseLog2;
  const auto k = static_cast<std::int64_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  const auto exponent = static_cast<double>(k);
  const double r = (x - exponent * kLog2High) - exponent * kLog2Low;
  double sum = kInverseFactorials.back();
  for (std::size_t n = kInverseFactorials.size() - 1; n > 0; --n) sum = sum * r + kInverseFactorials[n - 1];
  // 2^1023 times two, for 2^1024 is no double.
  return k > 1023 ? sum * power_of_two(k - 1) * 2 : sum * power_of_two(k);
}

double exact_log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto k = static_cast<std::int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000F'FFFF'FFFF'FFFFULL) | 0x3FF0'0000'0000'0000ULL);
  if (m > 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    ++k;
  }
  // log(m) = 2 artanh(s)
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  double sum = 0;
  for (int n = 21; n >= 3; n -= 2) sum = (sum + 1.0 / n) * z;
  const auto exponent = static_cast<double>(k);
  return exponent * kLog2High + ((2 * s + 2 * s * sum) + exponent * kLog2Low);
}

}  // namespace diffuse

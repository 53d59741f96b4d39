#include "codec/functions.hpp"

#include <bit>
#include <cstdint>

namespace diffuse::codec {
namespace {

// exp(x) - 1 for x <= 0. With n the whole number nearest to x / ln 2 and r = x - n ln 2:
// 2^n (exp(r) - 1) + (2^n - 1), which loses nothing near zero. Without branches, so that loops become
// vectors.
inline float expm1_below(float x) {
  constexpr float kLeast = -87;        // 2^n stays normal; the result is -1 long before
  constexpr float kRound = 0x1.8p23F;  // pushes the fraction out; the low bits are n
  constexpr float kLog2E = 0x1.715476p0F;
  constexpr float kLn2High = 0x1.63p-1F;  // few bits: n * kLn2High is exact
  constexpr float kLn2Low = -0x1.bd0106p-13F;
  const float clipped = x < kLeast ? kLeast : x;
  const float shifted = clipped * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (clipped - n * kLn2High) - n * kLn2Low;
  // The exponential series; the first term left out is under 1e-8.
  float tail = 1.0F / 5040;
  tail = tail * r + 1.0F / 720;
  tail = tail * r + 1.0F / 120;
  tail = tail * r + 1.0F / 24;
  tail = tail * r + 1.0F / 6;
  tail = tail * r + 0.5F;
  const float power = r + r * r * tail;
  const auto whole = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound);
  const float scale = std::bit_cast<float>((whole + 127U) << 23);
  return scale * power + (scale - 1);
}

inline float magnitude(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffU);
}

inline float sigmoid(float x) {
  const float e = expm1_below(-magnitude(x)) + 1;
  return (x < 0 ? e : 1.0F) / (1 + e);
}

inline float tanh(float x) {
  const float m = expm1_below(-2 * magnitude(x));
  const float t = -m / (2 + m);
  return x < 0 ? -t : t;
}

}  // namespace

void elu(std::span<const float> from, float* to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const float x = from[i];
    const float below = expm1_below(x > 0 ? 0 : x);
    to[i] = x > 0 ? x : below;
  }
}

void lstm_cells(std::span<const float> gates, std::span<float> cell, float* out) {
  const auto width = cell.size();
  for (std::size_t i = 0; i < width; ++i) {
    const float kept = sigmoid(gates[width + i]) * cell[i];
    const float added = sigmoid(gates[i]) * tanh(gates[2 * width + i]);
    cell[i] = kept + added;
    out[i] = sigmoid(gates[3 * width + i]) * tanh(cell[i]);
  }
}

}  // namespace diffuse::codec

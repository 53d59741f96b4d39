#include "sampler/torch_randn.hpp"

#include <cmath>
#include <cstddef>
#include <numbers>
#include <random>

#include "core/exact_math.hpp"

namespace diffuse {
namespace {

constexpr std::size_t kBlock = 16;

class Generator {
 public:
  // torch keeps the low 32 bits of a seed.
  explicit Generator(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

  float uniform() { return static_cast<float>(engine_() & 0xffffffU) * 0x1p-24F; }
  double uniform_double() {
    const std::uint64_t high = engine_();
    const std::uint64_t low = engine_();
    return static_cast<double>(((high << 32) | low) & ((std::uint64_t{1} << 53) - 1)) * 0x1p-53;
  }

 private:
  std::mt19937 engine_;
};

// 16 uniform numbers -> 16 normal ones: the first half gives radii, the second one angles.
void transform_block(float* values) {
  for (std::size_t i = 0; i < kBlock / 2; ++i) {
    const float u = 1 - values[i];
    const auto log = static_cast<float>(exact::log(static_cast<double>(u)));
    const auto radius = static_cast<double>(std::sqrt(-2 * log));
    const auto angle = static_cast<double>(2 * std::numbers::pi_v<float> * values[i + kBlock / 2]);
    values[i] = static_cast<float>(radius * static_cast<double>(static_cast<float>(exact::cos(angle))));
    values[i + kBlock / 2] =
        static_cast<float>(radius * static_cast<double>(static_cast<float>(exact::sin(angle))));
  }
}

}  // namespace

std::vector<float> torch_randn(std::uint64_t seed, std::size_t count) {
  Generator generator(seed);
  std::vector<float> values(count);
  if (count < kBlock) {
    for (std::size_t i = 0; i < count; i += 2) {
      const double angle = 2 * std::numbers::pi * generator.uniform_double();
      const double radius = std::sqrt(-2 * exact::log(1 - generator.uniform_double()));
      values[i] = static_cast<float>(radius * exact::cos(angle));
      if (i + 1 < count) values[i + 1] = static_cast<float>(radius * exact::sin(angle));
    }
    return values;
  }
  for (auto& value : values) value = generator.uniform();
  for (std::size_t i = 0; i + kBlock <= count; i += kBlock) transform_block(values.data() + i);
  if (count % kBlock != 0) {
    // The last 16 are drawn anew.
    float* last = values.data() + count - kBlock;
    for (std::size_t i = 0; i < kBlock; ++i) last[i] = generator.uniform();
    transform_block(last);
  }
  return values;
}

}  // namespace diffuse

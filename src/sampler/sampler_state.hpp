#pragma once
// What a scheduler keeps between the steps of one latent, or of a part of its elements.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace diffuse {

// A new one is empty: before the first step. All arrays are of the same elements.
struct SamplerState {
  std::uint64_t steps = 0;                  // that were done
  std::vector<std::vector<float>> earlier;  // [kept][elements]: earlier estimates, the latest first
  std::vector<float> sample;  // [elements]: the latent that the last update started from; or none

  bool operator==(const SamplerState&) const = default;
};

// To bytes (little-endian, a mark and a version in front) and back: every bit the same. Throws bad data where
// the bytes are not those of a state.
std::vector<std::byte> to_bytes(const SamplerState& state);
SamplerState sampler_state_of(std::span<const std::byte> bytes);

// The state of the elements [first, first + count), and of parts that follow one another: elements never
// meet, so a latent may be cut anew between two steps. Throws internal where it does not have them, or where
// the parts have not done the same steps.
SamplerState cut_state(const SamplerState& state, std::size_t first, std::size_t count);
SamplerState join_states(std::span<const SamplerState> parts);

}  // namespace diffuse

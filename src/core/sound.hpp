#pragma once
// Sound as samples: what files are decoded to, job files hold and models take.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace diffuse {

inline constexpr std::int64_t kLowestRate = 1000;
inline constexpr std::int64_t kHighestRate = 384'000;

// The most that a sample may be, where 1 is full scale. Overshoots of filters, codecs and mixes stay far
// below it (it is 18 dB over); integers of 8 bits or more that were made floating-point without scaling lie
// above it unless they are next to silence.
inline constexpr float kLoudestSample = 8;

struct Sound {
  std::vector<float> samples;  // mono, mostly within -1 to 1
  std::int64_t rate = 0;       // samples a second
};

// What makes samples unusable as sound, in a few words, or nothing: none at all, a rate out of range, a
// sample that is not finite or of another scale.
std::string sound_flaw(std::span<const float> samples, std::int64_t rate);

}  // namespace diffuse

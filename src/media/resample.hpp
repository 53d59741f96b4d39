#pragma once
// Sound from one rate to another, with the same bits on every machine.
//
// A band-limited interpolation: each output sample is a sum over its neighbours, weighted by a sinc under a
// Kaiser window (64 zero crossings a side, beta 10). Flat to 0.9 of the lower of the two Nyquist frequencies,
// and about 100 dB down from there on. The weights come from exact_math.hpp, and the sums have one fixed
// order.

#include <cstdint>
#include <span>
#include <vector>

namespace diffuse::media {

// `samples` at `from` Hz -> ceil(samples * to / from) samples at `to` Hz. Sound outside of what is given is
// silence. Equal rates give the same samples. Throws bad data where a rate is not within kLowestRate to
// kHighestRate.
std::vector<float> resample(std::span<const float> samples, std::int64_t from, std::int64_t to);

}  // namespace diffuse::media

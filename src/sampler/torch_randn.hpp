#pragma once
// The normal numbers that torch.randn draws on a CPU, so that a seed gives diffusers' users their picture.

#include <cstdint>
#include <vector>

namespace diffuse {

// torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32) of `count` elements
// in row-major order: Mersenne twister (MT19937), Box-Muller over blocks of 16, or over pairs in double where
// there are fewer than 16. Mostly the same bits, else within two units in the last place of torch's, which
// depend on the processor; these are the same on every machine.
std::vector<float> torch_randn(std::uint64_t seed, std::size_t count);

}  // namespace diffuse

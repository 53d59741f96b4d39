#pragma once
// Which SIMD targets there are, and the kernels of each.

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/kernels.hpp"

namespace diffuse::kernels {

// In ascending order of what a machine must have. `amx` and `avx512_bf16` are avx512 with another product of
// bf16 by bf16.
enum class SimdTarget : std::uint8_t { baseline, avx2, avx512, avx512_bf16, amx };

// The targets that this build has and this machine can run, ascending; baseline is always there. The first
// call asks the kernel of the system for the AMX registers.
const std::vector<SimdTarget>& available_targets();
std::string_view name_of(SimdTarget target);
// The target must be available.
const KernelTable& kernels_for(SimdTarget target);

}  // namespace diffuse::kernels

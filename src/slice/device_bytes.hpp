#pragma once
// What the weights of a slice take in the memory of the processor that computes. Pure, like the plan: from
// the recipe and the headers alone.
//
// Vectors and tables of positions are f32 everywhere. Matrices of products: in Compute::bf16 they are bf16,
// but for a router's; in Compute::f32 a CUDA card has them in f32 (cuBLASLt multiplies f32 by f32), and the
// CPU keeps what is stored. What pads rows and columns is not counted: nothing for usual sizes. Nor is what
// the CPU saves where it codes bf16 (kernels/layout.hpp): about a quarter, which only the weights themselves
// tell.

#include <cstdint>

#include "backend/backend.hpp"
#include "checkpoint/tensor_header.hpp"
#include "recipe/recipe.hpp"
#include "slice/plan.hpp"

namespace diffuse {

struct DeviceKind {
  bool cuda = false;
  Compute compute = Compute::f32;
};

// Throws internal where the headers lack a tensor of the slice.
std::uint64_t device_bytes(const Recipe& recipe, const TensorHeaders& headers, const RankSlice& slice,
                           const DeviceKind& device);

}  // namespace diffuse

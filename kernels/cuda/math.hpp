#pragma once
// Elementary functions of f32, the same formulas as the CPU's (kernels/simd/vectors-inl.hpp): only IEEE
// operations and explicit fused multiply-adds, so that a GPU and the tests' CPU build give the same bits.
// Compile with -fmad=false and without fast maths.

#include <math.h>

#include "core/dtype.hpp"
#include "kernels/cuda/team.hpp"
#include "kernels/kernels.hpp"

namespace diffuse::kernels::cuda {

inline constexpr float kInfinity = __builtin_inff();

// 2^n for n in [-126, 127].
__device__ inline float power_of_two(std::int32_t n) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

// exp to 1 unit in the last place; 0 and infinity beyond the range of f32, NaN for NaN.
__device__ inline float exponential(float x) {
  if (x != x) return x;
  const float above = x > -110.0F ? x : -110.0F;
  const float bounded = above < 100.0F ? above : 100.0F;
  const float n = ::rintf(bounded * 1.44269504088896341F);
  float r = ::fmaf(-n, 0.693359375F, bounded);
  r = ::fmaf(-n, -2.12194440e-4F, r);
  float p = 1.9875691500e-4F;
  p = ::fmaf(p, r, 1.3981999507e-3F);
  p = ::fmaf(p, r, 8.3334519073e-3F);
  p = ::fmaf(p, r, 4.1665795894e-2F);
  p = ::fmaf(p, r, 1.6666665459e-1F);
  p = ::fmaf(p, r, 5.0000001201e-1F);
  p = ::fmaf(p, r * r, r) + 1.0F;
  // In two steps, for 2^n alone may lie outside the range where the result does not.
  const auto whole = static_cast<std::int32_t>(n);
  const std::int32_t half = whole >> 1;
  return p * power_of_two(half) * power_of_two(whole - half);
}

__device__ inline float sigmoid(float x) {
  return 1.0F / (1.0F + exponential(-x));
}

__device__ inline float hyperbolic_tangent(float x) {
  const float size = ::fabsf(x);
  if (size < 0.625F) {
    const float z = x * x;
    float p = -5.70498872745e-3F;
    p = ::fmaf(p, z, 2.06390887954e-2F);
    p = ::fmaf(p, z, -5.37397155531e-2F);
    p = ::fmaf(p, z, 1.33314422036e-1F);
    p = ::fmaf(p, z, -3.33332819422e-1F);
    return ::fmaf(p * z, x, x);
  }
  return ::copysignf(1.0F - 2.0F / (exponential(size + size) + 1.0F), x);
}

// x P(x^2) / Q(x^2) on [-4, 4], beyond which f32 has nothing but +-1.
__device__ inline float error_function(float x) {
  if (x != x) return x;
  const float above = x > -4.0F ? x : -4.0F;
  const float bounded = above < 4.0F ? above : 4.0F;
  const float z = bounded * bounded;
  float p = -2.72614225801306e-10F;
  p = ::fmaf(p, z, 2.77068142495902e-08F);
  p = ::fmaf(p, z, -2.10102402082508e-06F);
  p = ::fmaf(p, z, -5.69250639462346e-05F);
  p = ::fmaf(p, z, -7.34990630326855e-04F);
  p = ::fmaf(p, z, -2.95459980854025e-03F);
  p = ::fmaf(p, z, -1.60960333262415e-02F);
  float q = -1.45660718464996e-05F;
  q = ::fmaf(q, z, -2.13374055278905e-04F);
  q = ::fmaf(q, z, -1.68282697438203e-03F);
  q = ::fmaf(q, z, -7.37332916720468e-03F);
  q = ::fmaf(q, z, -1.42647390514189e-02F);
  return bounded * p / q;
}

// The kind is the same for a whole launch, so no warp diverges over it.
__device__ inline float activated(Activation kind, float x) {
  switch (kind) {
    case Activation::none:
      return x;
    case Activation::silu:
      return x / (1.0F + exponential(-x));
    case Activation::gelu_erf:
      return 0.5F * x * (1.0F + error_function(x * 0.70710678118654752F));
    case Activation::gelu_tanh: {
      // 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)), without the cancellation
      const float cube = ::fmaf(x * x * x, 0.044715F, x);
      return x / (1.0F + exponential(cube * -1.59576912160573071F));
    }
    case Activation::quick_gelu:
      return x / (1.0F + exponential(x * -1.702F));
    case Activation::relu:
      return x < 0.0F ? 0.0F : x;
    case Activation::relu_squared: {
      const float r = x < 0.0F ? 0.0F : x;
      return r * r;
    }
  }
  return x;
}

__device__ inline float rounded_bf16(float x) {
  return bf16_to_f32(f32_to_bf16(x));
}

}  // namespace diffuse::kernels::cuda

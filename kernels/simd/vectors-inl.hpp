#pragma once
// What the vector kernels share: loads and stores of tails, and elementary functions. Everything lives in a
// namespace of the SIMD target, for these sources are compiled once a target and the linker must not mix
// them; for the same reason no inline function of the standard library is used here.

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/kernels.hpp"

namespace diffuse::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most a row of an AMX tile, and at most what a panel can be cut into.
using F32 = HWY_CAPPED(float, 16);
using I32 = hn::Rebind<std::int32_t, F32>;
using U32 = hn::Rebind<std::uint32_t, F32>;
using VF = hn::Vec<F32>;
using VI = hn::Vec<I32>;
using MF = hn::Mask<F32>;

constexpr F32 kF32;
constexpr I32 kI32;
constexpr U32 kU32;
constexpr std::int64_t kLanes = hn::MaxLanes(F32());

HWY_INLINE VF set(float value) {
  return hn::Set(kF32, value);
}

// The first `count` lanes, zeros behind them; all lanes where count >= kLanes. Nothing beyond is touched.
HWY_INLINE VF load_part(const float* from, std::int64_t count) {
  if (count >= kLanes) return hn::LoadU(kF32, from);
#if HWY_MEM_OPS_MIGHT_FAULT
  alignas(64) float lanes[kLanes] = {};
  for (std::int64_t lane = 0; lane < count; ++lane) lanes[lane] = from[lane];
  return hn::Load(kF32, lanes);
#else
  return hn::MaskedLoad(hn::FirstN(kF32, static_cast<std::size_t>(count)), kF32, from);
#endif
}
HWY_INLINE void store_part(VF value, float* to, std::int64_t count) {
  if (count >= kLanes) {
    hn::StoreU(value, kF32, to);
    return;
  }
#if HWY_MEM_OPS_MIGHT_FAULT
  alignas(64) float lanes[kLanes];
  hn::Store(value, kF32, lanes);
  for (std::int64_t lane = 0; lane < count; ++lane) to[lane] = lanes[lane];
#else
  hn::BlendedStore(value, hn::FirstN(kF32, static_cast<std::size_t>(count)), kF32, to);
#endif
}

// Lanes added in one fixed order: halves, then quarters, and so on.
HWY_INLINE float sum_lanes(VF value) {
  alignas(64) float lanes[kLanes];
  hn::Store(value, kF32, lanes);
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
    for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

HWY_INLINE float max_lanes(VF value) {
  return hn::GetLane(hn::MaxOfLanes(kF32, value));
}

// 2^n for n in [-126, 127].
HWY_INLINE VF power_of_two(VI n) {
  return hn::BitCast(kF32, hn::ShiftLeft<23>(hn::Add(n, hn::Set(kI32, 127))));
}

// exp to 1 unit in the last place; 0 and infinity beyond the range of f32, NaN for NaN.
HWY_INLINE VF exp(VF x) {
  const VF bounded = hn::Min(hn::Max(x, set(-110.0F)), set(100.0F));
  const VF n = hn::Round(hn::Mul(bounded, set(1.44269504088896341F)));
  VF r = hn::NegMulAdd(n, set(0.693359375F), bounded);
  r = hn::NegMulAdd(n, set(-2.12194440e-4F), r);
  VF p = set(1.9875691500e-4F);
  p = hn::MulAdd(p, r, set(1.3981999507e-3F));
  p = hn::MulAdd(p, r, set(8.3334519073e-3F));
  p = hn::MulAdd(p, r, set(4.1665795894e-2F));
  p = hn::MulAdd(p, r, set(1.6666665459e-1F));
  p = hn::MulAdd(p, r, set(5.0000001201e-1F));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), set(1.0F));
  // In two steps, for 2^n alone may lie outside the range where the result does not.
  const VI whole = hn::ConvertTo(kI32, n);
  const VI half = hn::ShiftRight<1>(whole);
  p = hn::Mul(hn::Mul(p, power_of_two(half)), power_of_two(hn::Sub(whole, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, p);
}

HWY_INLINE VF sigmoid(VF x) {
  return hn::Div(set(1.0F), hn::Add(set(1.0F), exp(hn::Neg(x))));
}

HWY_INLINE VF tanh(VF x) {
  const VF size = hn::Abs(x);
  const VF z = hn::Mul(x, x);
  VF p = set(-5.70498872745e-3F);
  p = hn::MulAdd(p, z, set(2.06390887954e-2F));
  p = hn::MulAdd(p, z, set(-5.37397155531e-2F));
  p = hn::MulAdd(p, z, set(1.33314422036e-1F));
  p = hn::MulAdd(p, z, set(-3.33332819422e-1F));
  const VF small = hn::MulAdd(hn::Mul(p, z), x, x);
  const VF large = hn::Sub(set(1.0F), hn::Div(set(2.0F), hn::Add(exp(hn::Add(size, size)), set(1.0F))));
  return hn::IfThenElse(hn::Lt(size, set(0.625F)), small, hn::CopySign(large, x));
}

// erf(x) = x P(x^2) / Q(x^2) on [-4, 4], beyond which f32 has nothing but +-1.
HWY_INLINE VF erf(VF x) {
  const VF bounded = hn::Min(hn::Max(x, set(-4.0F)), set(4.0F));
  const VF z = hn::Mul(bounded, bounded);
  VF p = set(-2.72614225801306e-10F);
  p = hn::MulAdd(p, z, set(2.77068142495902e-08F));
  p = hn::MulAdd(p, z, set(-2.10102402082508e-06F));
  p = hn::MulAdd(p, z, set(-5.69250639462346e-05F));
  p = hn::MulAdd(p, z, set(-7.34990630326855e-04F));
  p = hn::MulAdd(p, z, set(-2.95459980854025e-03F));
  p = hn::MulAdd(p, z, set(-1.60960333262415e-02F));
  VF q = set(-1.45660718464996e-05F);
  q = hn::MulAdd(q, z, set(-2.13374055278905e-04F));
  q = hn::MulAdd(q, z, set(-1.68282697438203e-03F));
  q = hn::MulAdd(q, z, set(-7.37332916720468e-03F));
  q = hn::MulAdd(q, z, set(-1.42647390514189e-02F));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Div(hn::Mul(bounded, p), q));
}

// The activation is a template parameter: the switch stands outside of the loops.
template <Activation kind>
HWY_INLINE VF activated(VF x) {
  if constexpr (kind == Activation::silu) {
    return hn::Div(x, hn::Add(set(1.0F), exp(hn::Neg(x))));
  } else if constexpr (kind == Activation::gelu_erf) {
    return hn::Mul(hn::Mul(set(0.5F), x), hn::Add(set(1.0F), erf(hn::Mul(x, set(0.70710678118654752F)))));
  } else if constexpr (kind == Activation::gelu_tanh) {
    // 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)), without the cancellation
    const VF cube = hn::MulAdd(hn::Mul(hn::Mul(x, x), x), set(0.044715F), x);
    return hn::Div(x, hn::Add(set(1.0F), exp(hn::Mul(cube, set(-1.59576912160573071F)))));
  } else if constexpr (kind == Activation::quick_gelu) {
    return hn::Div(x, hn::Add(set(1.0F), exp(hn::Mul(x, set(-1.702F)))));
  } else if constexpr (kind == Activation::relu) {
    return hn::IfThenElse(hn::Lt(x, set(0.0F)), set(0.0F), x);
  } else if constexpr (kind == Activation::relu_squared) {
    const VF r = hn::IfThenElse(hn::Lt(x, set(0.0F)), set(0.0F), x);
    return hn::Mul(r, r);
  } else {
    return x;
  }
}

// Calls body.template operator()<kind>().
template <class Body>
HWY_INLINE void with_activation(Activation kind, const Body& body) {
  switch (kind) {
    case Activation::none:
      return body.template operator()<Activation::none>();
    case Activation::silu:
      return body.template operator()<Activation::silu>();
    case Activation::gelu_erf:
      return body.template operator()<Activation::gelu_erf>();
    case Activation::gelu_tanh:
      return body.template operator()<Activation::gelu_tanh>();
    case Activation::quick_gelu:
      return body.template operator()<Activation::quick_gelu>();
    case Activation::relu:
      return body.template operator()<Activation::relu>();
    case Activation::relu_squared:
      return body.template operator()<Activation::relu_squared>();
  }
}

}  // namespace diffuse::kernels::HWY_NAMESPACE

// Weights as they are stored to weights as a product reads them.

#include "kernels/simd/tables-inl.hpp"

namespace diffuse::kernels::HWY_NAMESPACE {

void expand_f16(const std::uint16_t* x, float* y, std::int64_t count) {
  constexpr std::int64_t kAhead = 2048;  // elements: what comes next from memory is asked for
  constexpr std::int64_t kLineElements = 32;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    if (i % kLineElements == 0) __builtin_prefetch(x + i + kAhead, 0, 2);
    // By the bits: the exponent moves to f32's place and is put right by a multiplication, which makes normal
    // numbers of subnormal ones; what was infinite or no number stays so.
    const hn::Vec<U32> half = hn::PromoteTo(kU32, hn::LoadU(hn::Rebind<std::uint16_t, U32>(), x + i));
    const VF magnitude = hn::BitCast(kF32, hn::ShiftLeft<13>(hn::And(half, hn::Set(kU32, 0x7fff))));
    const VF value = hn::Mul(magnitude, set(0x1p112F));
    const VF special =
        hn::IfThenElseZero(hn::Ge(value, set(65536.0F)), hn::BitCast(kF32, hn::Set(kU32, 0x7f800000)));
    const VF sign = hn::BitCast(kF32, hn::ShiftLeft<16>(hn::And(half, hn::Set(kU32, 0x8000))));
    hn::StoreU(hn::Or(hn::Or(value, special), sign), kF32, y + i);
  }
}

}  // namespace diffuse::kernels::HWY_NAMESPACE

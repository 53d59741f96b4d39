#include "kernels/simd/tables-inl.hpp"

namespace diffuse::kernels::HWY_NAMESPACE {
namespace {

// To nearest even, as f32_to_bf16; the lower half of each lane is zero.
HWY_INLINE VF rounded_bf16(VF x) {
  const auto bits = hn::BitCast(kU32, x);
  const auto last = hn::And(hn::ShiftRight<16>(bits), hn::Set(kU32, 1));
  const auto up = hn::Add(bits, hn::Add(last, hn::Set(kU32, 0x7fff)));
  const auto nan = hn::Or(bits, hn::Set(kU32, 0x400000));
  const auto is_nan = hn::RebindMask(kU32, hn::IsNaN(x));
  return hn::BitCast(kF32, hn::And(hn::IfThenElse(is_nan, nan, up), hn::Set(kU32, 0xffff0000U)));
}

// y[i] = body(vector of x from i), tails masked.
template <class Body>
HWY_INLINE void each(std::int64_t count, const Body& body) {
  for (std::int64_t i = 0; i < count; i += kLanes) body(i, count - i);
}

}  // namespace

void round_bf16(const float* x, float* y, std::int64_t count) {
  each(count, [=](std::int64_t i, std::int64_t left)
                  HWY_ATTR { store_part(rounded_bf16(load_part(x + i, left)), y + i, left); });
}

void narrow_bf16(const float* x, std::uint16_t* y, std::int64_t count, std::int64_t padded) {
  const hn::Rebind<std::uint16_t, F32> half;
  each(padded, [=](std::int64_t i, std::int64_t left) HWY_ATTR {
    const std::int64_t valid = count - i > 0 ? count - i : 0;
    const auto bits = hn::ShiftRight<16>(hn::BitCast(kU32, rounded_bf16(load_part(x + i, valid))));
    // The padded row is a whole number of vectors: kDepthStep is.
    (void)left;
    hn::StoreU(hn::DemoteTo(half, hn::BitCast(kI32, bits)), half, y + i);
  });
}

namespace {

HWY_INLINE void rotate(VF a, VF b, VF c, VF s, VF& first, VF& second) {
  first = hn::NegMulAdd(b, s, hn::Mul(a, c));
  second = hn::MulAdd(a, s, hn::Mul(b, c));
}

HWY_INLINE void rope_interleaved(float* x, std::int64_t pairs, const float* cosines, const float* sines) {
  alignas(64) float even[kLanes] = {};
  alignas(64) float odd[kLanes] = {};
  for (std::int64_t i = 0; i < pairs; i += kLanes) {
    const std::int64_t count = pairs - i < kLanes ? pairs - i : kLanes;
    for (std::int64_t lane = 0; lane < count; ++lane) {
      even[lane] = x[2 * (i + lane)];
      odd[lane] = x[2 * (i + lane) + 1];
    }
    VF first;
    VF second;
    rotate(hn::Load(kF32, even), hn::Load(kF32, odd), load_part(cosines + i, count),
           load_part(sines + i, count), first, second);
    hn::Store(first, kF32, even);
    hn::Store(second, kF32, odd);
    for (std::int64_t lane = 0; lane < count; ++lane) {
      x[2 * (i + lane)] = even[lane];
      x[2 * (i + lane) + 1] = odd[lane];
    }
  }
}

HWY_INLINE void rope_half(float* x, std::int64_t pairs, const float* cosines, const float* sines) {
  for (std::int64_t i = 0; i < pairs; i += kLanes) {
    const std::int64_t count = pairs - i;
    VF first;
    VF second;
    rotate(load_part(x + i, count), load_part(x + pairs + i, count), load_part(cosines + i, count),
           load_part(sines + i, count), first, second);
    store_part(first, x + i, count);
    store_part(second, x + pairs + i, count);
  }
}

}  // namespace

void rope(const RopeRow& args) {
  for (std::int64_t head = 0; head < args.heads; ++head) {
    float* x = args.x + head * args.head_dim;
    if (args.interleaved) {
      rope_interleaved(x, args.pairs, args.cos, args.sin);
    } else {
      rope_half(x, args.pairs, args.cos, args.sin);
    }
  }
}

void activate(Activation kind, const float* x, float* y, std::int64_t count) {
  with_activation(kind, [=]<Activation act>() HWY_ATTR {
    each(count, [=](std::int64_t i, std::int64_t left)
                    HWY_ATTR { store_part(activated<act>(load_part(x + i, left)), y + i, left); });
  });
}

void gate(Activation kind, const float* gated, const float* up, float* y, std::int64_t count) {
  with_activation(kind, [=]<Activation act>() HWY_ATTR {
    each(count, [=](std::int64_t i, std::int64_t left) HWY_ATTR {
      const VF opened = activated<act>(load_part(gated + i, left));
      store_part(hn::Mul(opened, load_part(up + i, left)), y + i, left);
    });
  });
}

void add_scaled(const float* x, float* y, float factor, std::int64_t count) {
  const VF by = set(factor);
  each(count, [=](std::int64_t i, std::int64_t left) HWY_ATTR {
    store_part(hn::MulAdd(load_part(x + i, left), by, load_part(y + i, left)), y + i, left);
  });
}

void add_gated(const float* x, const float* gates, float* y, std::int64_t count) {
  each(count, [=](std::int64_t i, std::int64_t left) HWY_ATTR {
    store_part(hn::MulAdd(load_part(x + i, left), load_part(gates + i, left), load_part(y + i, left)), y + i,
               left);
  });
}

namespace {

HWY_INLINE VF extrapolated(VF x, VF y, VF weight) {
  return hn::MulAdd(weight, hn::Sub(x, y), x);
}

HWY_INLINE VF widened_bf16(const std::uint16_t* from) {
  const hn::Rebind<std::uint16_t, F32> half;
  return hn::BitCast(kF32, hn::ShiftLeft<16>(hn::PromoteTo(kU32, hn::LoadU(half, from))));
}

}  // namespace

void extrapolate_f32(const float* x, float* y, float weight, std::int64_t count) {
  const VF by = set(weight);
  each(count, [=](std::int64_t i, std::int64_t left) HWY_ATTR {
    store_part(extrapolated(load_part(x + i, left), load_part(y + i, left), by), y + i, left);
  });
}

void extrapolate_bf16(const std::uint16_t* x, std::uint16_t* y, float weight, std::int64_t count) {
  const VF by = set(weight);
  const hn::Rebind<std::uint16_t, F32> half;
  each(count, [=](std::int64_t i, std::int64_t left) HWY_ATTR {
    // What lies behind the last element is copied out and back.
    alignas(32) std::uint16_t xs[kLanes] = {};
    alignas(32) std::uint16_t ys[kLanes] = {};
    const std::int64_t size = left < kLanes ? left : kLanes;
    for (std::int64_t lane = 0; lane < size; ++lane) {
      xs[lane] = x[i + lane];
      ys[lane] = y[i + lane];
    }
    const auto made = rounded_bf16(extrapolated(widened_bf16(xs), widened_bf16(ys), by));
    const auto bits = hn::ShiftRight<16>(hn::BitCast(kU32, made));
    hn::StoreU(hn::DemoteTo(half, hn::BitCast(kI32, bits)), half, ys);
    for (std::int64_t lane = 0; lane < size; ++lane) y[i + lane] = ys[lane];
  });
}

void scale(float* y, float factor, std::int64_t count) {
  const VF by = set(factor);
  each(count, [=](std::int64_t i, std::int64_t left)
                  HWY_ATTR { store_part(hn::Mul(load_part(y + i, left), by), y + i, left); });
}

void softcap(float* y, float cap, std::int64_t count) {
  const VF by = set(cap);
  each(count, [=](std::int64_t i, std::int64_t left) HWY_ATTR {
    store_part(hn::Mul(by, tanh(hn::Div(load_part(y + i, left), by))), y + i, left);
  });
}

}  // namespace diffuse::kernels::HWY_NAMESPACE

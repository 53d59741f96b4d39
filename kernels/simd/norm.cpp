// Operations that run along a whole row: norms, softmax, arg-max.

#include "kernels/simd/tables-inl.hpp"

namespace diffuse::kernels::HWY_NAMESPACE {
namespace {

// Sum over i of term(i, elements left), in four chains of kLanes lanes that are added in a fixed order; the
// tail's missing lanes must come as zeros.
template <class Term>
HWY_INLINE float sum(std::int64_t count, const Term& term) {
  VF chains[4] = {hn::Zero(kF32), hn::Zero(kF32), hn::Zero(kF32), hn::Zero(kF32)};
  for (std::int64_t i = 0; i < count; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (std::int64_t chain = 0; chain < 4; ++chain) {
      const std::int64_t at = i + chain * kLanes;
      if (at < count) chains[chain] = term(chains[chain], at, count - at);
    }
  }
  return sum_lanes(hn::Add(hn::Add(chains[0], chains[1]), hn::Add(chains[2], chains[3])));
}

HWY_INLINE float sum_of(const float* x, std::int64_t count) {
  return sum(count, [=](VF acc, std::int64_t i, std::int64_t left)
                        HWY_ATTR { return hn::Add(acc, load_part(x + i, left)); });
}

HWY_INLINE void norm_group(const float* x, float* y, const NormRow& args) {
  const std::int64_t size = args.size;
  const auto count = static_cast<float>(size);
  const float mean = args.layer ? sum_of(x, size) / count : 0.0F;
  const VF centre = set(mean);
  const float squares = sum(size, [=](VF acc, std::int64_t i, std::int64_t left) HWY_ATTR {
    VF value = hn::Sub(load_part(x + i, left), centre);
    if (left < kLanes) value = hn::IfThenElseZero(hn::FirstN(kF32, static_cast<std::size_t>(left)), value);
    return hn::MulAdd(value, value, acc);
  });
  const VF factor = set(1.0F / __builtin_sqrtf(squares / count + args.eps));
  const VF offset = set(args.weight_offset);
  for (std::int64_t i = 0; i < size; i += kLanes) {
    const std::int64_t left = size - i;
    VF value = hn::Mul(hn::Sub(load_part(x + i, left), centre), factor);
    if (args.weight != nullptr) value = hn::Mul(value, hn::Add(load_part(args.weight + i, left), offset));
    if (args.bias != nullptr) value = hn::Add(value, load_part(args.bias + i, left));
    store_part(value, y + i, left);
  }
}

}  // namespace

void norm(const NormRow& args) {
  for (std::int64_t group = 0; group < args.groups; ++group)
    norm_group(args.x + group * args.size, args.y + group * args.size, args);
}

void softmax(float* x, std::int64_t count) {
  VF largest = set(-__builtin_inff());
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const VF value = load_part(x + i, count - i);
    const VF valid = count - i >= kLanes
                         ? value
                         : hn::IfThenElse(hn::FirstN(kF32, static_cast<std::size_t>(count - i)), value,
                                          set(-__builtin_inff()));
    largest = hn::Max(valid, largest);
  }
  const VF top = set(max_lanes(largest));
  for (std::int64_t i = 0; i < count; i += kLanes)
    store_part(exp(hn::Sub(load_part(x + i, count - i), top)), x + i, count - i);
  const VF total = set(sum_of(x, count));
  for (std::int64_t i = 0; i < count; i += kLanes)
    store_part(hn::Div(load_part(x + i, count - i), total), x + i, count - i);
}

void sigmoid_all(float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes)
    store_part(sigmoid(load_part(x + i, count - i)), x + i, count - i);
}

std::int64_t argmax(const float* x, std::int64_t count) {
  if (count == 0) return -1;
  VF largest = set(x[0]);
  MF nan = hn::IsNaN(largest);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t left = count - i;
    VF value = load_part(x + i, left);
    if (left < kLanes)
      value = hn::IfThenElse(hn::FirstN(kF32, static_cast<std::size_t>(left)), value, largest);
    nan = hn::Or(nan, hn::IsNaN(value));
    largest = hn::Max(value, largest);
  }
  if (!hn::AllFalse(kF32, nan)) return -1;
  const VF top = set(max_lanes(largest));
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t left = count - i;
    auto equal = hn::Eq(load_part(x + i, left), top);
    if (left < kLanes) equal = hn::And(equal, hn::FirstN(kF32, static_cast<std::size_t>(left)));
    const std::intptr_t found = hn::FindFirstTrue(kF32, equal);
    if (found >= 0) return i + found;
  }
  return -1;
}

}  // namespace diffuse::kernels::HWY_NAMESPACE

#include "kernels/simd/product-inl.hpp"
#include "kernels/simd/tables-inl.hpp"

namespace diffuse::kernels::HWY_NAMESPACE {

namespace {

template <class Columns>
HWY_INLINE void panel_product(const PanelProduct& args, Columns w) {
  const auto* x = static_cast<const float*>(args.x);
  if (args.add) {
    product<true>(x, args.x_stride, args.rows, w, 0, args.depth, args.acc, kPanel, kPanel, args.next,
                  args.next_bytes);
  } else {
    product<false>(x, args.x_stride, args.rows, w, 0, args.depth, args.acc, kPanel, kPanel, args.next,
                   args.next_bytes);
  }
}

}  // namespace

void matmul_f32(const PanelProduct& args) {
  panel_product(args, F32Columns{static_cast<const float*>(args.w), kPanel});
}

void matmul_bf16(const PanelProduct& args) {
  panel_product(args, Bf16Columns{static_cast<const std::uint32_t*>(args.w), kPanel});
}

void store_panel(const PanelStore& args) {
  const VF factor = set(args.scale);
  with_activation(args.activation, [&]<Activation kind>() HWY_ATTR {
    for (std::int64_t row = 0; row < args.rows; ++row) {
      const float* acc = args.acc + row * kPanel;
      float* y = args.y + row * args.y_stride;
      for (std::int64_t col = 0; col < args.cols; col += kLanes) {
        const std::int64_t count = args.cols - col;
        VF value = hn::LoadU(kF32, acc + col);
        if (args.bias != nullptr) value = hn::Add(value, load_part(args.bias + col, count));
        value = activated<kind>(value);
        if (args.accumulate) {
          value = hn::MulAdd(value, factor, load_part(y + col, count));
        } else {
          value = hn::Mul(value, factor);
        }
        store_part(value, y + col, count);
      }
    }
  });
}

}  // namespace diffuse::kernels::HWY_NAMESPACE

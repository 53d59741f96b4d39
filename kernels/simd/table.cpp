#include "kernels/simd/product-inl.hpp"
#include "kernels/simd/tables-inl.hpp"

namespace diffuse::kernels {

const KernelTable& DIFFUSE_TABLE();

const KernelTable& DIFFUSE_TABLE() {
  namespace target = HWY_NAMESPACE;
  static constexpr KernelTable kTable = {
      .name = DIFFUSE_TARGET,
      .native_bf16 = false,
      .pass_rows = target::kPassRows,
      .native_pass_rows = 0,
      .matmul_f32 = target::matmul_f32,
      .matmul_bf16 = target::matmul_bf16,
      .matmul_native = nullptr,
      .store_panel = target::store_panel,
      .expand_f16 = target::expand_f16,
      .round_bf16 = target::round_bf16,
      .narrow_bf16 = target::narrow_bf16,
      .norm = target::norm,
      .rope = target::rope,
      .activate = target::activate,
      .gate = target::gate,
      .add_scaled = target::add_scaled,
      .add_gated = target::add_gated,
      .extrapolate_f32 = target::extrapolate_f32,
      .extrapolate_bf16 = target::extrapolate_bf16,
      .scale = target::scale,
      .softcap = target::softcap,
      .softmax = target::softmax,
      .sigmoid = target::sigmoid_all,
      .argmax = target::argmax,
      .attend_f32 = target::attend_f32,
      .attend_bf16 = target::attend_bf16,
      .merge = target::merge,
      .finish = target::finish,
  };
  return kTable;
}

}  // namespace diffuse::kernels

#pragma once
// The kernels' word for the seam's: both backends hand it on.

#include "backend/backend.hpp"
#include "core/error.hpp"
#include "kernels/kernels.hpp"

namespace diffuse {

inline kernels::Activation kernel_activation(Activation activation) {
  switch (activation) {
    case Activation::none:
      return kernels::Activation::none;
    case Activation::silu:
      return kernels::Activation::silu;
    case Activation::gelu_erf:
      return kernels::Activation::gelu_erf;
    case Activation::gelu_tanh:
      return kernels::Activation::gelu_tanh;
    case Activation::quick_gelu:
      return kernels::Activation::quick_gelu;
    case Activation::relu:
      return kernels::Activation::relu;
    case Activation::relu_squared:
      return kernels::Activation::relu_squared;
  }
  throw_internal("backend: an unknown activation");
}

}  // namespace diffuse

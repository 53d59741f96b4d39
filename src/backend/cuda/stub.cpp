#include "backend/backend.hpp"
#include "core/error.hpp"

namespace diffuse {

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& /*options*/) {
  throw_refused("this build has no CUDA backend: build with it, or run with --device cpu");
}

int cuda_device_count() {
  return 0;
}

}  // namespace diffuse

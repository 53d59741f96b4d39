#include "backend/backend.hpp"
#include "core/error.hpp"

namespace diffuse {

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& /*options*/) {
  throw_refused(why_no_cuda());
}

int cuda_device_count() {
  return 0;
}

std::string why_no_cuda() {
  return "this build has no CUDA backend: configure it with -DDIFFUSE_CUDA=ON where NVIDIA's toolkit is "
         "(docs/gpu.md), or run with --device cpu";
}

}  // namespace diffuse

#include "core/error.hpp"
#include "transport/nccl.hpp"

namespace diffuse {

bool nccl_built() {
  return false;
}

std::string nccl_version() {
  return "none";
}

bool nccl_shares_devices() {
  return false;
}

std::unique_ptr<NcclTransport> make_nccl_transport(MpiSession& /*session*/, MpiTransport& /*host*/,
                                                   const NcclOptions& /*options*/) {
  throw_refused(
      "this build has no NCCL: build with -DDIFFUSE_CUDA=ON where NCCL is installed, or run with "
      "--transport mpi");
}

}  // namespace diffuse

#pragma once
// Hidden rows from GPU to GPU through NCCL; everything else goes the host's way, over MPI.
//
// Between each two neighbouring stages lies one link: a communicator of two ranks with a stream of its own,
// on which data flows one way. So a receive that is posted ahead holds up no send, and no circle of waits can
// close. All communicators are non-blocking; the host polls, with the deadlines of the MPI transport, and MPI
// goes on meanwhile. No call to MPI ever sees device memory.
//
// On an error or a deadline the communicators of this rank are aborted, and an Error (io) names peer, request
// and layer. Whoever catches it ends the job on all ranks. Where NCCL or the driver does not come back after
// that, the session ends the job by itself.

#include <chrono>
#include <memory>
#include <string>

#include "transport/mpi.hpp"
#include "transport/transport.hpp"

namespace diffuse {

bool nccl_built();           // false: this build has a stub, and make_nccl_transport refuses
std::string nccl_version();  // of the library that runs, "2.28.9"; "none" in a build without it

// True where ranks may share a GPU: NCCL can from 2.30 on, and does where NCCL_MULTI_RANK_GPU_ENABLE=1 says
// so.
bool nccl_shares_devices();

class NcclTransport : public Transport {
 public:
  // Collective, at the end of the work: every rank's links end in order, and what fails then is thrown. A
  // transport that is destroyed without it aborts its links.
  virtual void close() = 0;
};

struct NcclOptions {
  void* compute_stream = nullptr;  // cudaStream_t: what is queued there before a send is in what is sent
  // How long, after an error, the abort of the links and what follows it may take before the session ends the
  // job without them.
  std::chrono::nanoseconds patience = std::chrono::seconds(20);
  // A peer that fails says why, and ends the job; only where it does not come to that in this time does this
  // rank speak of what it saw of it.
  std::chrono::nanoseconds peers_word = std::chrono::seconds(5);
};

// Collective over all ranks: links each rank with the next, and sends a word over every link to try it. The
// device of this rank is the current one of this thread, which is the only one that calls the transport.
// Carries go to rank() + 1 and come from rank() - 1, and their bytes lie in device memory; the other channels
// are the host's. References must outlive the transport.
std::unique_ptr<NcclTransport> make_nccl_transport(MpiSession& session, MpiTransport& host,
                                                   const NcclOptions& options);

}  // namespace diffuse

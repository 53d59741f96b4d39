// One rank does what the first argument says; nccl_fault_test.sh looks at how the job ends.

#include <cuda_runtime_api.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "transport/collectives.hpp"
#include "transport/nccl.hpp"

namespace diffuse {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

void work(MpiSession& session, const std::string& fault) {
  const int rank = session.rank();
  const int last = session.size() - 1;
  const auto host = make_mpi_transport(session, {seconds(2)});
  if (cudaSetDevice(fault == "one-device" ? 0 : rank) != cudaSuccess) throw_io("there is no such device");
  cudaStream_t compute = nullptr;
  cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking);
  void* memory = nullptr;
  cudaMalloc(&memory, 1 << 20);
  const std::span<std::byte> rows(static_cast<std::byte*>(memory), 1 << 20);
  std::vector<std::byte> word(8);
  if (fault == "stop-early" && rank == last) kill(getpid(), SIGSTOP);
  const auto self = make_nccl_transport(session, *host, {.compute_stream = compute, .patience = seconds(3)});
  std::this_thread::sleep_for(milliseconds(300));
  if (fault == "stop" && rank == last) kill(getpid(), SIGSTOP);
  if (fault == "die" && rank == last) kill(getpid(), SIGKILL);
  if (fault == "throw" && rank == last) {
    const auto dropped = self->receive(rank - 1, Channel::carry, rows.first(1000), {"rows"});
    throw_bad_data("a stranger's weights");
  }
  if (fault == "circle") {
    if (rank == 0) self->receive_now(last, Channel::result, word, {"an answer"});
    if (rank == 1) self->receive_now(0, Channel::carry, rows, {"layer 9 of request 'b'"});
  }
  const auto here = fault == "size" && rank == last ? rows.first(996) : rows.first(1000);
  if (rank > 0) self->receive_now(rank - 1, Channel::carry, here, {"layer 12 of request 'a7', step 301"});
  if (rank < last) self->send_now(rank + 1, Channel::carry, here, {"layer 11 of request 'a7', step 301"});
  self->close();
  barrier(*host, "the end of the work");  // as a job's end: the others may still fail
  cudaFree(memory);
  cudaStreamDestroy(compute);
}

}  // namespace
}  // namespace diffuse

int main(int argc, char** argv) {
  diffuse::MpiSession session(std::chrono::seconds(8));
  try {
    diffuse::work(session, argc > 1 ? argv[1] : "");
  } catch (const diffuse::Error& error) {
    // As in the program: the lowest speaks for those who meet the same at once, and a launcher needs seconds
    // to end ranks of which one has stopped.
    if (session.rank() > 0)
      std::this_thread::sleep_for(
          std::chrono::milliseconds((session.timed_out() ? 4000 : 400) + 200 * session.rank()));
    session.abort_all(error.code(),
                      "diffuse: rank " + std::to_string(session.rank()) + " says: " + error.what());
  }
  return 0;
}

// One rank does what the first argument says; mpi_fault_test.sh looks at how the job ends.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "transport/mpi.hpp"

namespace diffuse {
namespace {

using std::chrono::seconds;

void work(MpiSession& session, const std::string& fault) {
  const auto transport = make_mpi_transport(session, {seconds(2)});
  const int rank = transport->rank();
  const int last = transport->size() - 1;
  std::vector<std::byte> bytes(std::size_t{1} << 20);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  if (fault == "stop" && rank == last) kill(getpid(), SIGSTOP);
  if (fault == "die" && rank == last) kill(getpid(), SIGKILL);
  if (fault == "throw" && rank == last) {
    const auto dropped = transport->receive(0, Channel::control, bytes, {"a descriptor"});
    throw_bad_data("a stranger's weights");
  }
  if (fault == "drop" && rank == last) {
    static_cast<void>(transport->receive(0, Channel::control, bytes, {"a descriptor"}));
    transport->send_now(0, Channel::control, bytes, {"rows"});
  }
  if (fault == "size") {
    if (rank == 0) transport->send_now(last, Channel::carry, std::span(bytes).first(1000), {"rows"});
    if (rank == last)
      transport->receive_now(0, Channel::carry, std::span(bytes).first(996), {"rows of step 7"});
  }
  if (fault == "large") {
    if (rank == 0) transport->send_now(last, Channel::carry, std::span(bytes).first(992), {"rows"});
    if (rank == last) transport->receive_now(0, Channel::carry, bytes, {"rows of step 8"});
  }
  if (fault == "circle")
    transport->receive_now((rank + 1) % (last + 1), Channel::carry, bytes, {"layer 9 of request 'b'"});
  else if (rank < last)  // a chain: rank 0 waits for 1, 1 for 2, …
    transport->receive_now(rank + 1, Channel::carry, bytes, {"layer 12 of request 'a7', step 301"});
  if (rank > 0) transport->send_now(rank - 1, Channel::carry, bytes, {"rows"});
}

}  // namespace
}  // namespace diffuse

int main(int argc, char** argv) {
  diffuse::MpiSession session(std::chrono::seconds(20));
  try {
    diffuse::work(session, argc > 1 ? argv[1] : "");
  } catch (const diffuse::Error& error) {
    session.abort_all(error.code(), "rank " + std::to_string(session.rank()) + " says: " + error.what());
  }
  return 0;
}

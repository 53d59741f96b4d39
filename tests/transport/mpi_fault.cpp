// One rank does what the first argument says; mpi_fault_test.sh looks at how the job ends.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "transport/collectives.hpp"
#include "transport/mpi.hpp"

namespace diffuse {
namespace {

using std::chrono::seconds;

void stop() {
  kill(getpid(), SIGSTOP);
}

// A barrier that one rank does not come to, or comes to after more than the timeout.
void meet(Transport& transport, const std::string& fault) {
  const bool last = transport.rank() == transport.size() - 1;
  if (fault == "stop-meeting" && last) stop();
  if (fault == "slow-meeting" && last) std::this_thread::sleep_for(seconds(5));
  all_gather(transport, "a colour", "the ranks' colours");
}

void work(MpiSession& session, const std::string& fault) {
  if (fault == "stop-arriving" && session.rank() == session.size() - 1) stop();
  const auto transport = make_mpi_transport(session, {seconds(2)});
  meet(*transport, fault);
  const int rank = transport->rank();
  const int last = transport->size() - 1;
  std::vector<std::byte> bytes(std::size_t{1} << 20);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  if (fault == "stop" && rank == last) stop();
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
  if (fault == "stop-parting" && rank == last) stop();
  transport->close();
  if (fault == "stop-at-the-end" && rank == last) stop();
}

// Whether this is the last of the ranks, before MPI says so.
bool launched_last() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  return rank != nullptr && size != nullptr && std::atoi(rank) + 1 == std::atoi(size);
}

}  // namespace
}  // namespace diffuse

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "";
  if (fault == "stop-starting" && diffuse::launched_last()) diffuse::stop();
  diffuse::MpiSession session(std::chrono::seconds(6));
  try {
    diffuse::work(session, fault);
  } catch (const diffuse::Error& error) {
    // As in the program: the lowest speaks for those whose waits end at once, and a launcher needs seconds to
    // end ranks of which one has stopped.
    if (session.timed_out() && session.rank() > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(4000 + 200 * session.rank()));
    session.abort_all(error.code(), "rank " + std::to_string(session.rank()) + " says: " + error.what());
  }
  return 0;
}

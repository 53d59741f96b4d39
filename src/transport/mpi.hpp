#pragma once
// Ranks as MPI processes.
//
// One thread owns MPI: it initialises, makes every call, progresses messages while the compute thread works,
// sends and hears heartbeats, and finalises. So MPI_THREAD_FUNNELED is enough, and no lock of MPI's is ever
// contended. When nothing moves it sleeps, in steps that grow to a fraction of a millisecond: ranks may
// outnumber cores. A new operation wakes it at once.
//
// Sign of life: a heartbeat says how long ago its sender, or the one its sender waits for, was last seen
// working. So the deadline of a wait passes for a process that is stopped or gone and for a circle of waits,
// and never for a peer that is merely slow, at the end of however long a chain.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "transport/transport.hpp"

namespace diffuse {

class MpiThread;

// MPI from initialisation to finalisation; one a process, made on any thread. Outlives its transports. When
// it is destroyed by an exception it ends the job on all ranks, for MPI_Finalize would wait for peers that
// wait for us.
class MpiSession {
 public:
  // Throws io where MPI cannot be initialised. `timeout` bounds the collectives below.
  explicit MpiSession(std::chrono::nanoseconds timeout = std::chrono::seconds(300));
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const;
  int size() const;
  const std::vector<std::string>& hosts() const;  // a rank each, gathered at the start
  static std::string library_version();           // of the MPI library that runs; needs no session

  // Collective: every rank calls them in the same order. They block, and throw io at the deadline. For
  // start-up and the end of a run, not for the pipeline.
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine);
  std::vector<std::string> all_gather(const std::string& mine);
  std::vector<std::byte> broadcast(std::span<const std::byte> mine, int root);  // `mine` counts on root only
  void barrier();

  // Prints the message once (on this rank's stderr; none where it is empty) and ends all ranks; the job's
  // exit status is `code`. Any thread may call it.
  [[noreturn]] void abort_all(ExitCode code, const std::string& message);

  // The same, unless this process has ended by itself after `patience`: for failures after which another
  // library may never return. The first call counts.
  void abort_all_after(std::chrono::nanoseconds patience, ExitCode code, const std::string& message);

  MpiThread& thread() { return *thread_; }  // for make_mpi_transport

 private:
  std::chrono::nanoseconds timeout_;
  int exceptions_;  // under way when the session was made
  std::unique_ptr<MpiThread> thread_;
};

// The transport over MPI, and its deadlines for those who move bytes another way beside it.
class MpiTransport : public Transport {
 public:
  // Waits for something that `peer` is to do, as this transport's own waits do: heartbeats say whom this rank
  // waits for, and an Error (io) is thrown when the peer's signs of life end, or when the transport fails.
  // `done` is asked on this thread until it returns true; it must not block, and what it throws is thrown on.
  virtual void wait_until(const std::function<bool()>& done, int peer, Channel channel,
                          const Purpose& purpose) = 0;
};

struct MpiTransportOptions {
  std::chrono::nanoseconds timeout = std::chrono::seconds(300);
};

// Collective. The transport's destructor says good-bye to all ranks and waits for theirs, so that nothing is
// under way when MPI ends (it waits at most the timeout for a silent rank); while unwinding it does not.
// One transport at a time.
std::unique_ptr<MpiTransport> make_mpi_transport(MpiSession& session, MpiTransportOptions options = {});

}  // namespace diffuse

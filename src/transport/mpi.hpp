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
  // Throws io where MPI cannot be initialised. `timeout` bounds the two steps for which MPI itself waits for
  // all ranks, its start and its end. No heartbeats run then, so the bound is flat; but nothing that takes
  // time is done there either. Where it passes, a line says so and the process ends with code 74, for MPI
  // does not come back to have an error thrown.
  explicit MpiSession(std::chrono::nanoseconds timeout = std::chrono::seconds(300));
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const;
  int size() const;
  const std::vector<std::string>& hosts() const;  // a rank each; empty until the first transport is made
  bool timed_out() const;                         // a wait of this process has run into its deadline
  static std::string library_version();           // of the MPI library that runs; needs no session

  // Prints the message once (on this rank's stderr; none where it is empty) and ends all ranks; the job's
  // exit status is `code`. Any thread may call it.
  [[noreturn]] void abort_all(ExitCode code, const std::string& message);

  // The same, unless this process has ended by itself after `patience`: for failures after which another
  // library may never return. The first call counts.
  void abort_all_after(std::chrono::nanoseconds patience, ExitCode code, const std::string& message);

  MpiThread& thread() { return *thread_; }  // for make_mpi_transport

 private:
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

  // Collective, when the work is done: says good-bye to all ranks and waits for theirs, so that nothing is
  // under way when MPI ends. Throws io where a rank's signs of life end first. Nothing is called after it.
  virtual void close() = 0;
};

struct MpiTransportOptions {
  std::chrono::nanoseconds timeout = std::chrono::seconds(300);
};

// Collective, and throws io where not all ranks come within the timeout: flat, for heartbeats begin with the
// transport, and between the start of MPI and this call a rank has nothing to do that takes time. The
// transport's destructor closes it where that was not done, and keeps what fails then to itself; while
// unwinding it does not close. One transport at a time.
std::unique_ptr<MpiTransport> make_mpi_transport(MpiSession& session, MpiTransportOptions options = {});

}  // namespace diffuse

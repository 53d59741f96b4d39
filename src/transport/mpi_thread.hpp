#pragma once
// The thread that owns MPI (see mpi.hpp); inside src/transport/ only.

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace diffuse {

// Turns a failed MPI call into an Error (io) that says what was being done.
void check_mpi(int code, const std::string& doing);

enum class Progress : std::uint8_t {
  idle,      // nothing is under way
  pending,   // something may come, and nobody waits for it
  sending,   // something is going out, and a peer may wait for it
  wanted,    // somebody waits here
  moved,     // something has just happened
  finished,  // detach me
};

// Work that the MPI thread does a piece of in each turn. A poller that throws is detached.
class MpiPoller {
 public:
  virtual ~MpiPoller() = default;
  virtual Progress poll() = 0;
  virtual void failed(std::exception_ptr error) = 0;
};

class MpiThread {
 public:
  // MPI is initialised when it returns; throws io where that fails. MPI's own start and end wait for all
  // ranks: where one of them takes longer than the timeout, the process ends with a line and code 74.
  explicit MpiThread(std::chrono::nanoseconds timeout);
  ~MpiThread();  // finalises MPI, or leaves it alone after mark_broken
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm communicator() const { return communicator_; }  // of collectives; used on the MPI thread only
  const std::vector<std::string>& hosts() const { return hosts_; }
  void set_hosts(std::vector<std::string> hosts) { hosts_ = std::move(hosts); }

  // Calls `poll` on the MPI thread until it returns true; throws what it throws, and io after the timeout,
  // with what `late` says then: which wait it was, for whom, and what for.
  void run(const std::function<bool()>& poll, std::chrono::nanoseconds timeout,
           const std::function<std::string()>& late);

  void attach(MpiPoller& poller);
  void detach(MpiPoller& poller);  // not polled any more when it returns; given up after 2 s in a call to MPI
  void wake();

  // After a failure MPI_Finalize might never return: peers may be gone, operations open.
  void mark_broken() { broken_ = true; }
  void keep(std::shared_ptr<void> buffers) {
    kept_.push_back(std::move(buffers));
  }  // MPI may still write there
  bool broken() const { return broken_; }
  void mark_timed_out() { timed_out_ = true; }
  bool timed_out() const { return timed_out_; }

  // Counts the turns; one that stands still means that MPI does not return.
  std::uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }

  // One message a process: prints it, where it is the first and not empty.
  void say_once(const std::string& message);
  [[noreturn]] void abort(int code);
  // Unless the process has ended by itself after `patience`.
  void abort_after(std::chrono::nanoseconds patience, int code, std::string message);

 private:
  struct LastResort {
    std::chrono::steady_clock::time_point when;
    int code;
    std::string message;
  };
  void main();
  void look_at_last_resort();
  void initialise();
  [[noreturn]] void end_without_mpi(const std::string& waited_for);
  Progress turn();
  void rest(Progress progress);

  const std::chrono::nanoseconds timeout_;
  int rank_ = 0;
  int size_ = 1;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::vector<std::string> hosts_;

  std::mutex mutex_;
  std::condition_variable wake_;  // for the MPI thread
  std::condition_variable told_;  // by the MPI thread
  bool woken_ = false;
  bool stop_ = false;
  bool ready_ = false;
  bool ended_ = false;
  std::exception_ptr start_error_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<MpiPoller*> pollers_;
  MpiPoller* polled_ = nullptr;  // is being polled now
  std::atomic<bool> broken_{false};
  std::atomic<bool> timed_out_{false};
  std::atomic<int> abort_code_{-1};
  std::optional<LastResort> last_resort_;
  std::atomic<bool> has_last_resort_{false};
  std::atomic<bool> said_{false};
  std::atomic<std::uint64_t> turns_{0};
  std::chrono::steady_clock::time_point last_move_{};  // the MPI thread's own
  std::thread thread_;                                 // last: it uses all of the above
};

// For how long the MPI thread has taken no turn, as a waiter sees it who asks now and then. The time for
// which the waiter did not run either counts for little: the process may have been stopped.
class MpiStall {
 public:
  explicit MpiStall(const MpiThread& thread) : thread_(thread), turns_(thread.turns()) {}
  std::chrono::nanoseconds time();

 private:
  const MpiThread& thread_;
  std::uint64_t turns_;
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
  std::chrono::nanoseconds stalled_{0};
};

}  // namespace diffuse

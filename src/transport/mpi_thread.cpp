#include "transport/mpi_thread.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/error.hpp"

namespace diffuse {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// After something moved, more is likely to come: looking again at once costs less than being woken. After
// that the thread sleeps, an eighth of the time for which nothing has moved, within these bounds: ranks may
// outnumber cores, and a core that spins here is taken from a rank that computes.
constexpr microseconds kSpin{20};
constexpr microseconds kShortestSleep{50};
constexpr microseconds kLongestWantedSleep{200};
constexpr microseconds kLongestSendingSleep{500};
constexpr microseconds kLongestPendingSleep{1000};
// Also when nothing is under way here: the library may still have pieces of finished sends to push out.
constexpr microseconds kIdleSleep{2000};

// The most that one look at the MPI thread's turns adds to its stall.
constexpr milliseconds kStallStep{100};

// How long to wait for the MPI thread itself to come back before going around it.
constexpr seconds kPatience{2};

// How long a launcher may need to end the other ranks once one has ended.
constexpr seconds kSpokenFor{3};

// This rank's number as its launcher says it, before MPI does; 0 where it says nothing.
int launched_as() {
  for (const auto* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* text = std::getenv(name);
    if (text != nullptr) return std::max(0, std::atoi(text));
  }
  return 0;
}

}  // namespace

void check_mpi(int code, const std::string& doing) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw_io("MPI failed while " + doing + ": " + std::string(text, static_cast<std::size_t>(length)));
}

MpiThread::MpiThread(std::chrono::nanoseconds timeout) : timeout_(timeout), thread_([this] { main(); }) {
  std::unique_lock lock(mutex_);
  if (!told_.wait_for(lock, timeout_, [&] { return ready_ || start_error_; }))
    end_without_mpi("MPI to start: not all ranks have come, and MPI does not say which");
  if (!start_error_) return;
  lock.unlock();
  thread_.join();
  std::rethrow_exception(start_error_);
}

MpiThread::~MpiThread() {
  {
    std::unique_lock lock(mutex_);
    stop_ = true;
    woken_ = true;
    wake_.notify_one();
    if (!told_.wait_for(lock, timeout_, [&] { return ended_; }))
      end_without_mpi("MPI to end: not all ranks have come, and MPI does not say which; the work was done");
  }
  thread_.join();
}

// The thread is in a call to MPI that does not return, so neither can it be joined nor MPI be asked to end
// the job. The launcher ends the other ranks when it sees how this one ended.
void MpiThread::end_without_mpi(const std::string& waited_for) {
  // Several ranks meet the same at once: the lowest speaks for them, and is likely to have ended them before.
  if (const int rank = launched_as(); rank > 0)
    std::this_thread::sleep_for(kSpokenFor + milliseconds(100 * std::min(rank, 16)));
  const auto amount = std::chrono::duration_cast<seconds>(timeout_).count();
  say_once("diffuse: waited " + std::to_string(amount) + " s for " + waited_for);
  _exit(static_cast<int>(ExitCode::io));
}

void MpiThread::initialise() {
  int already = 0;
  MPI_Initialized(&already);
  if (already != 0) throw_internal("MPI is already initialised in this process");
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "initialising");
  if (provided < MPI_THREAD_FUNNELED) throw_io("this MPI library does not support threads");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "choosing how errors are reported");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_), "making a communicator");
  check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "choosing how errors are reported");
  check_mpi(MPI_Comm_rank(communicator_, &rank_), "asking for the rank");
  check_mpi(MPI_Comm_size(communicator_, &size_), "asking for the number of ranks");
}

void MpiThread::main() {
  // The kernel rounds sleeps up by 50 microseconds otherwise.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  try {
    initialise();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    start_error_ = std::current_exception();
    told_.notify_all();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ready_ = true;
  }
  told_.notify_all();

  while (true) {
    const auto progress = turn();
    turns_.fetch_add(1, std::memory_order_relaxed);
    if (const int code = abort_code_.load(); code >= 0) MPI_Abort(communicator_, code);
    if (has_last_resort_) look_at_last_resort();
    if (progress == Progress::finished) break;
    rest(progress);
  }
  if (!broken_) {
    MPI_Comm_free(&communicator_);
    MPI_Finalize();
  }
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  told_.notify_all();
}

// One look at every poller; `finished` when the thread is to end.
Progress MpiThread::turn() {
  Progress all = Progress::idle;
  std::unique_lock lock(mutex_);
  if (stop_) return Progress::finished;
  const auto pollers = pollers_;
  for (auto* poller : pollers) {
    if (std::find(pollers_.begin(), pollers_.end(), poller) == pollers_.end()) continue;
    polled_ = poller;
    lock.unlock();
    Progress progress = Progress::finished;
    try {
      progress = poller->poll();
    } catch (...) {
      poller->failed(std::current_exception());
    }
    lock.lock();
    polled_ = nullptr;
    if (progress == Progress::finished) {
      std::erase(pollers_, poller);
      progress = Progress::moved;
    }
    if (std::find(pollers_.begin(), pollers_.end(), poller) == pollers_.end()) told_.notify_all();
    all = std::max(all, progress);
  }
  return all;
}

void MpiThread::rest(Progress progress) {
  const auto now = Clock::now();
  if (progress == Progress::moved) last_move_ = now;
  std::unique_lock lock(mutex_);
  if (woken_) {
    woken_ = false;
    return;
  }
  if (now - last_move_ < kSpin) {
    lock.unlock();
    std::this_thread::yield();
    return;
  }
  microseconds sleep = kIdleSleep;
  if (progress != Progress::idle) {
    const auto longest = progress == Progress::wanted    ? kLongestWantedSleep
                         : progress == Progress::sending ? kLongestSendingSleep
                                                         : kLongestPendingSleep;
    const auto quiet = std::chrono::duration_cast<microseconds>(now - last_move_) / 8;
    sleep = std::clamp(quiet, kShortestSleep, longest);
  }
  wake_.wait_for(lock, sleep, [&] { return woken_; });
  woken_ = false;
}

void MpiThread::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  wake_.notify_one();
}

void MpiThread::attach(MpiPoller& poller) {
  {
    const std::lock_guard lock(mutex_);
    pollers_.push_back(&poller);
    woken_ = true;
  }
  wake_.notify_one();
}

void MpiThread::detach(MpiPoller& poller) {
  std::unique_lock lock(mutex_);
  std::erase(pollers_, &poller);
  if (!told_.wait_for(lock, kPatience, [&] { return polled_ != &poller; })) {
    lock.unlock();
    abort(static_cast<int>(ExitCode::io));
  }
}

void MpiThread::run(const std::function<bool()>& poll, std::chrono::nanoseconds timeout,
                    const std::function<std::string()>& late) {
  if (broken_) throw_io("MPI cannot be used after a failure");
  struct Task final : MpiPoller {
    explicit Task(const std::function<bool()>& body) : poll_body(body) {}
    Progress poll() override {
      if (!poll_body()) return Progress::wanted;
      done = true;
      return Progress::finished;
    }
    void failed(std::exception_ptr given) override {
      error = std::move(given);
      done = true;
    }
    const std::function<bool()>& poll_body;
    std::atomic<bool> done{false};
    std::exception_ptr error;
  } task(poll);

  attach(task);
  {
    std::unique_lock lock(mutex_);
    const bool in_time = told_.wait_for(lock, timeout, [&] {
      return task.done && std::find(pollers_.begin(), pollers_.end(), &task) == pollers_.end() &&
             polled_ != &task;
    });
    if (!in_time) {
      lock.unlock();
      mark_timed_out();
      mark_broken();
      detach(task);
      throw_io("waited " + std::to_string(std::chrono::duration_cast<seconds>(timeout).count()) + " s for " +
               late());
    }
  }
  if (task.error) std::rethrow_exception(task.error);
}

void MpiThread::look_at_last_resort() {
  std::unique_lock lock(mutex_);
  if (Clock::now() < last_resort_->when) return;
  const auto [when, code, message] = *last_resort_;
  lock.unlock();
  say_once(message);
  MPI_Abort(communicator_, code);
}

void MpiThread::say_once(const std::string& message) {
  if (message.empty() || said_.exchange(true)) return;
  std::fprintf(stderr, "%s\n", message.c_str());
  std::fflush(stderr);
}

void MpiThread::abort_after(std::chrono::nanoseconds patience, int code, std::string message) {
  const std::lock_guard lock(mutex_);
  if (last_resort_) return;
  last_resort_ = LastResort{Clock::now() + patience, code, std::move(message)};
  has_last_resort_ = true;
}

std::chrono::nanoseconds MpiStall::time() {
  const auto now = Clock::now();
  const auto passed = now - asked_;
  asked_ = now;
  const bool turned = thread_.turns() != turns_;
  turns_ = thread_.turns();
  stalled_ = turned ? Clock::duration{0} : stalled_ + std::min<Clock::duration>(passed, kStallStep);
  return stalled_;
}

void MpiThread::abort(int code) {
  // MPI_Abort on the thread that owns MPI; from here only where that one does not come back.
  abort_code_ = code;
  wake();
  std::this_thread::sleep_for(kPatience);
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

}  // namespace diffuse

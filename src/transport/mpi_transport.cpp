#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>

#include "transport/life.hpp"
#include "transport/mpi.hpp"
#include "transport/mpi_operation.hpp"
#include "transport/mpi_start.hpp"
#include "transport/mpi_thread.hpp"

namespace diffuse {

namespace {

using Clock = LifeClock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// MPI counts in int: longer messages travel in pieces of this size, in order.
constexpr std::size_t kPiece = std::size_t{1} << 30;
constexpr int kBeatTag = kChannels;  // channels are the tags below

// A wait looks for this long before it sleeps: most answers to be had soon are there sooner.
constexpr std::chrono::microseconds kSpin{10};
// Waking up to see that the MPI thread still takes turns.
constexpr milliseconds kTick{100};
// A wait that has to ask for its end itself asks without a pause for so long, and then this often: what it
// waits for comes in tens of microseconds or takes much longer, and the core may be another rank's.
constexpr std::chrono::microseconds kAskSpin{300};
constexpr std::chrono::microseconds kAskAgain{50};

class Engine;

class MpiTicket final : public Ticket {
 public:
  MpiTicket(std::shared_ptr<Engine> engine, OperationPtr operation)
      : engine_(std::move(engine)), operation_(std::move(operation)) {}
  ~MpiTicket() override;
  bool done() override;
  void wait() override;

 private:
  std::shared_ptr<Engine> engine_;
  OperationPtr operation_;
};

// What the compute thread and the MPI thread share. Methods say which of the two calls them.
class Engine final : public MpiPoller, public std::enable_shared_from_this<Engine> {
 public:
  Engine(MpiThread& thread, MPI_Comm communicator, nanoseconds timeout)
      : thread_(thread),
        communicator_(communicator),
        timeout_(timeout),
        interval_(std::min<nanoseconds>(timeout / 10, std::chrono::seconds(5))),
        life_(static_cast<std::size_t>(thread.size())),
        beats_(life_.size()),
        beat_requests_(life_.size(), MPI_REQUEST_NULL),
        said_good_bye_(life_.size(), false) {
    const auto now = Clock::now();
    for (auto& state : life_) state.seen = now;
    last_turn_ = now;
    said_good_bye_[static_cast<std::size_t>(thread.rank())] = true;
  }

  // Compute thread.
  std::unique_ptr<Ticket> start(OperationPtr operation) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) throw Error(*failure_);
      queue_.push_back(operation);
    }
    queued_.store(true, std::memory_order_release);
    thread_.wake();
    return std::make_unique<MpiTicket>(shared_from_this(), std::move(operation));
  }

  // Compute thread.
  bool look(const Operation& operation) {
    if (operation.ended.load(std::memory_order_acquire)) return true;
    {
      const std::lock_guard lock(mutex_);
      if (failure_) throw Error(*failure_);
    }
    thread_.wake();
    return false;
  }

  // Compute thread.
  void wait(const Operation& operation) {
    const auto begin = Clock::now();
    await(operation.peer, operation.purpose, begin,
          [&] { return operation.ended.load(std::memory_order_acquire); });
    waited_[static_cast<std::size_t>(operation.channel)] += Clock::now() - begin;
  }

  // Compute thread.
  void wait_until(const std::function<bool()>& done, int peer, Channel channel, const std::string& purpose) {
    if (done()) return;
    const auto begin = Clock::now();
    begin_wait(peer, purpose, begin);
    try {
      ask_until(done, peer, purpose, begin);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      end_wait();
      throw;
    }
    const std::lock_guard lock(mutex_);
    end_wait();
    waited_[static_cast<std::size_t>(channel)] += Clock::now() - begin;
  }

  // Compute thread. The bytes of an operation under way may be gone as soon as this returns.
  void abandon() {
    thread_.mark_broken();
    thread_.detach(*this);
    thread_.keep(shared_from_this());
    fail(Error(ExitCode::io, "the transport was given up"));
  }

  // Compute thread. Returns when every rank has said good-bye, or throws.
  void close() {
    closing_ = true;
    thread_.wake();
    const auto begin = Clock::now();
    while (!closed_) {
      const int peer = awaited_good_bye_.load();
      await(peer, "its end of the work", begin, [&] { return closed_ || awaited_good_bye_ != peer; });
    }
    thread_.detach(*this);
  }

  // MPI thread.
  Progress poll() override {
    note_lost_time();
    bool moved = post_queued();
    moved = test_pieces() || moved;
    moved = hear_beats() || moved;
    send_beats();
    if (closing_) say_good_bye();
    if (closed_) return Progress::finished;
    check_deadline();
    if (moved) return Progress::moved;
    if (waiting_) return Progress::wanted;
    if (requests_.empty()) return Progress::idle;
    const bool sending =
        std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return piece.operation->send; });
    return sending ? Progress::sending : Progress::pending;
  }

  // MPI thread.
  void failed(std::exception_ptr error) override {
    thread_.mark_broken();
    try {
      std::rethrow_exception(error);
    } catch (const Error& known) {
      fail(known);
    } catch (const std::exception& other) {
      fail(Error(ExitCode::internal, other.what()));
    }
  }

  nanoseconds waited(Channel channel) const { return waited_[static_cast<std::size_t>(channel)]; }
  MPI_Comm communicator() const { return communicator_; }

 private:
  // Compute thread: sleeps until `ended`, after telling the MPI thread whom it waits for.
  template <class Ended>
  void await(int peer, const std::string& purpose, Clock::time_point begin, const Ended& ended) {
    if (ended()) return;
    begin_wait(peer, purpose, begin);
    while (!ended() && Clock::now() - begin < kSpin) std::this_thread::yield();

    std::unique_lock lock(mutex_);
    MpiStall stall(thread_);
    while (!ended() && !failure_) {
      if (changed_.wait_for(lock, kTick) == std::cv_status::no_timeout) continue;
      if (stall.time() > timeout_) give_up_on_mpi(peer, purpose);
    }
    end_wait();
    if (!ended()) throw Error(*failure_);
  }

  // Compute thread. `done` may take its time: the mutex is not held then, for heartbeats need it.
  void ask_until(const std::function<bool()>& done, int peer, const std::string& purpose,
                 Clock::time_point begin) {
    MpiStall stall(thread_);
    while (!done()) {
      if (Clock::now() - begin < kAskSpin) {
        std::this_thread::yield();
        continue;
      }
      std::unique_lock lock(mutex_);
      if (!failure_) changed_.wait_for(lock, kAskAgain);
      if (stall.time() > timeout_) give_up_on_mpi(peer, purpose);
      if (failure_) throw Error(*failure_);
    }
  }

  void begin_wait(int peer, const std::string& purpose, Clock::time_point begin) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) throw Error(*failure_);
      waiting_ = true;
      waits_for_ = peer;
      waits_since_ = begin;
      purpose_ = purpose;
    }
    thread_.wake();
  }

  // The mutex is held.
  void end_wait() {
    waiting_ = false;
    waits_for_ = -1;
  }

  // The mutex is held.
  void give_up_on_mpi(int peer, const std::string& purpose) {
    thread_.mark_timed_out();
    thread_.mark_broken();
    failure_ = Error(ExitCode::io,
                     "MPI does not return while rank " + std::to_string(peer) + " is waited for: " + purpose);
  }

  // While this process was stopped it heard nobody; that is not the peers' silence.
  void note_lost_time() {
    const auto now = Clock::now();
    const auto gap = now - last_turn_;
    last_turn_ = now;
    if (gap < interval_) return;
    for (auto& state : life_) state.seen += gap;
    const std::lock_guard lock(mutex_);
    waits_since_ += gap;
  }

  bool post_queued() {
    if (!queued_.exchange(false, std::memory_order_acquire)) return false;
    std::deque<OperationPtr> operations;
    {
      const std::lock_guard lock(mutex_);
      operations.swap(queue_);
    }
    for (const auto& operation : operations) post(operation);
    return !operations.empty();
  }

  void post(const OperationPtr& operation) {
    const int tag = static_cast<int>(operation->channel);
    std::size_t offset = 0;
    do {
      const std::size_t bytes = std::min(kPiece, operation->bytes - offset);
      MPI_Request request = MPI_REQUEST_NULL;
      std::byte* data = operation->data + offset;
      if (operation->send)
        check_mpi(
            MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, operation->peer, tag, communicator_, &request),
            "sending to rank " + std::to_string(operation->peer));
      else
        check_mpi(
            MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, operation->peer, tag, communicator_, &request),
            "receiving from rank " + std::to_string(operation->peer));
      requests_.push_back(request);
      pieces_.push_back({operation, bytes});
      ++operation->pieces;
      offset += bytes;
    } while (offset < operation->bytes);
  }

  bool test_pieces() {
    if (requests_.empty()) return false;
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int count = 0;
    const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                  indices_.data(), statuses_.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check_mpi(code, "testing messages");
    if (count == 0 || count == MPI_UNDEFINED) return false;
    for (int i = 0; i < count; ++i) {
      const auto& piece = pieces_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)])];
      auto& status = statuses_[static_cast<std::size_t>(i)];
      check_piece(piece, code == MPI_SUCCESS ? MPI_SUCCESS : status.MPI_ERROR, status);
      if (--piece.operation->pieces == 0) piece.operation->ended.store(true, std::memory_order_release);
    }
    drop_ended_pieces();
    notify();
    return true;
  }

  void check_piece(const Piece& piece, int code, const MPI_Status& status) const {
    const auto& operation = *piece.operation;
    if (operation.send) {
      check_mpi(code, "sending to rank " + std::to_string(operation.peer) + " (" + operation.purpose + ")");
      return;
    }
    int error_class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
    MPI_Count received = 0;
    MPI_Get_elements_x(&status, MPI_BYTE, &received);
    if (error_class == MPI_ERR_TRUNCATE ||
        (code == MPI_SUCCESS && received != static_cast<MPI_Count>(piece.bytes)))
      throw_internal("a message of " + std::to_string(received) + " bytes from rank " +
                     std::to_string(operation.peer) + " was expected to have " + std::to_string(piece.bytes) +
                     " bytes (" + operation.purpose + ")");
    check_mpi(code, "receiving from rank " + std::to_string(operation.peer) + " (" + operation.purpose + ")");
  }

  void drop_ended_pieces() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      if (kept != i) {
        requests_[kept] = requests_[i];
        pieces_[kept] = std::move(pieces_[i]);
      }
      ++kept;
    }
    requests_.resize(kept);
    pieces_.resize(kept);
  }

  bool hear_beats() {
    bool heard = false;
    while (good_byes_ + 1 < life_.size()) {
      if (heard_request_ == MPI_REQUEST_NULL)
        check_mpi(MPI_Irecv(&heard_, sizeof heard_, MPI_BYTE, MPI_ANY_SOURCE, kBeatTag, communicator_,
                            &heard_request_),
                  "listening to heartbeats");
      int done = 0;
      MPI_Status status;
      check_mpi(MPI_Test(&heard_request_, &done, &status), "listening to heartbeats");
      if (done == 0) return heard;
      heard = true;
      const auto peer = static_cast<std::size_t>(status.MPI_SOURCE);
      auto& state = life_[peer];
      state.seen = Clock::now();
      state.waits_for = heard_.waits_for;
      state.waits_since = state.seen - nanoseconds(heard_.waits_nanoseconds);
      if (heard_.kind == Beat::Kind::good_bye) {
        said_good_bye_[peer] = true;
        ++good_byes_;
      }
    }
    return heard;
  }

  void send_beats() {
    const auto now = Clock::now();
    if (now - last_beat_ < interval_ || good_bye_begun_) return;
    last_beat_ = now;
    Beat beat;
    {
      const std::lock_guard lock(mutex_);
      beat.waits_for = waits_for_;
      if (waits_for_ >= 0) beat.waits_nanoseconds = nanoseconds(now - waits_since_).count();
    }
    for (std::size_t peer = 0; peer < life_.size(); ++peer) send_beat(peer, beat);
  }

  // Leaves out a peer that has not taken the last one.
  bool send_beat(std::size_t peer, const Beat& beat) {
    if (static_cast<int>(peer) == thread_.rank()) return true;
    int done = 1;
    auto& request = beat_requests_[peer];
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "sending heartbeats");
    if (done == 0) return false;
    beats_[peer] = beat;
    check_mpi(MPI_Isend(&beats_[peer], sizeof(Beat), MPI_BYTE, static_cast<int>(peer), kBeatTag,
                        communicator_, &request),
              "sending heartbeats");
    return true;
  }

  void say_good_bye() {
    if (!good_bye_begun_) good_bye_to_.assign(life_.size(), false);
    good_bye_begun_ = true;
    Beat beat;
    beat.kind = Beat::Kind::good_bye;
    bool all_taken = requests_.empty();
    for (std::size_t peer = 0; peer < life_.size(); ++peer) {
      if (!good_bye_to_[peer]) good_bye_to_[peer] = send_beat(peer, beat);
      int done = 1;
      check_mpi(MPI_Test(&beat_requests_[peer], &done, MPI_STATUS_IGNORE), "saying good-bye");
      all_taken = all_taken && good_bye_to_[peer] && done != 0;
    }
    const auto silent = std::find(said_good_bye_.begin(), said_good_bye_.end(), false);
    if (silent == said_good_bye_.end()) {
      if (!all_taken) return;
      closed_ = true;
    } else {
      awaited_good_bye_ = static_cast<int>(silent - said_good_bye_.begin());
    }
    notify();
  }

  void check_deadline() {
    const auto now = Clock::now();
    std::optional<Error> error;
    {
      const std::lock_guard lock(mutex_);
      if (!waiting_) return;
      if (now - waits_since_ <= timeout_) return;
      auto& mine = life_[static_cast<std::size_t>(thread_.rank())];
      mine.seen = now;
      mine.waits_for = waits_for_;
      mine.waits_since = waits_since_;
      const auto life = last_life(waits_for_, life_);
      if (now - std::max(waits_since_, life.time) <= timeout_) return;
      error.emplace(ExitCode::io,
                    describe_silence(now, waits_since_, waits_for_, life, thread_.hosts(), purpose_));
    }
    thread_.mark_timed_out();
    throw Error(*error);
  }

  void fail(const Error& error) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = error;
    }
    changed_.notify_all();
  }

  // The empty critical section orders this after a waiter's look at what has changed.
  void notify() {
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

  MpiThread& thread_;
  const MPI_Comm communicator_;
  const nanoseconds timeout_;
  const nanoseconds interval_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<OperationPtr> queue_;
  std::atomic<bool> queued_{false};
  std::atomic<bool> waiting_{false};
  int waits_for_ = -1;
  Clock::time_point waits_since_{};
  std::string purpose_;
  std::optional<Error> failure_;
  std::atomic<bool> closing_{false};
  std::atomic<bool> closed_{false};
  std::atomic<int> awaited_good_bye_{0};
  std::array<nanoseconds, kChannels> waited_{};  // the compute thread's own

  // The MPI thread's own.
  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;  // beside requests_
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<LifeState> life_;
  Clock::time_point last_turn_{};
  Clock::time_point last_beat_{};
  Beat heard_;
  MPI_Request heard_request_ = MPI_REQUEST_NULL;
  std::vector<Beat> beats_;  // a peer, while its request is under way
  std::vector<MPI_Request> beat_requests_;
  std::vector<bool> said_good_bye_;
  std::size_t good_byes_ = 0;
  std::vector<bool> good_bye_to_;
  bool good_bye_begun_ = false;
};

MpiTicket::~MpiTicket() {
  if (!operation_->ended.load(std::memory_order_acquire)) engine_->abandon();
}
bool MpiTicket::done() {
  return engine_->look(*operation_);
}
void MpiTicket::wait() {
  engine_->wait(*operation_);
}

class EngineTransport final : public MpiTransport {
 public:
  EngineTransport(MpiThread& thread, MPI_Comm communicator, nanoseconds timeout)
      : thread_(thread),
        timeout_(timeout),
        exceptions_(std::uncaught_exceptions()),
        engine_(std::make_shared<Engine>(thread, communicator, timeout)) {
    thread_.attach(*engine_);
  }

  ~EngineTransport() override {
    if (closed_) return;
    if (thread_.broken() || std::uncaught_exceptions() > exceptions_) {
      engine_->abandon();
      return;
    }
    try {
      close();
    } catch (const std::exception&) {
      engine_->abandon();
    }
  }

  void close() override {
    engine_->close();
    MPI_Comm communicator = engine_->communicator();
    thread_.run([&] { return check_mpi(MPI_Comm_free(&communicator), "leaving a communicator"), true; },
                timeout_, [] { return std::string("MPI: leaving a communicator"); });
    closed_ = true;
  }

  int rank() const override { return thread_.rank(); }
  int size() const override { return thread_.size(); }

  std::unique_ptr<Ticket> send(int peer, Channel channel, std::span<const std::byte> bytes,
                               Purpose purpose) override {
    if (channel != Channel::meeting) bytes_sent_ += bytes.size();
    // MPI_Isend takes a pointer to const; one operation type serves both directions.
    return start(true, peer, channel, const_cast<std::byte*>(bytes.data()), bytes.size(), std::move(purpose));
  }

  std::unique_ptr<Ticket> receive(int peer, Channel channel, std::span<std::byte> bytes,
                                  Purpose purpose) override {
    return start(false, peer, channel, bytes.data(), bytes.size(), std::move(purpose));
  }

  void wait_until(const std::function<bool()>& done, int peer, Channel channel,
                  const Purpose& purpose) override {
    engine_->wait_until(done, peer, channel, purpose.what);
  }

  nanoseconds waited(Channel channel) const override { return engine_->waited(channel); }
  std::uint64_t bytes_sent() const override { return bytes_sent_; }

 private:
  std::unique_ptr<Ticket> start(bool send, int peer, Channel channel, std::byte* data, std::size_t bytes,
                                Purpose purpose) {
    if (peer < 0 || peer >= size())
      throw_internal("a message to or from rank " + std::to_string(peer) + ", of " + std::to_string(size()));
    auto operation = std::make_shared<Operation>();
    operation->send = send;
    operation->peer = peer;
    operation->channel = channel;
    operation->data = data;
    operation->bytes = bytes;
    operation->purpose = std::move(purpose.what);
    return engine_->start(std::move(operation));
  }

  MpiThread& thread_;
  nanoseconds timeout_;
  int exceptions_;
  std::shared_ptr<Engine> engine_;
  std::uint64_t bytes_sent_ = 0;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<MpiTransport> make_mpi_transport(MpiSession& session, MpiTransportOptions options) {
  auto& thread = session.thread();
  if (thread.hosts().empty()) thread.set_hosts(gather_hosts(thread, options.timeout));
  return std::make_unique<EngineTransport>(thread, new_communicator(thread, options.timeout),
                                           options.timeout);
}

}  // namespace diffuse

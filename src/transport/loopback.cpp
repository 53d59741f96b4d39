#include "transport/loopback.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "transport/life.hpp"

namespace diffuse {

namespace {

using Clock = LifeClock;

// How often a wait looks at its deadline, and at messages that are delayed.
constexpr auto kTick = std::chrono::milliseconds(2);

struct Operation {
  int peer = 0;
  Channel channel = Channel::control;
  std::span<const std::byte> outgoing;  // a send
  std::span<std::byte> incoming;        // a receive
  std::string purpose;
  Clock::time_point available{};  // a send: when it can be received
  bool done = false;
  std::optional<Error> error;
};
using OperationPtr = std::shared_ptr<Operation>;

struct Line {
  std::deque<OperationPtr> sends;
  std::deque<OperationPtr> receives;
  std::uint64_t count = 0;
};

const char* name_of(Channel channel) {
  switch (channel) {
    case Channel::control:
      return "control";
    case Channel::carry:
      return "carry";
    case Channel::result:
      return "result";
    case Channel::memory:
      return "memory";
    case Channel::meeting:
      return "meeting";
  }
  return "?";
}

}  // namespace

struct LoopbackNetwork::State {
  State(int ranks, LoopbackOptions given)
      : size(ranks),
        options(std::move(given)),
        lines(static_cast<std::size_t>(ranks * ranks * kChannels)),
        life(static_cast<std::size_t>(ranks)),
        gone(static_cast<std::size_t>(ranks), false),
        taken(static_cast<std::size_t>(ranks), false) {}

  Line& line(int from, int to, Channel channel) {
    return lines[static_cast<std::size_t>(from * size + to) * kChannels + static_cast<std::size_t>(channel)];
  }

  // Completes what is due on a line. The mutex is held.
  void match(int from, int to, Channel channel) {
    auto& queue = line(from, to, channel);
    bool moved = false;
    while (!queue.sends.empty() && !queue.receives.empty() &&
           queue.sends.front()->available <= Clock::now()) {
      auto& send = *queue.sends.front();
      auto& receive = *queue.receives.front();
      if (send.outgoing.size() != receive.incoming.size()) {
        const Error error(ExitCode::internal,
                          "a message of " + std::to_string(send.outgoing.size()) + " bytes from rank " +
                              std::to_string(from) + " to rank " + std::to_string(to) + " on " +
                              name_of(channel) + " was expected to have " +
                              std::to_string(receive.incoming.size()) + " bytes (sent: " + send.purpose +
                              "; awaited: " + receive.purpose + ")");
        send.error = error;
        receive.error = error;
      } else if (!send.outgoing.empty()) {
        std::memcpy(receive.incoming.data(), send.outgoing.data(), send.outgoing.size());
      }
      send.done = receive.done = true;
      queue.sends.pop_front();
      queue.receives.pop_front();
      moved = true;
    }
    if (moved) changed.notify_all();
  }

  void leave(int rank) {
    auto& state = life[static_cast<std::size_t>(rank)];
    if (gone[static_cast<std::size_t>(rank)]) return;
    gone[static_cast<std::size_t>(rank)] = true;
    state.seen = Clock::now();
    changed.notify_all();
  }

  LastLife life_of(int rank) {
    const auto now = Clock::now();
    for (std::size_t i = 0; i < life.size(); ++i)
      if (!gone[i]) life[i].seen = now;
    return last_life(rank, life);
  }

  const int size;
  const LoopbackOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Line> lines;
  std::vector<LifeState> life;
  std::vector<bool> gone;
  std::vector<bool> taken;
};

class LoopbackNetwork::Endpoint final : public Transport {
 public:
  Endpoint(std::shared_ptr<State> state, int rank) : state_(std::move(state)), rank_(rank) {}
  ~Endpoint() override {
    const std::lock_guard lock(state_->mutex);
    state_->leave(rank_);
  }

  int rank() const override { return rank_; }
  int size() const override { return state_->size; }

  std::unique_ptr<Ticket> send(int peer, Channel channel, std::span<const std::byte> bytes,
                               Purpose purpose) override {
    check_peer(peer);
    auto operation = std::make_shared<Operation>();
    operation->peer = peer;
    operation->channel = channel;
    operation->outgoing = bytes;
    operation->purpose = std::move(purpose.what);
    if (channel != Channel::meeting) bytes_sent_ += bytes.size();
    const std::lock_guard lock(state_->mutex);
    auto& line = state_->line(rank_, peer, channel);
    const auto index = line.count++;
    LoopbackFate fate;
    if (state_->options.fate) fate = state_->options.fate(rank_, peer, channel, index);
    if (fate.drop || state_->gone[static_cast<std::size_t>(rank_)]) {
      operation->done = true;
    } else {
      operation->available = Clock::now() + fate.delay;
      line.sends.push_back(operation);
      state_->match(rank_, peer, channel);
    }
    return std::make_unique<LoopbackTicket>(*this, std::move(operation), true);
  }

  std::unique_ptr<Ticket> receive(int peer, Channel channel, std::span<std::byte> bytes,
                                  Purpose purpose) override {
    check_peer(peer);
    auto operation = std::make_shared<Operation>();
    operation->peer = peer;
    operation->channel = channel;
    operation->incoming = bytes;
    operation->purpose = std::move(purpose.what);
    const std::lock_guard lock(state_->mutex);
    state_->line(peer, rank_, channel).receives.push_back(operation);
    state_->match(peer, rank_, channel);
    return std::make_unique<LoopbackTicket>(*this, std::move(operation), false);
  }

  std::chrono::nanoseconds waited(Channel channel) const override {
    return waited_[static_cast<std::size_t>(channel)];
  }
  std::uint64_t bytes_sent() const override { return bytes_sent_; }

 private:
  class LoopbackTicket final : public Ticket {
   public:
    LoopbackTicket(Endpoint& endpoint, OperationPtr operation, bool send)
        : state_(endpoint.state_),
          endpoint_(endpoint),
          rank_(endpoint.rank_),
          operation_(std::move(operation)),
          send_(send) {}
    ~LoopbackTicket() override {
      const std::lock_guard lock(state_->mutex);
      withdraw();
    }

    bool done() override {
      const std::lock_guard lock(state_->mutex);
      match();
      return completed();
    }

    void wait() override {
      endpoint_.wait(*operation_, [this] {
        match();
        return completed();
      });
    }

   private:
    void match() {
      if (send_)
        state_->match(rank_, operation_->peer, operation_->channel);
      else
        state_->match(operation_->peer, rank_, operation_->channel);
    }

    bool completed() {
      if (operation_->error) throw Error(*operation_->error);
      return operation_->done;
    }

    // Takes the operation out of its queue, so that nobody touches bytes that may be gone.
    void withdraw() {
      if (operation_->done) return;
      operation_->done = true;
      auto& line = send_ ? state_->line(rank_, operation_->peer, operation_->channel)
                         : state_->line(operation_->peer, rank_, operation_->channel);
      std::erase(send_ ? line.sends : line.receives, operation_);
    }

    std::shared_ptr<State> state_;
    Endpoint& endpoint_;  // used by wait only: a ticket may be dropped after it
    int rank_;
    OperationPtr operation_;
    bool send_;
  };

  void check_peer(int peer) const {
    if (peer < 0 || peer >= state_->size)
      throw_internal("a message to or from rank " + std::to_string(peer) + ", of " +
                     std::to_string(state_->size));
  }

  template <class Completed>
  void wait(Operation& operation, const Completed& completed) {
    std::unique_lock lock(state_->mutex);
    const auto begin = Clock::now();
    auto& life = state_->life[static_cast<std::size_t>(rank_)];
    life.waits_for = operation.peer;
    life.waits_since = begin;
    struct Working {  // again, however this ends
      LifeState& life;
      std::chrono::nanoseconds& total;
      Clock::time_point begin;
      ~Working() {
        life.waits_for = -1;
        total += Clock::now() - begin;
      }
    } working{life, waited_[static_cast<std::size_t>(operation.channel)], begin};

    while (!completed()) {
      if (state_->gone[static_cast<std::size_t>(rank_)])
        throw_io("rank " + std::to_string(rank_) + " has died");
      const auto peer = state_->life_of(operation.peer);
      const auto now = Clock::now();
      if (now - std::max(begin, peer.time) > state_->options.timeout)
        throw_io(describe_silence(now, begin, operation.peer, peer, {}, operation.purpose));
      state_->changed.wait_for(lock, kTick);
    }
  }

  std::shared_ptr<State> state_;
  int rank_;
  std::chrono::nanoseconds waited_[kChannels] = {};
  std::uint64_t bytes_sent_ = 0;
};

LoopbackNetwork::LoopbackNetwork(int ranks, LoopbackOptions options) {
  if (ranks < 1) throw_internal("a network without ranks");
  state_ = std::make_shared<State>(ranks, std::move(options));
}

LoopbackNetwork::~LoopbackNetwork() = default;

std::unique_ptr<Transport> LoopbackNetwork::endpoint(int rank) {
  const std::lock_guard lock(state_->mutex);
  if (rank < 0 || rank >= state_->size || state_->taken[static_cast<std::size_t>(rank)])
    throw_internal("no endpoint " + std::to_string(rank) + " to be had");
  state_->taken[static_cast<std::size_t>(rank)] = true;
  return std::make_unique<Endpoint>(state_, rank);
}

void LoopbackNetwork::die(int rank) {
  const std::lock_guard lock(state_->mutex);
  state_->leave(rank);
}

}  // namespace diffuse

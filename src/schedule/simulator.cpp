#include "schedule/simulator.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/error.hpp"

namespace diffuse {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Of a batch that is encoded between steps: about as many as an encoder has blocks.
constexpr int kPieces = 6;

const char* name(Lane lane) {
  switch (lane) {
    case Lane::control:
      return "control";
    case Lane::carry:
      return "carry";
    case Lane::result:
      return "result";
    case Lane::memory:
      return "memory";
  }
  return "?";
}

struct Message {
  std::int64_t bytes = 0;
  double arrival = 0;
  Descriptor descriptor;  // on the control lane
};

struct Line {
  std::deque<Message> messages;  // sent, not taken
  double last_arrival = 0;
  double last_taken = 0;
};

struct Operation {
  enum class Kind { decide, await, take_descriptor, receive, send, compute, encode, end } kind = Kind::decide;
  Exchange exchange;      // take_descriptor, receive, send
  Descriptor descriptor;  // send on the control lane; compute, encode
};

// What a rank encodes.
struct Batch {
  Descriptor command;
  int pieces = kPieces;         // left
  std::vector<Exchange> after;  // sends
};

// Memories that a stage receives when a sequence of theirs is admitted.
struct Expected {
  Descriptor command;
  Exchange exchange;
};

struct Rank {
  double now = 0;
  double busy = 0;
  bool ended = false;
  std::deque<Operation> program;
  std::deque<Batch> batches;
  bool piece_due = false;  // before the next operation
  std::deque<Expected> expected;
};

// An answer that rank 0 has yet to take; the oldest of each sender and lane is taken first.
struct Answer {
  std::int64_t bytes = 0;
  std::uint64_t step = 0;  // 0: digests, or memories
};

class Simulation {
 public:
  Simulation(const SimulationConfig& config, const PolicyHooks& policy, const EndOracle& ends,
             const SimulationObserver& observe)
      : config_(config),
        policy_(policy),
        ends_(ends),
        observe_(observe),
        places_{static_cast<int>(config.stages.size()), config.encoders},
        size_(places_.ranks()),
        ranks_(static_cast<std::size_t>(size_)) {
    if (places_.stages < 1) throw_internal("simulation: no stage");
    report_.peak_carries.assign(ranks_.size(), 0);
    ranks_[0].program.push_back({Operation::Kind::decide, {}, {}});
    for (int rank = 1; rank < size_; ++rank)
      if (places_.takes_part(rank)) expect_descriptor(rank);
  }

  SimulationReport run() {
    while (true) {
      int chosen = -1;
      double earliest = kNever;
      // Ties go to the highest rank, so that rank 0 decides with everything known that has happened by then.
      for (int rank = size_ - 1; rank >= 0; --rank) {
        const double ready = ready_at(rank);
        if (ready < earliest) {
          earliest = ready;
          chosen = rank;
        }
      }
      if (chosen < 0) break;
      perform(chosen, earliest);
    }
    conclude();
    return std::move(report_);
  }

 private:
  Rank& rank_at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Line& line(int from, int to, Lane lane) { return lines_[std::tuple(from, to, lane)]; }

  std::vector<Exchange> exchanges(int rank, const Descriptor& descriptor) const {
    if (config_.exchanges) return config_.exchanges(rank, descriptor);
    return expected_messages(rank, places_, descriptor, config_.sizes);
  }

  void expect_descriptor(int rank) {
    rank_at(rank).program.push_back(
        {Operation::Kind::take_descriptor, {false, 0, Lane::control, config_.sizes.descriptor}, {}});
  }

  // When the rank can go on; kNever where it waits for something that is not under way.
  double ready_at(int rank) { return encodes_now(rank) ? rank_at(rank).now : operation_ready_at(rank); }

  // Between two steps it goes on with what it encodes, and while it waits.
  bool encodes_now(int rank) {
    const Rank& state = rank_at(rank);
    return !state.batches.empty() && (state.piece_due || operation_ready_at(rank) > state.now);
  }

  double operation_ready_at(int rank) {
    const Rank& state = rank_at(rank);
    if (state.ended || state.program.empty()) return kNever;
    const Operation& operation = state.program.front();
    switch (operation.kind) {
      case Operation::Kind::decide:
      case Operation::Kind::compute:
      case Operation::Kind::encode:
      case Operation::Kind::end:
        return state.now;
      case Operation::Kind::await: {
        double arrival = kNever;
        for (const auto& [from, expected] : answers_) {
          const auto& incoming = line(from.first, 0, from.second).messages;
          if (!expected.empty() && !incoming.empty()) arrival = std::min(arrival, incoming.front().arrival);
        }
        return std::max(state.now, arrival);
      }
      case Operation::Kind::take_descriptor:
      case Operation::Kind::receive: {
        const auto& incoming = line(operation.exchange.peer, rank, operation.exchange.lane).messages;
        return incoming.empty() ? kNever : std::max(state.now, incoming.front().arrival);
      }
      case Operation::Kind::send: {
        const auto& outgoing = line(rank, operation.exchange.peer, operation.exchange.lane);
        const auto lane = operation.exchange.lane;
        const bool limited = config_.send_buffers > 0 && (lane == Lane::carry || lane == Lane::result);
        if (!limited) return state.now;
        if (outgoing.messages.size() < static_cast<std::size_t>(config_.send_buffers))
          return std::max(state.now,
                          outgoing.messages.size() + 1 == static_cast<std::size_t>(config_.send_buffers)
                              ? outgoing.last_taken
                              : 0);
        return kNever;
      }
    }
    return kNever;
  }

  void perform(int rank, double time) {
    Rank& state = rank_at(rank);
    if (encodes_now(rank)) return encode_on(rank);
    const Operation operation = state.program.front();
    state.program.pop_front();
    state.now = time;
    switch (operation.kind) {
      case Operation::Kind::decide:
        decide();
        break;
      case Operation::Kind::await:
        state.program.push_front({Operation::Kind::decide, {}, {}});
        break;
      case Operation::Kind::take_descriptor:
        obey(rank, take(rank, operation.exchange).descriptor);
        break;
      case Operation::Kind::receive:
        take(rank, operation.exchange);
        break;
      case Operation::Kind::send:
        post(rank, operation);
        break;
      case Operation::Kind::compute:
        compute(rank, operation.descriptor);
        break;
      case Operation::Kind::encode:
        state.batches.push_back({operation.descriptor, kPieces, sends_after(rank, operation.descriptor)});
        break;
      case Operation::Kind::end:
        state.ended = true;
        break;
    }
  }

  std::vector<Exchange> sends_after(int rank, const Descriptor& descriptor) const {
    auto all = exchanges(rank, descriptor);
    std::erase_if(all, [](const Exchange& exchange) { return !exchange.send || !exchange.after; });
    return all;
  }

  // A piece of the oldest batch; what comes of it is sent at once, and known to rank 0 if it is its own.
  void encode_on(int rank) {
    Rank& state = rank_at(rank);
    state.piece_due = false;
    auto& batch = state.batches.front();
    const double seconds =
        (config_.encode.step + config_.encode.row * static_cast<double>(batch.command.rows())) / kPieces;
    state.now += seconds;
    state.busy += seconds;
    if (--batch.pieces > 0) return;
    const Batch done = std::move(batch);
    state.batches.pop_front();
    for (const auto& exchange : done.after) post(rank, {Operation::Kind::send, exchange, done.command});
    if (rank != 0) return;
    memories_are_here({0});
    if (state.program.front().kind == Operation::Kind::await)
      state.program.front().kind = Operation::Kind::decide;
  }

  Message take(int rank, const Exchange& exchange) {
    auto& incoming = line(exchange.peer, rank, exchange.lane);
    Message message = incoming.messages.front();
    incoming.messages.pop_front();
    incoming.last_taken = rank_at(rank).now;
    if (message.bytes != exchange.bytes)
      problem("rank " + std::to_string(rank) + " expects " + std::to_string(exchange.bytes) + " bytes on " +
              name(exchange.lane) + " from rank " + std::to_string(exchange.peer) + " and " +
              std::to_string(message.bytes) + " come");
    return message;
  }

  void post(int rank, const Operation& operation) {
    const Exchange& exchange = operation.exchange;
    auto& outgoing = line(rank, exchange.peer, exchange.lane);
    double arrival = rank_at(rank).now + config_.hop_seconds;
    if (config_.bytes_per_second > 0)
      arrival += static_cast<double>(exchange.bytes) / config_.bytes_per_second;
    outgoing.last_arrival = std::max(outgoing.last_arrival, arrival);
    outgoing.messages.push_back({exchange.bytes, outgoing.last_arrival, operation.descriptor});
    if (exchange.lane == Lane::carry) {
      auto& peak = report_.peak_carries[static_cast<std::size_t>(rank)];
      peak = std::max(peak, static_cast<int>(outgoing.messages.size()));
    }
  }

  void compute(int rank, const Descriptor& step) {
    const auto& cost = config_.stages[static_cast<std::size_t>(rank)];
    const double seconds = cost.step + cost.row * static_cast<double>(step.rows());
    rank_at(rank).now += seconds;
    rank_at(rank).busy += seconds;
    rank_at(rank).piece_due = true;
    if (places_.stages == 1) local_answers_.push_back(step.number);
  }

  // What a stage does with a descriptor.
  void obey(int rank, const Descriptor& descriptor) {
    Rank& state = rank_at(rank);
    if (descriptor.command == Command::finish) {
      while (!state.expected.empty()) receive_expected(rank, state.expected.front().command);
      state.program.push_back({Operation::Kind::end, {}, {}});
      return;
    }
    if (descriptor.command == Command::admit && descriptor.sequence >= 0) {
      for (const auto& each : state.expected) {
        if (!encodes(each.command, descriptor.sequence)) continue;
        receive_expected(rank, Descriptor(each.command));
        break;
      }
    }
    program_work(rank, descriptor);
    expect_descriptor(rank);
  }

  static bool encodes(const Descriptor& batch, std::int32_t sequence) {
    return std::any_of(batch.entry.begin(), batch.entry.begin() + batch.entries,
                       [&](const Entry& entry) { return entry.slot == sequence; });
  }

  // A batch, and those before it of the same rank: they come in order.
  void receive_expected(int rank, const Descriptor& batch) {
    auto& expected = rank_at(rank).expected;
    for (bool found = false; !found;) {
      const auto next = std::find_if(expected.begin(), expected.end(), [&](const Expected& each) {
        return each.command.encoder == batch.encoder;
      });
      found = next->command.entry[0].slot == batch.entry[0].slot;
      rank_at(rank).program.push_back({Operation::Kind::receive, next->exchange, {}});
      expected.erase(next);
    }
  }

  void program_work(int rank, const Descriptor& descriptor) {
    Rank& state = rank_at(rank);
    const auto all = exchanges(rank, descriptor);
    const auto send = [&](bool after) {
      for (const auto& exchange : all)
        if (exchange.send && exchange.after == after)
          state.program.push_back({Operation::Kind::send, exchange, descriptor});
    };
    const bool step = descriptor.command == Command::step;
    const bool encode = descriptor.command == Command::encode;
    send(false);
    if (rank != 0) {
      bool taken = false;  // the descriptor was
      for (const auto& exchange : all) {
        if (exchange.send) continue;
        if (exchange.later) {
          state.expected.push_back({descriptor, exchange});
          continue;
        }
        if (taken) state.program.push_back({Operation::Kind::receive, exchange, descriptor});
        taken = true;
      }
    }
    if (encode && rank == descriptor.encoder)
      state.program.push_back({Operation::Kind::encode, {}, descriptor});
    if (step) state.program.push_back({Operation::Kind::compute, {}, descriptor});
    if (!encode) send(true);
    if (rank == 0)
      for (const auto& exchange : all)
        if (!exchange.send)
          answers_[{exchange.peer, exchange.lane}].push_back({exchange.bytes, step ? descriptor.number : 0});
  }

  void memories_are_here(const Encoded& encoded) {
    if (observe_.encoded) observe_.encoded(encoded);
    policy_.encoded(encoded);
  }

  void decide() {
    take_answers();
    Rank& driver = rank_at(0);
    if (policy_.finished()) {
      if (std::all_of(answers_.begin(), answers_.end(), [](const auto& from) { return from.second.empty(); }))
        finish();
      else
        driver.program.push_back({Operation::Kind::await, {}, {}});
      return;
    }
    const auto actions = policy_.next();
    for (const auto& action : actions) {
      if (observe_.action) observe_.action(action);
      program_work(0, descriptor_of(action));
    }
    if (actions.empty() && !policy_.finished()) {
      if (open_.empty() && !awaits_memories()) {
        problem("the policy waits while nothing is in flight");
        finish();
        return;
      }
      driver.program.push_back({Operation::Kind::await, {}, {}});
    } else {
      driver.program.push_back({Operation::Kind::decide, {}, {}});
    }
  }

  bool awaits_memories() {
    return !rank_at(0).batches.empty() || std::any_of(answers_.begin(), answers_.end(), [](const auto& from) {
      return from.first.second == Lane::memory && !from.second.empty();
    });
  }

  Descriptor descriptor_of(const Action& action) {
    Descriptor descriptor;
    if (const auto* encode = std::get_if<Encode>(&action)) {
      descriptor.command = Command::encode;
      descriptor.encoder = encode->encoder;
      for (const auto sequence : encode->sequences) {
        // An id a row; frames of features would be some hundred elements a row.
        const auto rows = policy_.memory_rows(sequence);
        auto& entry = descriptor.entry[descriptor.entries++];
        entry.slot = static_cast<std::int32_t>(sequence);
        entry.rows = static_cast<std::int32_t>(rows);
        entry.first_position = rows;
      }
    } else if (const auto* admit = std::get_if<Admit>(&action)) {
      descriptor.command = Command::admit;
      descriptor.slot = admit->slot;
      if (admit->memory_from < 0) descriptor.sequence = static_cast<std::int32_t>(admit->sequence);
      owners_[admit->slot] = admit->sequence;
      positions_[admit->slot] = 0;
    } else if (const auto* release = std::get_if<Release>(&action)) {
      descriptor.command = Command::release;
      descriptor.slot = release->slot;
      descriptor.trace = config_.trace ? 1 : 0;
      descriptor.reserved_tokens = positions_[release->slot];
    } else {
      descriptor = std::get<Run>(action).step;
      open_step(descriptor);
    }
    return descriptor;
  }

  void open_step(const Descriptor& step) {
    ++report_.steps;
    report_.rows += step.rows();
    report_.samples += step.samples();
    std::vector<std::size_t> sampling;
    for (std::size_t i = 0; i < step.entries; ++i) {
      const auto& entry = step.entry[i];
      positions_[entry.slot] = entry.first_position + entry.rows;
      if (entry.sample != 0) sampling.push_back(owners_[entry.slot]);
    }
    open_.push_back({step.number, std::move(sampling)});
  }

  void take_answers() {
    while (!local_answers_.empty()) {
      answer_policy(local_answers_.front());
      local_answers_.pop_front();
    }
    const double now = rank_at(0).now;
    for (auto& [from, expected] : answers_) {
      const auto [source, lane] = from;
      auto& incoming = line(source, 0, lane);
      while (!expected.empty() && !incoming.messages.empty() && incoming.messages.front().arrival <= now) {
        take(0, {false, source, lane, expected.front().bytes});
        if (expected.front().step != 0) answer_policy(expected.front().step);
        if (lane == Lane::memory) memories_are_here({source});
        expected.pop_front();
      }
    }
  }

  void answer_policy(std::uint64_t number) {
    std::vector<std::uint8_t> flags;
    if (!open_.empty() && open_.front().number == number) {
      std::optional<std::size_t> before;
      for (const auto sequence : open_.front().sampling) {
        // The lanes of a sequence end together.
        const bool lane = std::exchange(before, sequence) == sequence;
        flags.push_back(lane ? flags.back()
                             : static_cast<std::uint8_t>(ends_(sequence, ++sampled_[sequence])));
      }
    }
    if (!open_.empty()) open_.pop_front();
    const StepDone done{number, flags, rank_at(0).now};
    if (observe_.result) observe_.result(done);
    policy_.on(done);
  }

  void finish() {
    Descriptor descriptor;
    descriptor.command = Command::finish;
    for (const auto& exchange : exchanges(0, descriptor))
      rank_at(0).program.push_back({Operation::Kind::send, exchange, descriptor});
  }

  std::optional<int> waits_for(int rank) {
    Rank& state = rank_at(rank);
    if (state.ended || state.program.empty()) return std::nullopt;
    const Operation& operation = state.program.front();
    if (operation.kind != Operation::Kind::await) return operation.exchange.peer;
    std::optional<int> last;
    for (const auto& [from, expected] : answers_)
      if (!expected.empty()) last = from.first;
    return last;
  }

  std::string blocked(int rank) {
    const Operation& operation = rank_at(rank).program.front();
    const std::string peer = waits_for(rank) ? std::to_string(*waits_for(rank)) : "none";
    if (operation.kind == Operation::Kind::await) return "rank 0 waits for an answer of rank " + peer;
    const bool send = operation.kind == Operation::Kind::send;
    return "rank " + std::to_string(rank) + (send ? " cannot send " : " waits for ") +
           name(operation.exchange.lane) + (send ? " to rank " : " from rank ") + peer;
  }

  void conclude() {
    std::string circle;
    for (int rank = 0; rank < size_; ++rank)
      if (!rank_at(rank).ended && !rank_at(rank).program.empty())
        circle += (circle.empty() ? "" : "; ") + blocked(rank);
    if (!circle.empty()) problem("deadlock: " + circle);
    for (const auto& [key, left] : lines_) {
      const auto& [from, to, lane] = key;
      if (!left.messages.empty())
        problem(std::to_string(left.messages.size()) + " messages on " + name(lane) + " from rank " +
                std::to_string(from) + " to rank " + std::to_string(to) + " are never received");
    }
    for (const auto& rank : ranks_) report_.makespan = std::max(report_.makespan, rank.now);
    for (const auto& rank : ranks_)
      report_.utilisation.push_back(report_.makespan > 0 ? rank.busy / report_.makespan : 0);
  }

  void problem(std::string text) { report_.problems.push_back(std::move(text)); }

  struct OpenStep {
    std::uint64_t number = 0;
    std::vector<std::size_t> sampling;
  };

  const SimulationConfig& config_;
  const PolicyHooks& policy_;
  const EndOracle& ends_;
  const SimulationObserver& observe_;
  Places places_;
  int size_;
  std::vector<Rank> ranks_;
  std::map<std::tuple<int, int, Lane>, Line> lines_;
  std::map<std::pair<int, Lane>, std::deque<Answer>> answers_;
  std::deque<std::uint64_t> local_answers_;  // of one stage alone
  std::deque<OpenStep> open_;
  std::map<std::int32_t, std::size_t> owners_;
  std::map<std::int32_t, std::int64_t> positions_;  // of a slot
  std::map<std::size_t, std::int64_t> sampled_;
  SimulationReport report_;
};

}  // namespace

PolicyHooks bind_policy(AutoregressivePolicy& policy) {
  return {[&policy] { return policy.next(); }, [&policy](const StepDone& done) { policy.on(done); },
          [&policy] { return policy.finished(); }, [&policy](const Encoded& encoded) { policy.on(encoded); },
          [&policy](std::size_t sequence) { return policy.memory_rows(sequence); }};
}

SimulationReport simulate(const SimulationConfig& config, const PolicyHooks& policy, const EndOracle& ends,
                          const SimulationObserver& observe) {
  return Simulation(config, policy, ends, observe).run();
}

}  // namespace diffuse

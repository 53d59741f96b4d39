#include "pipeline/driver.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include "core/error.hpp"
#include "pipeline/commander.hpp"
#include "pipeline/describe.hpp"
#include "pipeline/encoder_stage.hpp"

namespace diffuse {
namespace {

using Clock = std::chrono::steady_clock;

class Driver {
 public:
  Driver(Stage& stage, Transport& transport, const ScheduleConfig& schedule,
         const std::vector<Sequence>& sequences, const DriverPlan& plan, const DriverEvents& events)
      : stage_(stage),
        transport_(transport),
        plan_(plan),
        commander_(transport, plan.layers),
        encoders_(schedule.encoders),
        events_(events),
        stages_(schedule.stages),
        sequences_(sequences.begin(), sequences.end()),
        policy_(schedule, needs_of(sequences)),
        states_(sequences.size()) {
    slots_.resize(static_cast<std::size_t>(std::max(policy_.slots(), 1)));
    owner_.resize(slots_.size());
  }

  DriverReport run() {
    const auto start = Clock::now();
    if (!policy_.unfit().empty())
      throw_internal("a sequence that does not fit the key-value memory reached the pipeline");
    bool stopping = false;
    std::int32_t rounds = 0;  // since a block was encoded
    while (!policy_.finished()) {
      if (!stopping && events_.stop && events_.stop()) {
        stopping = true;
        report_.stopped = true;
        policy_.cancel_running();
      }
      while (!flights_.empty() && flights_.front().ready()) land();
      for (const auto encoder : stage_.memories().arrived()) policy_.on(Encoded{encoder});
      if (!stopping) take_more();
      const auto actions = policy_.next();
      for (const auto& action : actions) std::visit([this](const auto& a) { carry_out(a); }, action);
      collect(false);
      if (stage_.encoding()) {
        // A step of each group goes before the next block: neither keeps the other waiting for long.
        if (!actions.empty() && ++rounds < policy_.groups()) continue;
        rounds = 0;
        // To its end where nobody else could work meanwhile.
        do {
          stage_.encode_on();
        } while (stages_ == 1 && stage_.encoding());
        continue;
      }
      if (!stopping && policy_.finished()) {
        // What is on its way from the stages may make more to do.
        collect(true);
        take_more();
      }
      if (!actions.empty() || policy_.finished()) continue;
      if (!flights_.empty()) {
        land();
      } else if (!stage_.memories().await()) {
        throw_internal("the schedule waits for a step, but none is under way");
      }
    }
    collect(true);
    finish();
    report_.groups = policy_.groups();
    report_.wall_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
    return std::move(report_);
  }

 private:
  struct State {
    std::int64_t issued = 0;                          // positions sent into the pipeline
    std::vector<std::int32_t> generated;              // of one lane; [rows, codebooks]
    std::vector<Decision::Lane> lanes;                // of several: what they go on with
    std::vector<std::int32_t> slots;                  // one a lane
    std::size_t lanes_left = 0;                       // that are not collected yet
    std::vector<std::vector<std::uint64_t>> digests;  // of the collected ones
  };
  struct Owner {
    std::size_t sequence = 0;
    std::int32_t lane = 0;
  };
  struct Flight {
    Descriptor step;
    std::vector<std::byte> answer;
    std::unique_ptr<Ticket> ticket;  // none where this rank sampled
    bool ready() const { return !ticket || ticket->done(); }
  };
  // Of a lane: digests, and what was watched, on their way from the stages.
  struct Leaving {
    std::size_t sequence = 0;
    std::int64_t positions = 0;
    std::vector<std::vector<float>> watched;  // outlives the tickets below, which bring it too
    GatheredDigests digests;
  };

  static std::vector<SequenceNeed> needs_of(const std::vector<Sequence>& sequences) {
    std::vector<SequenceNeed> needs;
    for (const auto& sequence : sequences) needs.push_back(need_of(sequence));
    return needs;
  }

  // Sequences that have come up; those that follow another are admitted where that one was.
  void take_more() {
    if (!events_.more) return;
    for (auto& sequence : events_.more()) {
      grown_ = true;
      const auto need = need_of(sequence);
      if (sequence.follows) {
        policy_.follow(*sequence.follows, need);
      } else {
        policy_.add(need);
      }
      sequences_.push_back(std::move(sequence));
      states_.emplace_back();
    }
  }

  void tell(const Descriptor& descriptor) {
    commander_.tell(descriptor, descriptor.command == Command::encode
                                    ? describe_batch(descriptor)
                                    : describe_requests(descriptor, slots_));
  }

  void carry_out(const Encode& encode) {
    Descriptor command;
    command.command = Command::encode;
    command.encoder = encode.encoder;
    std::vector<std::shared_ptr<const EncoderInput>> inputs;
    for (const auto index : encode.sequences) {
      const auto& sequence = sequences_[index];
      const auto& input = inputs.emplace_back(sequence.input());
      auto& entry = command.entry[command.entries++];
      entry.slot = static_cast<std::int32_t>(index);
      entry.token = static_cast<std::int32_t>(sequence.sampling.request);
      entry.rows = static_cast<std::int32_t>(sequence.memory_rows);
      entry.first_position = static_cast<std::int64_t>(input->ids.size() + input->frames.size());
    }
    report_.encoded_rows += static_cast<std::uint64_t>(command.rows());
    tell(command);
    if (encode.encoder >= stages_)
      commander_.tell_also(encode.encoder, "which encodes, " + describe_batch(command));
    if (encode.encoder != 0)
      commander_.send_behind(encode.encoder, flattened(inputs),
                             "a batch to encode, " + describe_batch(command));
    stage_.encode(command, std::move(inputs));
  }

  void carry_out(const Admit& admit) {
    const auto& sequence = sequences_[admit.sequence];
    auto& state = states_[admit.sequence];
    state.slots.push_back(admit.slot);
    ++state.lanes_left;
    Descriptor command;
    command.command = Command::admit;
    command.slot = admit.slot;
    command.prompt_tokens = prompt_rows(sequence);
    command.reserved_tokens = command.prompt_tokens + sequence.max_new_tokens;
    command.memory_rows = admit.no_memory ? 1 : sequence.memory_rows;
    command.memory_from = admit.memory_from;
    command.no_memory = admit.no_memory ? 1 : 0;
    command.sequence = static_cast<std::int32_t>(admit.sequence);
    command.sampling = sequence.sampling;
    command.sampling.sample += admit.lane;
    const auto slot = static_cast<std::size_t>(admit.slot);
    slots_[slot] = command.sampling;
    owner_[slot] = {admit.sequence, admit.lane};
    tell(command);
    auto history = sequence.prompt;
    history.insert(history.end(), sequence.rules.begin(), sequence.rules.end());
    if (stages_ > 1 && sequence.sampling.reads_history()) {
      const auto bytes = std::as_bytes(std::span(history));
      commander_.send_behind(stages_ - 1, {bytes.begin(), bytes.end()},
                             "the prompt of a request whose tokens depend on it");
    }
    stage_.admit(command, history);
  }

  void carry_out(const Run& run) {
    auto step = run.step;
    std::vector<std::int32_t> ids;
    for (int i = 0; i < step.entries; ++i) {
      auto& entry = step.entry[static_cast<std::size_t>(i)];
      const auto [index, lane] = owner_[static_cast<std::size_t>(entry.slot)];
      const auto& sequence = sequences_[index];
      const auto& prompt = sequence.prompt;
      auto& state = states_[index];
      if (moves_lanes(sequence) && entry.first_position >= prompt_rows(sequence)) {
        const auto& next = state.lanes.at(static_cast<std::size_t>(lane));
        entry.token = next.token;
        if (next.from != lane) entry.from = state.slots.at(static_cast<std::size_t>(next.from));
        ids.push_back(next.token);
        state.issued = entry.first_position + entry.rows;
        continue;
      }
      if (entry.sample != 0 && moves_lanes(sequence) && sequence.sampling.candidates == 0)
        entry.sample = static_cast<std::uint8_t>(sequence.lanes);
      const auto books = prompt.size() / static_cast<std::size_t>(prompt_rows(sequence));
      const auto first = static_cast<std::size_t>(entry.first_position) * books;
      for (auto at = first; at < first + static_cast<std::size_t>(entry.rows) * books; ++at)
        ids.push_back(at < prompt.size() ? prompt[at] : state.generated.at(at - prompt.size()));
      if (lane == 0) {
        const auto left = std::max<std::int64_t>(prompt_rows(sequence) - entry.first_position, 0);
        report_.prompt_rows += static_cast<std::uint64_t>(std::min<std::int64_t>(left, entry.rows));
      }
      state.issued = entry.first_position + entry.rows;
    }
    tell(step);
    auto& flight = flights_.emplace_back(Flight{step, {}, nullptr});
    if (stages_ > 1) {
      flight.answer.resize(answer_bytes(step, slots_));
      flight.ticket = transport_.receive(stages_ - 1, Channel::result, flight.answer,
                                         {"the answer of layer " + std::to_string(commander_.last_layer()) +
                                          ", " + describe_requests(step, slots_)});
      stage_.run(step, std::as_bytes(std::span(ids)));
    } else {
      flight.answer = stage_.run(step, std::as_bytes(std::span(ids)));
    }
    ++report_.steps;
  }

  void carry_out(const Release& release) {
    const auto& sequence = sequences_[release.sequence];
    Descriptor command;
    command.command = Command::release;
    command.trace = plan_.trace ? 1 : 0;
    command.keep_memory = release.keep_memory ? 1 : 0;
    command.watched = sequence.sampling.watched_ids > 0 ? 1 : 0;
    command.slot = release.slot;
    command.reserved_tokens = states_[release.sequence].issued;
    tell(command);
    auto& leaving = leaving_.emplace_back();
    leaving.sequence = release.sequence;
    leaving.positions = command.reserved_tokens;
    auto left = stage_.release(command);
    leaving.digests.parts.push_back(std::move(left.digests));
    leaving.watched.push_back(std::move(left.watched));
    const auto of_request = " of request " + std::to_string(sequence.sampling.request);
    for (int peer = 1; peer < stages_; ++peer) {
      if (sequence.sampling.watched_ids > 0) {
        auto& part = leaving.watched.emplace_back(watched_floats(sequence, peer));
        leaving.digests.tickets.push_back(transport_.receive(peer, Channel::result,
                                                             std::as_writable_bytes(std::span(part)),
                                                             {"what was watched" + of_request}));
      }
      if (!plan_.trace) continue;
      auto& part = leaving.digests.parts.emplace_back(
          static_cast<std::size_t>(commander_.layers_of(peer) * command.reserved_tokens));
      leaving.digests.tickets.push_back(transport_.receive(
          peer, Channel::result, std::as_writable_bytes(std::span(part)), {"digests" + of_request}));
    }
  }

  // Lanes that go on with tokens of their own, one from another.
  static bool moves_lanes(const Sequence& sequence) { return sequence.lanes > 1 && !sequence.guided; }

  bool watches(int stage, const WatchedHead& head) const {
    return head.layer >= commander_.first_layer_of(stage) &&
           head.layer < commander_.first_layer_of(stage + 1);
  }

  std::size_t watched_floats(const Sequence& sequence, int stage) const {
    const auto heads = std::count_if(plan_.watched.begin(), plan_.watched.end(),
                                     [&](const auto& head) { return watches(stage, head); });
    const auto rows = sequence.prompt.size();
    return static_cast<std::size_t>(heads) * rows * static_cast<std::size_t>(sequence.memory_rows) +
           (stage == stages_ - 1 ? rows : 0);
  }

  // The stages' parts, head by head in the order that was asked for.
  Watched joined(const Leaving& leaving) const {
    const auto& sequence = sequences_[leaving.sequence];
    const auto rows = static_cast<std::ptrdiff_t>(sequence.prompt.size());
    const auto each = rows * static_cast<std::ptrdiff_t>(sequence.memory_rows);
    Watched watched;
    std::vector<std::ptrdiff_t> taken(static_cast<std::size_t>(stages_));
    for (const auto& head : plan_.watched) {
      for (int stage = 0; stage < stages_; ++stage) {
        if (!watches(stage, head)) continue;
        auto& at = taken[static_cast<std::size_t>(stage)];
        const auto from = leaving.watched[static_cast<std::size_t>(stage)].begin() + at;
        watched.weights.insert(watched.weights.end(), from, from + each);
        at += each;
      }
    }
    const auto& last = leaving.watched.back();
    watched.likely.assign(last.end() - rows, last.end());
    return watched;
  }

  // Takes in the oldest step's answer.
  void land() {
    auto flight = std::move(flights_.front());
    flights_.pop_front();
    if (flight.ticket) flight.ticket->wait();
    const auto tokens = read_answer(flight.answer, flight.step, slots_);
    std::vector<std::uint8_t> finished;
    std::size_t next = 0;
    for (int i = 0; i < flight.step.entries; ++i) {
      const auto& entry = flight.step.entry[static_cast<std::size_t>(i)];
      if (entry.sample == 0) continue;
      const auto index = owner_[static_cast<std::size_t>(entry.slot)].sequence;
      // The entries of its other lanes stand behind the first.
      std::size_t entries = 1;
      std::size_t count = entry.sample;
      while (i + 1 < flight.step.entries) {
        const auto& other = flight.step.entry[static_cast<std::size_t>(i) + 1];
        if (other.sample == 0 || owner_[static_cast<std::size_t>(other.slot)].sequence != index) break;
        count += other.sample;
        ++entries;
        ++i;
      }
      const auto chosen = std::span(tokens).subspan(next, count);
      next += count;
      auto& state = states_[index];
      const bool codes = sequences_[index].sampling.codebooks > 0;
      if (!codes && sequences_[index].lanes == 1) state.generated.push_back(chosen.front().token.id);
      auto decision = events_.on_chosen(index, chosen);
      if (codes) state.generated.insert(state.generated.end(), decision.codes.begin(), decision.codes.end());
      finished.insert(finished.end(), entries, decision.ended ? 1 : 0);
      state.lanes = std::move(decision.lanes);
      report_.sampled += entries;
    }
    policy_.on({flight.step.number, finished,
                std::chrono::duration<double>(Clock::now().time_since_epoch()).count()});
    if (events_.progress) {
      events_.progress(
          std::to_string(done_) +
          (grown_ ? " passes done, " : "/" + std::to_string(sequences_.size()) + " samples done, ") +
          std::to_string(policy_.admitted()) + " running, " + std::to_string(report_.sampled) + " tokens");
    }
  }

  // Reports sequences whose digests are all here, in the order in which they left.
  void collect(bool all) {
    while (!leaving_.empty()) {
      auto& leaving = leaving_.front();
      if (!leaving.digests.here(all)) return;
      auto& state = states_[leaving.sequence];
      state.digests.push_back(leaving.digests.joined());
      if (sequences_[leaving.sequence].sampling.watched_ids > 0 && events_.on_watched)
        events_.on_watched(leaving.sequence, joined(leaving));
      if (--state.lanes_left == 0) {
        ++done_;
        const auto lanes = static_cast<std::int64_t>(state.digests.size());
        events_.on_done(leaving.sequence, side_by_side(std::exchange(state.digests, {}), leaving.positions),
                        lanes * leaving.positions);
      }
      leaving_.pop_front();
    }
  }

  void finish() {
    std::vector<std::int32_t> without_layers;
    std::ranges::copy_if(encoders_, std::back_inserter(without_layers),
                         [&](std::int32_t rank) { return rank >= stages_; });
    report_.stages = commander_.finish(stage_, without_layers);
    for (const auto& stage : report_.stages) report_.encode_ns += stage.encode_ns;
    report_.stages.resize(static_cast<std::size_t>(stages_));
  }

  Stage& stage_;
  Transport& transport_;
  const DriverPlan& plan_;
  Commander commander_;
  const std::vector<std::int32_t> encoders_;
  const DriverEvents& events_;
  int stages_;
  std::deque<Sequence> sequences_;
  AutoregressivePolicy policy_;
  std::deque<State> states_;
  std::vector<SampleSpec> slots_;
  std::vector<Owner> owner_;  // of each slot
  std::deque<Flight> flights_;
  std::deque<Leaving> leaving_;
  std::size_t done_ = 0;
  bool grown_ = false;  // sequences came up: how many there will be is not known
  DriverReport report_;
};

}  // namespace

Decision go_on(std::span<const std::int32_t> tokens, std::span<const std::size_t> sources,
               std::int64_t lanes) {
  Decision decision;
  for (std::size_t lane = 0; lane < static_cast<std::size_t>(lanes); ++lane) {
    const auto beam = lane < tokens.size() ? lane : 0;
    decision.lanes.push_back({tokens[beam], static_cast<std::int32_t>(sources[beam])});
  }
  return decision;
}

std::int64_t prompt_rows(const Sequence& sequence) {
  return static_cast<std::int64_t>(sequence.prompt.size()) / std::max(sequence.sampling.codebooks, 1);
}

SequenceNeed need_of(const Sequence& sequence) {
  return {.prompt_tokens = prompt_rows(sequence),
          .max_new_tokens = sequence.max_new_tokens,
          .memory_rows = sequence.memory_rows,
          .lanes = sequence.lanes,
          .guided = sequence.guided,
          .most_lanes = sequence.most_lanes,
          .most_tokens = sequence.most_tokens};
}

DriverReport drive(Stage& stage, Transport& transport, const ScheduleConfig& schedule,
                   const std::vector<Sequence>& sequences, const DriverPlan& plan,
                   const DriverEvents& events) {
  return Driver(stage, transport, schedule, sequences, plan, events).run();
}

}  // namespace diffuse

#include "pipeline/driver.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "core/error.hpp"

namespace diffuse {
namespace {

using Clock = std::chrono::steady_clock;

class Driver {
 public:
  Driver(Stage& stage, Transport& transport, const ScheduleConfig& schedule,
         const std::vector<Sequence>& sequences, const std::vector<std::int64_t>& layers,
         const EncoderPlace& encoder, bool trace, const DriverEvents& events)
      : stage_(stage),
        transport_(transport),
        sequences_(sequences),
        layers_(layers),
        encoder_(encoder),
        trace_(trace),
        events_(events),
        stages_(schedule.stages),
        policy_(schedule, needs_of(sequences)),
        states_(sequences.size()) {
    last_layer_ =
        std::accumulate(layers.begin(), layers.end(), std::int64_t{0}) - 2;  // the front counts as one
    slots_.resize(static_cast<std::size_t>(std::max(policy_.slots(), 1)));
    owner_.resize(slots_.size());
  }

  DriverReport run() {
    const auto start = Clock::now();
    if (!policy_.unfit().empty())
      throw_internal("a sequence that does not fit the key-value memory reached the pipeline");
    bool stopping = false;
    while (!policy_.finished()) {
      if (!stopping && events_.stop && events_.stop()) {
        stopping = true;
        report_.stopped = true;
        policy_.cancel_running();
      }
      while (!flights_.empty() && flights_.front().ready()) land();
      if (encoding_ && encoding_->received->done()) take_memories();
      const auto actions = policy_.next();
      for (const auto& action : actions) std::visit([this](const auto& a) { carry_out(a); }, action);
      collect(false);
      if (!actions.empty() || policy_.finished()) continue;
      if (!flights_.empty()) {
        land();
      } else if (encoding_) {
        take_memories();
      } else {
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
    std::int64_t issued = 0;  // positions sent into the pipeline
    std::vector<std::int32_t> generated;
  };
  struct Flight {
    Descriptor step;
    std::vector<std::byte> answer;
    std::unique_ptr<Ticket> ticket;  // none where this rank sampled
    bool ready() const { return !ticket || ticket->done(); }
  };
  struct Told {
    Descriptor descriptor;
    std::vector<std::unique_ptr<Ticket>> tickets;
    std::vector<std::byte> more;  // what follows it
  };
  // A batch that a rank of its own encodes.
  struct Encoding {
    std::vector<std::size_t> sequences;
    std::vector<float> rows;
    std::unique_ptr<Ticket> received;
  };
  // Digests on their way from the stages.
  struct Leaving {
    std::size_t sequence = 0;
    std::int64_t positions = 0;
    std::vector<std::vector<std::uint64_t>> parts;
    std::vector<std::unique_ptr<Ticket>> tickets;
  };

  static std::vector<SequenceNeed> needs_of(const std::vector<Sequence>& sequences) {
    std::vector<SequenceNeed> needs;
    for (const auto& sequence : sequences)
      needs.push_back(
          {static_cast<std::int64_t>(sequence.prompt.size()), sequence.max_new_tokens, sequence.memory_rows});
    return needs;
  }

  std::int64_t first_layer_of(int stage) const {
    const auto before = std::accumulate(layers_.begin(), layers_.begin() + stage, std::int64_t{0});
    return stage == 0 ? 0 : before - 1;  // the front counts as one
  }

  void tell(const Descriptor& descriptor) {
    while (!told_.empty() && std::all_of(told_.front().tickets.begin(), told_.front().tickets.end(),
                                         [](const auto& t) { return t->done(); })) {
      told_.pop_front();
    }
    auto& told = told_.emplace_back(Told{descriptor, {}, {}});
    for (int peer = 1; peer < stages_; ++peer) {
      told.tickets.push_back(
          transport_.send(peer, Channel::control, std::as_bytes(std::span(&told.descriptor, 1)),
                          {"a descriptor for layer " + std::to_string(first_layer_of(peer)) + ", " +
                           describe_requests(descriptor, slots_)}));
    }
  }

  bool encodes_elsewhere() const { return encoder_.rank >= stages_; }

  void tell_encoder(const Descriptor& descriptor) {
    if (!encodes_elsewhere()) return;
    auto& told = told_.back();
    told.tickets.push_back(transport_.send(encoder_.rank, Channel::control,
                                           std::as_bytes(std::span(&told.descriptor, 1)),
                                           {"a batch to encode, of " + std::to_string(descriptor.entries)}));
  }

  void carry_out(const Encode& encode) {
    Descriptor command;
    command.command = Command::encode;
    std::vector<const EncoderInput*> inputs;
    for (const auto index : encode.sequences) {
      const auto& sequence = sequences_[index];
      const auto& input = *sequence.input;
      auto& entry = command.entry[command.entries++];
      entry.rows = static_cast<std::int32_t>(sequence.memory_rows);
      entry.first_position = static_cast<std::int64_t>(input.ids.size() + input.frames.size());
      inputs.push_back(&input);
    }
    tell(command);
    report_.encoded_rows += static_cast<std::uint64_t>(command.rows());
    auto& told = told_.back();
    if (encodes_elsewhere()) {
      tell_encoder(command);
      told.more = flattened(inputs);
      told.tickets.push_back(
          transport_.send(encoder_.rank, Channel::control, told.more, {"a batch to encode"}));
      auto& encoding = encoding_.emplace();
      encoding.sequences = encode.sequences;
      encoding.rows.resize(static_cast<std::size_t>(command.rows() * encoder_.hidden));
      encoding.received =
          transport_.receive(encoder_.rank, Channel::result, std::as_writable_bytes(std::span(encoding.rows)),
                             {"what rank " + std::to_string(encoder_.rank) + " encodes"});
      return;
    }
    const auto start = Clock::now();
    const auto memories = encoder_.runner->encode(inputs);
    report_.encode_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
    for (std::size_t i = 0; i < memories.size(); ++i) {
      if (stages_ > 1) {
        const auto bytes = std::as_bytes(std::span(memories[i]));
        told.more.insert(told.more.end(), bytes.begin(), bytes.end());
      }
      memories_[encode.sequences[i]] = memories[i];
    }
    for (int peer = 1; peer < stages_; ++peer) {
      told.tickets.push_back(transport_.send(peer, Channel::control, told.more,
                                             {"memories for layer " + std::to_string(first_layer_of(peer))}));
    }
    policy_.on(Encoded{});
  }

  // Ids or frames, one input after the other; 4 bytes an element.
  static std::vector<std::byte> flattened(const std::vector<const EncoderInput*>& inputs) {
    std::vector<std::byte> bytes;
    for (const auto* input : inputs) {
      const auto ids = std::as_bytes(std::span(input->ids));
      const auto frames = std::as_bytes(std::span(input->frames));
      bytes.insert(bytes.end(), ids.begin(), ids.end());
      bytes.insert(bytes.end(), frames.begin(), frames.end());
    }
    return bytes;
  }

  // The batch that another rank has encoded, once it is here.
  void take_memories() {
    encoding_->received->wait();
    auto from = encoding_->rows.begin();
    for (const auto index : encoding_->sequences) {
      const auto end = from + static_cast<std::ptrdiff_t>(sequences_[index].memory_rows * encoder_.hidden);
      memories_[index].assign(from, end);
      from = end;
    }
    encoding_.reset();
    policy_.on(Encoded{});
  }

  void carry_out(const Admit& admit) {
    const auto& sequence = sequences_[admit.sequence];
    Descriptor command;
    command.command = Command::admit;
    command.slot = admit.slot;
    command.prompt_tokens = static_cast<std::int64_t>(sequence.prompt.size());
    command.reserved_tokens = command.prompt_tokens + sequence.max_new_tokens;
    command.memory_rows = sequence.memory_rows;
    command.sampling = sequence.sampling;
    const auto slot = static_cast<std::size_t>(admit.slot);
    slots_[slot] = sequence.sampling;
    owner_[slot] = admit.sequence;
    tell(command);
    auto history = sequence.prompt;
    history.insert(history.end(), sequence.rules.begin(), sequence.rules.end());
    if (stages_ > 1 && sequence.sampling.reads_history()) {
      auto& told = told_.back();
      const auto bytes = std::as_bytes(std::span(history));
      told.more.assign(bytes.begin(), bytes.end());
      told.tickets.push_back(transport_.send(stages_ - 1, Channel::control, told.more,
                                             {"the prompt of a request whose tokens depend on it"}));
    }
    const auto memory = memories_.extract(admit.sequence);
    stage_.admit(command, history, memory.empty() ? std::span<const float>() : memory.mapped());
  }

  void carry_out(const Run& run) {
    const auto& step = run.step;
    std::vector<std::int32_t> ids;
    for (int i = 0; i < step.entries; ++i) {
      const auto& entry = step.entry[static_cast<std::size_t>(i)];
      const auto sequence = owner_[static_cast<std::size_t>(entry.slot)];
      const auto& prompt = sequences_[sequence].prompt;
      auto& state = states_[sequence];
      for (std::int32_t row = 0; row < entry.rows; ++row) {
        const auto position = static_cast<std::size_t>(entry.first_position + row);
        ids.push_back(position < prompt.size() ? prompt[position]
                                               : state.generated.at(position - prompt.size()));
        if (position < prompt.size()) ++report_.prompt_rows;
      }
      state.issued = entry.first_position + entry.rows;
    }
    tell(step);
    auto& flight = flights_.emplace_back(Flight{step, {}, nullptr});
    if (stages_ > 1) {
      flight.answer.resize(answer_bytes(step, slots_));
      flight.ticket = transport_.receive(
          stages_ - 1, Channel::result, flight.answer,
          {"the answer of layer " + std::to_string(last_layer_) + ", " + describe_requests(step, slots_)});
      stage_.run(step, ids);
    } else {
      flight.answer = stage_.run(step, ids);
    }
    ++report_.steps;
  }

  void carry_out(const Release& release) {
    Descriptor command;
    command.command = Command::release;
    command.trace = trace_ ? 1 : 0;
    command.slot = release.slot;
    command.reserved_tokens = states_[release.sequence].issued;
    tell(command);
    leaving_.push_back(
        {.sequence = release.sequence, .positions = command.reserved_tokens, .parts = {}, .tickets = {}});
    auto& leaving = leaving_.back();
    leaving.parts.push_back(stage_.release(command));
    if (!trace_) return;
    for (int peer = 1; peer < stages_; ++peer) {
      auto& part = leaving.parts.emplace_back(
          static_cast<std::size_t>(layers_[static_cast<std::size_t>(peer)] * command.reserved_tokens));
      leaving.tickets.push_back(transport_.receive(
          peer, Channel::result, std::as_writable_bytes(std::span(part)),
          {"digests of request " + std::to_string(sequences_[release.sequence].sampling.request)}));
    }
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
      const auto sequence = owner_[static_cast<std::size_t>(entry.slot)];
      const auto& token = tokens[next++];
      states_[sequence].generated.push_back(token.id);
      finished.push_back(events_.on_token(sequence, token) ? 1 : 0);
      ++report_.sampled;
    }
    policy_.on({flight.step.number, finished,
                std::chrono::duration<double>(Clock::now().time_since_epoch()).count()});
    if (events_.progress) {
      events_.progress(std::to_string(done_) + "/" + std::to_string(sequences_.size()) + " samples done, " +
                       std::to_string(policy_.admitted()) + " running, " + std::to_string(report_.sampled) +
                       " tokens");
    }
  }

  // Reports sequences whose digests are all here, in the order in which they left.
  void collect(bool all) {
    while (!leaving_.empty()) {
      auto& leaving = leaving_.front();
      for (auto& ticket : leaving.tickets) {
        if (all) ticket->wait();
        if (!ticket->done()) return;
      }
      std::vector<std::uint64_t> digests;
      for (const auto& part : leaving.parts) digests.insert(digests.end(), part.begin(), part.end());
      ++done_;
      events_.on_done(leaving.sequence, std::move(digests), leaving.positions);
      leaving_.pop_front();
    }
  }

  void finish() {
    Descriptor command;
    command.command = Command::finish;
    tell(command);
    tell_encoder(command);
    for (auto& told : told_) {
      for (auto& ticket : told.tickets) ticket->wait();
    }
    report_.stages.push_back(stage_.finish());
    for (int peer = 1; peer < stages_; ++peer) {
      StageReport report;
      transport_.receive_now(peer, Channel::result, std::as_writable_bytes(std::span(&report, 1)),
                             {"the report of a stage"});
      report_.stages.push_back(report);
    }
    if (!encodes_elsewhere()) return;
    StageReport report;
    transport_.receive_now(encoder_.rank, Channel::result, std::as_writable_bytes(std::span(&report, 1)),
                           {"the report of the encoder's rank"});
    report_.encode_ns = report.busy_ns;
  }

  Stage& stage_;
  Transport& transport_;
  const std::vector<Sequence>& sequences_;
  const std::vector<std::int64_t>& layers_;
  const EncoderPlace& encoder_;
  bool trace_;
  const DriverEvents& events_;
  int stages_;
  std::int64_t last_layer_ = 0;
  AutoregressivePolicy policy_;
  std::vector<State> states_;
  std::vector<SampleSpec> slots_;
  std::vector<std::size_t> owner_;  // sequence of each slot
  std::deque<Flight> flights_;
  std::optional<Encoding> encoding_;
  std::map<std::size_t, std::vector<float>> memories_;  // of sequences that are not admitted yet
  std::deque<Told> told_;
  std::deque<Leaving> leaving_;
  std::size_t done_ = 0;
  DriverReport report_;
};

}  // namespace

DriverReport drive(Stage& stage, Transport& transport, const ScheduleConfig& schedule,
                   const std::vector<Sequence>& sequences, const std::vector<std::int64_t>& layers,
                   const EncoderPlace& encoder, bool trace, const DriverEvents& events) {
  return Driver(stage, transport, schedule, sequences, layers, encoder, trace, events).run();
}

}  // namespace diffuse

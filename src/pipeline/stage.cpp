#include "pipeline/stage.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.hpp"

namespace diffuse {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t nanoseconds_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

}  // namespace

Stage::Stage(StageWork work, Backend& backend, Transport& transport, const Recipe& recipe,
             const StageOptions& options)
    : work_(std::move(work)),
      backend_(backend),
      transport_(transport),
      recipe_(recipe),
      options_(options),
      rank_(transport.rank()),
      staged_(!backend.host_addressable() && !transport.carries_device_memory()) {
  carries_.resize(static_cast<std::size_t>(options_.stages == 1 ? 1 : options_.carries));
  for (auto& carry : carries_) {
    carry.buffer = std::visit([](const auto& each) { return each.make_carry(); }, work_);
    if (staged_) carry.host.resize(carry.buffer.bytes());
  }
}

Stage::~Stage() = default;

std::string describe_requests(const Descriptor& step, std::span<const SampleSpec> slots) {
  constexpr int kMostNamed = 4;
  std::string text = "step " + std::to_string(step.number) + ", request";
  for (int i = 0; i < std::min<int>(step.entries, kMostNamed); ++i) {
    const auto slot = static_cast<std::size_t>(step.entry[static_cast<std::size_t>(i)].slot);
    text += (i == 0 ? " " : ", ") + std::to_string(slots[slot].request);
  }
  if (step.entries > kMostNamed) text += " and " + std::to_string(step.entries - kMostNamed) + " more";
  return text;
}

const RankSlice& Stage::slice() const {
  return std::visit([](const auto& work) -> const RankSlice& { return work.slice(); }, work_);
}

std::string Stage::describe(const Descriptor& step) const {
  return "layer " + std::to_string(slice().first_layer) + ", " + describe_requests(step, slots_);
}

SampleSpec& Stage::spec_of(std::int32_t slot) {
  const auto index = static_cast<std::size_t>(slot);
  if (slots_.size() <= index) slots_.resize(index + 1);
  return slots_[index];
}

std::size_t Stage::take_carry() {
  const auto index = next_carry_;
  next_carry_ = (next_carry_ + 1) % carries_.size();
  auto& carry = carries_[index];
  if (carry.sent) {
    carry.sent->wait();
    carry.sent.reset();
  }
  return index;
}

// The rows of a carry where the transport finds them.
std::span<std::byte> Stage::travelling(Carry& carry, std::int64_t rows) {
  const auto bytes = static_cast<std::size_t>(rows * recipe_.hidden) * sizeof(float);
  return {staged_ ? carry.host.data() : carry.buffer.data(), bytes};
}

void Stage::flip_bit(Carry& carry, std::int64_t row) {
  auto* at = carry.buffer.data() + static_cast<std::size_t>(row * recipe_.hidden) * sizeof(float);
  std::array<std::byte, sizeof(float)> value{};
  backend_.download(value, at);
  value[2] ^= std::byte{1};
  backend_.upload(at, value);
  backend_.synchronize();
}

Stage::Pending Stage::next_command() {
  const auto listen = [&] {
    incoming_ticket_ = transport_.receive(
        0, Channel::control, std::as_writable_bytes(std::span(&incoming_, 1)),
        {"the next descriptor for layer " + std::to_string(slice().first_layer) + ", " + last_step_});
  };
  if (!incoming_ticket_) listen();
  // Descriptors that are here already are looked at ahead, so that the rows of the next step can arrive while
  // this one is computed; one carry stays free for the step under way.
  while (pending_.empty() ||
         (pending_.size() + 1 < carries_.size() && incoming_ticket_ && incoming_ticket_->done())) {
    if (!incoming_ticket_) break;
    incoming_ticket_->wait();
    Pending pending{incoming_, 0};
    incoming_ticket_.reset();
    if (pending.command.command == Command::step) {
      last_step_ = "after " + describe(pending.command);
      pending.carry = take_carry();
      auto& carry = carries_[pending.carry];
      carry.received = transport_.receive(
          rank_ - 1, Channel::carry, travelling(carry, pending.command.rows()), {describe(pending.command)});
    }
    if (pending.command.command == Command::admit) {
      // At once, for messages about the steps behind it; whoever held the slot before has left it on all
      // stages.
      spec_of(pending.command.slot) = pending.command.sampling;
    }
    if (pending.command.command == Command::admit && last() && pending.command.sampling.reads_history()) {
      std::vector<std::int32_t> told(
          static_cast<std::size_t>(pending.command.prompt_tokens + pending.command.sampling.rules));
      transport_.receive_now(0, Channel::control, std::as_writable_bytes(std::span(told)),
                             {"the prompt of a request whose tokens depend on it"});
      told_.push_back(std::move(told));
    }
    if (pending.command.command == Command::encode) expect_memories(pending.command);
    const bool more = pending.command.command != Command::finish;
    pending_.push_back(pending);
    if (more) listen();
  }
  const auto next = pending_.front();
  pending_.pop_front();
  return next;
}

StageReport Stage::loop() {
  for (;;) {
    const auto start = Clock::now();
    auto pending = next_command();
    const bool step = pending.command.command == Command::step;
    if (step) carries_[pending.carry].received->wait();
    if (report_.steps > 0 && step) report_.waited_ns += nanoseconds_since(start);
    if (pending.command.command == Command::finish) return finish();
    carry_out(pending);
  }
}

void Stage::carry_out(Pending& pending) {
  const auto& command = pending.command;
  switch (command.command) {
    case Command::encode:
      return;  // what comes of it is on its way
    case Command::admit:
      admit_slot(command);
      if (last() && command.sampling.reads_history()) {
        std::visit([&](auto& work) { work.tell(command, told_.front()); }, work_);
        told_.pop_front();
      }
      if (command.brings_memory()) take_memory(command);
      return;
    case Command::step: {
      auto& carry = carries_[pending.carry];
      carry.received.reset();
      auto answer = compute(command, {}, carry);
      if (last()) send_answer(std::move(answer), describe(command));
      return;
    }
    case Command::release: {
      const auto left = release(command);
      if (command.watched != 0) {
        const auto bytes = std::as_bytes(std::span(left.watched));
        send_answer({bytes.begin(), bytes.end()}, "what was watched of slot " + std::to_string(command.slot));
      }
      if (command.trace == 0) return;
      const auto bytes = std::as_bytes(std::span(left.digests));
      send_answer({bytes.begin(), bytes.end()}, "digests of slot " + std::to_string(command.slot));
      return;
    }
    case Command::finish:
      return;
  }
}

// What reads no memory reads rows of zeros.
void Stage::admit_slot(const Descriptor& command) {
  std::visit(
      [&](auto& work) {
        work.admit(command);
        if (command.no_memory == 0) return;
        const auto elements = static_cast<std::size_t>(command.memory_rows * recipe_.encoder->hidden);
        work.remember(command.slot, std::vector<float>(elements));
      },
      work_);
}

void Stage::expect_memories(const Descriptor& command) {
  auto& batch = memories_.emplace_back();
  batch.rows.resize(static_cast<std::size_t>(command.rows() * recipe_.encoder->hidden));
  batch.received =
      transport_.receive(options_.encoder, Channel::control, std::as_writable_bytes(std::span(batch.rows)),
                         {"what rank " + std::to_string(options_.encoder) + " encodes"});
}

// Of the oldest batch, the memory that was not taken yet.
void Stage::take_memory(const Descriptor& command) {
  if (memories_.empty()) throw_internal("a sequence is admitted before its memory was sent");
  auto& batch = memories_.front();
  if (batch.received) {
    batch.received->wait();
    batch.received.reset();
  }
  const auto count = static_cast<std::size_t>(command.memory_rows * recipe_.encoder->hidden);
  const auto memory = std::span<const float>(batch.rows).subspan(batch.taken, count);
  std::visit([&](auto& work) { work.remember(command.slot, memory); }, work_);
  batch.taken += count;
  if (batch.taken == batch.rows.size()) memories_.pop_front();
}

void Stage::admit(const Descriptor& command, std::span<const std::int32_t> told,
                  std::span<const float> memory) {
  spec_of(command.slot) = command.sampling;
  admit_slot(command);
  std::visit(
      [&](auto& work) {
        if (command.brings_memory()) work.remember(command.slot, memory);
        if (last() && command.sampling.reads_history()) work.tell(command, told);
      },
      work_);
}

std::vector<std::byte> Stage::run(const Descriptor& step, std::span<const std::byte> input) {
  return compute(step, input, carries_[take_carry()]);
}

SlotLeft Stage::release(const Descriptor& command) {
  return std::visit([&](auto& work) { return work.release(command); }, work_);
}

StageReport Stage::finish() {
  for (auto& carry : carries_) {
    if (carry.sent) carry.sent->wait();
  }
  for (auto& answer : answers_) answer.sent->wait();
  answers_.clear();
  for (auto& batch : memories_) {
    if (batch.received) batch.received->wait();  // a stopped run leaves some that nobody takes
  }
  memories_.clear();
  report_.bytes_sent = transport_.bytes_sent();
  return report_;
}

std::vector<std::byte> Stage::compute(const Descriptor& step, std::span<const std::byte> input,
                                      Carry& carry) {
  const auto start = Clock::now();
  const auto rows = step.rows();
  const Rows hidden{carry.buffer.floats(), rows, recipe_.hidden, recipe_.hidden};
  if (!first() && staged_) backend_.upload(carry.buffer.data(), travelling(carry, rows));
  std::visit([&](auto& work) { work.run(step, input, hidden); }, work_);
  std::vector<std::byte> answer;
  if (last()) {
    answer = std::visit([&](auto& work) { return work.answer(step, hidden); }, work_);
  } else {
    if (options_.flip && options_.flip->step == step.number && options_.flip->row < rows)
      flip_bit(carry, options_.flip->row);
    const auto bytes = travelling(carry, rows);
    if (staged_) backend_.download(bytes, carry.buffer.data());
    carry.sent = transport_.send(rank_ + 1, Channel::carry, bytes, {describe(step)});
  }
  report_.busy_ns += nanoseconds_since(start);
  ++report_.steps;
  report_.rows += static_cast<std::uint64_t>(rows);
  return answer;
}

void Stage::send_answer(std::vector<std::byte> bytes, const std::string& purpose) {
  while (!answers_.empty() && answers_.front().sent->done()) answers_.pop_front();
  auto& answer = answers_.emplace_back(Answer{std::move(bytes), nullptr});
  answer.sent = transport_.send(0, Channel::result, answer.bytes, {purpose});
}

}  // namespace diffuse

#include "pipeline/stage.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.hpp"
#include "pipeline/describe.hpp"
#include "pipeline/encoder_stage.hpp"

namespace diffuse {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t nanoseconds_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

}  // namespace

Stage::Stage(StageWork work, Backend& backend, Transport& transport, const Recipe& recipe,
             const StageOptions& options, EncoderRunner* encoder)
    : work_(std::move(work)),
      backend_(backend),
      transport_(transport),
      recipe_(recipe),
      options_(options),
      rank_(transport.rank()),
      staged_(!backend.host_addressable() && !transport.carries_device_memory()),
      memories_(transport, recipe.encoder ? recipe.encoder->hidden : 0) {
  carries_.resize(static_cast<std::size_t>(options_.stages == 1 ? 1 : options_.carries));
  for (auto& carry : carries_) {
    carry.buffer = std::visit([](const auto& each) { return each.make_carry(); }, work_);
    if (staged_) carry.host.resize(carry.buffer.bytes());
  }
  if (encoder != nullptr)
    encoder_ = std::make_unique<BatchEncoder>(*encoder, *recipe.encoder, transport, options.stages);
}

Stage::~Stage() = default;

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

void Stage::listen() {
  incoming_ticket_ = transport_.receive(
      0, Channel::control, std::as_writable_bytes(std::span(&incoming_, 1)),
      {"the next descriptor for layer " + std::to_string(slice().first_layer) + ", " + last_step_});
}

// Waits for the next descriptor and posts the receives of what it announces.
void Stage::take_in() {
  incoming_ticket_->wait();
  Pending pending{incoming_, 0};
  incoming_ticket_.reset();
  const auto& command = pending.command;
  if (command.command == Command::step) {
    last_step_ = "after " + describe(command);
    pending.carry = take_carry();
    auto& carry = carries_[pending.carry];
    carry.received =
        transport_.receive(rank_ - 1, Channel::carry, travelling(carry, command.rows()), {describe(command)});
  }
  if (command.command == Command::admit) {
    // At once, for messages about the steps behind it; whoever held the slot before has left it on all
    // stages.
    spec_of(command.slot) = command.sampling;
  }
  if (command.command == Command::admit && last() && command.sampling.reads_history()) {
    std::vector<std::int32_t> told(static_cast<std::size_t>(command.prompt_tokens + command.sampling.rules));
    transport_.receive_now(0, Channel::control, std::as_writable_bytes(std::span(told)),
                           {"the prompt of a request whose tokens depend on it"});
    told_.push_back(std::move(told));
  }
  if (command.command == Command::encode) {
    memories_.expect(command);
    if (command.encoder == rank_) encoder_->expect(command);
  }
  heard_all_ = command.command == Command::finish;
  pending_.push_back(pending);
  if (!heard_all_) listen();
}

// Descriptors that are here already are looked at ahead, so that the rows of the next step can arrive while
// this one is computed; one carry stays free for the step under way.
void Stage::look_ahead() {
  if (!incoming_ticket_ && !heard_all_) listen();
  while (pending_.size() + 1 < carries_.size() && incoming_ticket_ && incoming_ticket_->done()) take_in();
}

bool Stage::command_is_at_hand() {
  look_ahead();
  if (pending_.empty()) return false;
  const auto& next = pending_.front();
  return next.command.command != Command::step || carries_[next.carry].received->done();
}

// Between two blocks go the steps that were at hand after the first: neither keeps the other waiting for
// long.
bool Stage::encodes_next() {
  if (!encoding()) return false;
  if (before_block_ > 0 && command_is_at_hand()) {
    --before_block_;
    return false;
  }
  return true;
}

Stage::Pending Stage::next_command() {
  while (encodes_next()) {
    encode_on();
    look_ahead();
    before_block_ = pending_.size();
  }
  look_ahead();
  if (pending_.empty()) take_in();
  look_ahead();
  const auto next = pending_.front();
  pending_.pop_front();
  return next;
}

StageReport Stage::loop() {
  for (;;) {
    const auto start = Clock::now();
    const auto encoded = encoder_ ? encoder_->busy_ns() : 0;
    auto pending = next_command();
    const bool step = pending.command.command == Command::step;
    if (step) carries_[pending.carry].received->wait();
    if (report_.steps > 0 && step)
      report_.waited_ns += nanoseconds_since(start) - (encoder_ ? encoder_->busy_ns() - encoded : 0);
    if (pending.command.command == Command::finish) return finish();
    carry_out(pending);
  }
}

void Stage::carry_out(Pending& pending) {
  const auto& command = pending.command;
  switch (command.command) {
    case Command::encode:
      return;  // what it announces is under way
    case Command::admit:
      admit_slot(command);
      if (last() && command.sampling.reads_history()) {
        std::visit([&](auto& work) { work.tell(command, told_.front()); }, work_);
        told_.pop_front();
      }
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

void Stage::admit_slot(const Descriptor& command) {
  std::visit(
      [&](auto& work) {
        work.admit(command);
        if (command.no_memory != 0) {
          // What reads no memory reads rows of zeros.
          const auto elements = static_cast<std::size_t>(command.memory_rows * recipe_.encoder->hidden);
          work.remember(command.slot, std::vector<float>(elements));
        } else if (command.brings_memory()) {
          work.remember(command.slot, memories_.take(command.sequence).rows);
        }
      },
      work_);
}

void Stage::admit(const Descriptor& command, std::span<const std::int32_t> told) {
  admit_slot(command);
  spec_of(command.slot) = command.sampling;
  if (last() && command.sampling.reads_history())
    std::visit([&](auto& work) { work.tell(command, told); }, work_);
}

void Stage::encode(const Descriptor& batch, std::vector<std::shared_ptr<const EncoderInput>> inputs) {
  memories_.expect(batch);
  if (batch.encoder == rank_) encoder_->give(batch, std::move(inputs));
}

bool Stage::encoding() const {
  return encoder_ && encoder_->busy();
}

void Stage::encode_on() {
  if (const auto made = encoder_->advance()) memories_.put(made->batch, made->rows);
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
  memories_.finish();
  if (encoder_) {
    encoder_->finish();
    report_.encode_ns = encoder_->busy_ns();
  }
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

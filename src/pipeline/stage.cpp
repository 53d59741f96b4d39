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

template <typename Value>
void append(std::vector<std::byte>& bytes, const Value& value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof value);
}

template <typename Value>
Value take(std::span<const std::byte>& bytes) {
  Value value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes = bytes.subspan(sizeof value);
  return value;
}

bool plain_greedy(const SampleSpec& spec) {
  return spec.temperature == 0 && spec.logprobs < 0 && !spec.reads_history();
}

}  // namespace

std::size_t answer_bytes(const Descriptor& step, std::span<const SampleSpec> slots) {
  std::size_t bytes = sizeof(std::uint64_t);
  for (int i = 0; i < step.entries; ++i) {
    const auto& entry = step.entry[static_cast<std::size_t>(i)];
    if (entry.sample == 0) continue;
    const auto top = std::max(0, slots[static_cast<std::size_t>(entry.slot)].logprobs);
    bytes += sizeof(WireToken) + static_cast<std::size_t>(top) * sizeof(TokenLogprob);
  }
  return bytes;
}

std::vector<SampledToken> read_answer(std::span<const std::byte> bytes, const Descriptor& step,
                                      std::span<const SampleSpec> slots) {
  if (bytes.size() != answer_bytes(step, slots))
    throw_internal("an answer of the last stage has the wrong size");
  if (take<std::uint64_t>(bytes) != step.number)
    throw_internal("an answer of the last stage belongs to another step");
  std::vector<SampledToken> tokens;
  for (int i = 0; i < step.entries; ++i) {
    const auto& entry = step.entry[static_cast<std::size_t>(i)];
    if (entry.sample == 0) continue;
    const auto wire = take<WireToken>(bytes);
    auto& token = tokens.emplace_back(SampledToken{wire.id, wire.logprob, {}});
    for (auto left = slots[static_cast<std::size_t>(entry.slot)].logprobs; left > 0; --left)
      token.top.push_back(take<TokenLogprob>(bytes));
  }
  return tokens;
}

Stage::Stage(Executor& executor, Backend& backend, Transport& transport, const Recipe& recipe,
             const StageOptions& options)
    : executor_(executor),
      backend_(backend),
      transport_(transport),
      recipe_(recipe),
      options_(options),
      rank_(transport.rank()),
      staged_(!backend.host_addressable() && !transport.carries_device_memory()) {
  carries_.resize(static_cast<std::size_t>(options_.stages == 1 ? 1 : options_.carries));
  for (auto& carry : carries_) {
    carry.buffer = executor_.make_carry();
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

std::string Stage::describe(const Descriptor& step) const {
  std::vector<SampleSpec> slots;
  slots.reserve(slots_.size());
  for (const auto& slot : slots_) slots.push_back(slot.sampling);
  return "layer " + std::to_string(executor_.slice().first_layer) + ", " + describe_requests(step, slots);
}

Stage::SlotState& Stage::slot_of(std::int32_t slot) {
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
    incoming_ticket_ =
        transport_.receive(0, Channel::control, std::as_writable_bytes(std::span(&incoming_, 1)),
                           {"the next descriptor for layer " + std::to_string(executor_.slice().first_layer) +
                            ", " + last_step_});
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
      slot_of(pending.command.slot).sampling = pending.command.sampling;
    }
    if (pending.command.command == Command::admit && last() && pending.command.sampling.reads_history()) {
      std::vector<std::int32_t> told(
          static_cast<std::size_t>(pending.command.prompt_tokens + pending.command.sampling.rules));
      transport_.receive_now(0, Channel::control, std::as_writable_bytes(std::span(told)),
                             {"the prompt of a request whose tokens depend on it"});
      tell_slot(pending.command, told);
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
      executor_.admit(command.slot, command.reserved_tokens, command.memory_rows);
      if (command.memory_rows > 0) take_memory(command);
      return;
    case Command::step: {
      auto& carry = carries_[pending.carry];
      carry.received.reset();
      auto answer = compute(command, {}, carry);
      if (last()) send_answer(std::move(answer), describe(command));
      return;
    }
    case Command::release: {
      const auto digests = executor_.release(command.slot, command.reserved_tokens);
      if (command.trace == 0) return;
      const auto bytes = std::as_bytes(std::span(digests));
      send_answer({bytes.begin(), bytes.end()}, "digests of slot " + std::to_string(command.slot));
      return;
    }
    case Command::finish:
      return;
  }
}

void Stage::tell_slot(const Descriptor& command, std::span<const std::int32_t> told) {
  auto& slot = slot_of(command.slot);
  const auto prompt = static_cast<std::size_t>(command.prompt_tokens);
  slot.prompt = command.prompt_tokens;
  slot.history.assign(told.begin(), told.begin() + static_cast<std::ptrdiff_t>(prompt));
  slot.rules = command.sampling.rules > 0 ? unpack_rules(told.subspan(prompt)) : TokenRules();
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
  executor_.remember(command.slot, std::span(batch.rows).subspan(batch.taken, count));
  batch.taken += count;
  if (batch.taken == batch.rows.size()) memories_.pop_front();
}

void Stage::admit(const Descriptor& command, std::span<const std::int32_t> told,
                  std::span<const float> memory) {
  executor_.admit(command.slot, command.reserved_tokens, command.memory_rows);
  if (command.memory_rows > 0) executor_.remember(command.slot, memory);
  slot_of(command.slot).sampling = command.sampling;
  if (last() && command.sampling.reads_history()) tell_slot(command, told);
}

std::vector<std::byte> Stage::run(const Descriptor& step, std::span<const std::int32_t> ids) {
  return compute(step, ids, carries_[take_carry()]);
}

std::vector<std::uint64_t> Stage::release(const Descriptor& command) {
  return executor_.release(command.slot, command.reserved_tokens);
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

std::vector<std::byte> Stage::compute(const Descriptor& step, std::span<const std::int32_t> ids,
                                      Carry& carry) {
  const auto start = Clock::now();
  const auto rows = step.rows();
  const Rows hidden{carry.buffer.floats(), rows, recipe_.hidden, recipe_.hidden};
  if (!first() && staged_) backend_.upload(carry.buffer.data(), travelling(carry, rows));
  executor_.run(step, ids, hidden);
  std::vector<std::byte> answer;
  if (last()) {
    answer = sample(step, hidden);
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

SampledToken Stage::choose(std::span<float> logits, SlotState& slot, std::int64_t position) {
  const auto& spec = slot.sampling;
  SamplingParams params;
  params.temperature = spec.temperature;
  params.top_k = spec.top_k;
  params.top_p = spec.top_p;
  params.min_p = spec.min_p;
  params.repetition_penalty = spec.repetition_penalty;
  params.logprobs = spec.logprobs;
  const SampleKey key{spec.seed, static_cast<std::uint64_t>(spec.request),
                      static_cast<std::uint32_t>(spec.sample), static_cast<std::uint32_t>(position)};
  bool any = false;
  for (const auto logit : logits) {
    const bool finite = logit - logit == 0;
    if (!finite && !(logit < 0)) return {};  // NaN or plus infinity
    any = any || finite;
  }
  if (!any) return {};
  if (spec.rules == 0) {
    auto token = sample_token(logits, params, slot.history, key, scratch_);
    if (spec.reads_history()) slot.history.push_back(token.id);
    return token;
  }
  // Log-probabilities are the model's own, whatever the rules leave of them.
  SampledToken said;
  std::vector<float> own;
  if (spec.logprobs >= 0) own.assign(logits.begin(), logits.end());
  apply_rules(slot.rules, slot.history, slot.prompt, logits);
  if (std::all_of(logits.begin(), logits.end(), [](float logit) { return !(logit - logit == 0); })) return {};
  params.logprobs = -1;
  said.id = sample_token(logits, params, slot.history, key, scratch_).id;
  if (spec.logprobs >= 0) said.logprob = token_logprob(own, said.id);
  if (spec.logprobs > 0) said.top = top_logprobs(own, spec.logprobs, scratch_);
  slot.history.push_back(said.id);
  return said;
}

std::vector<std::byte> Stage::sample(const Descriptor& step, ConstRows hidden) {
  std::vector<std::int64_t> rows;
  std::vector<const Entry*> entries;
  std::int64_t row = 0;
  bool all_greedy = true;
  for (int i = 0; i < step.entries; ++i) {
    const auto& entry = step.entry[static_cast<std::size_t>(i)];
    row += entry.rows;
    if (entry.sample == 0) continue;
    rows.push_back(row - 1);
    entries.push_back(&entry);
    all_greedy = all_greedy && plain_greedy(slots_[static_cast<std::size_t>(entry.slot)].sampling);
  }
  std::vector<std::byte> answer;
  append(answer, step.number);
  if (rows.empty()) return answer;
  const Rows logits = executor_.logits(hidden, rows);
  if (all_greedy) {
    std::vector<std::int32_t> ids(rows.size());
    backend_.argmax(logits, ids);
    for (const auto id : ids) append(answer, WireToken{id, 0});
    return answer;
  }
  std::vector<float> values(static_cast<std::size_t>(logits.rows * logits.cols));
  backend_.download(std::as_writable_bytes(std::span(values)),
                    reinterpret_cast<const std::byte*>(logits.data));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto width = static_cast<std::size_t>(logits.cols);
    auto& slot = slots_[static_cast<std::size_t>(entries[i]->slot)];
    const auto position = entries[i]->first_position + entries[i]->rows;
    auto token = choose(std::span(values).subspan(i * width, width), slot, position);
    append(answer, WireToken{token.id, token.logprob});
    token.top.resize(static_cast<std::size_t>(std::max(0, slot.sampling.logprobs)));
    for (const auto& alternative : token.top) append(answer, alternative);
  }
  return answer;
}

void Stage::send_answer(std::vector<std::byte> bytes, const std::string& purpose) {
  while (!answers_.empty() && answers_.front().sent->done()) answers_.pop_front();
  auto& answer = answers_.emplace_back(Answer{std::move(bytes), nullptr});
  answer.sent = transport_.send(0, Channel::result, answer.bytes, {purpose});
}

}  // namespace diffuse

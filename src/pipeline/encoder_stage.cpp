#include "pipeline/encoder_stage.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "core/error.hpp"
#include "pipeline/describe.hpp"

namespace diffuse {
namespace {

using Clock = std::chrono::steady_clock;

template <typename Value>
std::vector<Value> taken(std::span<const std::byte>& bytes, std::int64_t count) {
  std::vector<Value> values(static_cast<std::size_t>(count));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Value));
  bytes = bytes.subspan(values.size() * sizeof(Value));
  return values;
}

std::vector<std::shared_ptr<const EncoderInput>> inputs_of(const Descriptor& command, const Encoder& encoder,
                                                           std::span<const std::byte> bytes) {
  const bool frames = std::holds_alternative<FramesFront>(encoder.front);
  std::vector<std::shared_ptr<const EncoderInput>> inputs;
  for (int i = 0; i < command.entries; ++i) {
    const auto& entry = command.entry[static_cast<std::size_t>(i)];
    const auto count = entry.first_position;
    auto input = std::make_shared<EncoderInput>();
    input->padded_rows = entry.rows;
    if (frames) {
      input->frames = taken<float>(bytes, count);
    } else {
      input->ids = taken<std::int32_t>(bytes, count);
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

}  // namespace

BatchEncoder::BatchEncoder(EncoderRunner& runner, const Encoder& encoder, Transport& transport,
                           std::int32_t stages)
    : runner_(runner), encoder_(encoder), transport_(transport), stages_(stages) {}

BatchEncoder::~BatchEncoder() = default;

void BatchEncoder::give(const Descriptor& batch, std::vector<std::shared_ptr<const EncoderInput>> inputs) {
  batches_.push_back({batch, std::move(inputs), {}, nullptr});
}

void BatchEncoder::expect(const Descriptor& batch) {
  auto& expected = batches_.emplace_back();
  expected.command = batch;
  expected.bytes.resize(static_cast<std::size_t>(batch.input_elements()) * sizeof(float));
  expected.received = transport_.receive(0, Channel::control, expected.bytes,
                                         {"a batch to encode, " + describe_batch(batch)});
}

void BatchEncoder::begin(Batch& batch) {
  if (batch.received) {
    batch.received->wait();
    batch.received.reset();
    batch.inputs = inputs_of(batch.command, encoder_, batch.bytes);
    batch.bytes = {};
  }
  const auto start = Clock::now();
  std::vector<const EncoderInput*> inputs;
  for (const auto& input : batch.inputs) inputs.push_back(input.get());
  runner_.start(inputs);
  batch.inputs.clear();
  batch.begun = true;
  busy_ns_ += std::chrono::nanoseconds(Clock::now() - start).count();
}

std::optional<BatchEncoder::Made> BatchEncoder::advance() {
  auto& batch = batches_.front();
  if (!batch.begun) {
    begin(batch);
    return std::nullopt;
  }
  const auto start = Clock::now();
  std::optional<Made> made;
  if (!runner_.advance()) {
    auto rows = std::make_shared<std::vector<float>>();
    rows->reserve(static_cast<std::size_t>(batch.command.rows() * encoder_.hidden));
    for (const auto& memory : runner_.take()) rows->insert(rows->end(), memory.begin(), memory.end());
    made = Made{batch.command, std::move(rows)};
    batches_.pop_front();
    send(*made);
  }
  busy_ns_ += std::chrono::nanoseconds(Clock::now() - start).count();
  return made;
}

void BatchEncoder::send(const Made& made) {
  const auto done = [](const auto& ticket) { return ticket->done(); };
  while (!sent_.empty() && std::ranges::all_of(sent_.front().tickets, done)) sent_.pop_front();
  auto& out = sent_.emplace_back(Sent{made.rows, {}});
  for (int stage = 0; stage < stages_; ++stage) {
    if (stage == transport_.rank()) continue;
    out.tickets.push_back(
        transport_.send(stage, Channel::memory, std::as_bytes(std::span(*made.rows)),
                        {"memories for stage " + std::to_string(stage) + ", " + describe_batch(made.batch)}));
  }
}

void BatchEncoder::finish() {
  for (const auto& out : sent_) {
    for (const auto& ticket : out.tickets) ticket->wait();
  }
  sent_.clear();
}

std::vector<std::byte> flattened(const std::vector<std::shared_ptr<const EncoderInput>>& inputs) {
  std::vector<std::byte> bytes;
  for (const auto& input : inputs) {
    const auto ids = std::as_bytes(std::span(input->ids));
    const auto frames = std::as_bytes(std::span(input->frames));
    bytes.insert(bytes.end(), ids.begin(), ids.end());
    bytes.insert(bytes.end(), frames.begin(), frames.end());
  }
  return bytes;
}

StageReport encode_batches(BatchEncoder& encoder, Transport& transport) {
  StageReport report;
  for (;;) {
    Descriptor command;
    const auto next = transport.receive(0, Channel::control, std::as_writable_bytes(std::span(&command, 1)),
                                        {"the next batch to encode"});
    while (encoder.busy() && !next->done()) encoder.advance();
    next->wait();
    if (command.command == Command::finish) break;
    if (command.command != Command::encode)
      throw_internal("a rank without layers was told something else than to encode");
    encoder.expect(command);
  }
  encoder.finish();
  report.encode_ns = encoder.busy_ns();
  report.bytes_sent = transport.bytes_sent();
  return report;
}

}  // namespace diffuse

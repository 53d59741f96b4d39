#include "pipeline/encoder_stage.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "core/error.hpp"

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

std::vector<EncoderInput> inputs_of(const Descriptor& command, const Encoder& encoder,
                                    std::span<const std::byte> bytes) {
  const bool frames = std::holds_alternative<FramesFront>(encoder.front);
  std::vector<EncoderInput> inputs;
  for (int i = 0; i < command.entries; ++i) {
    const auto count = command.entry[static_cast<std::size_t>(i)].first_position;
    auto& input = inputs.emplace_back();
    if (frames) {
      input.frames = taken<float>(bytes, count);
    } else {
      input.ids = taken<std::int32_t>(bytes, count);
    }
  }
  return inputs;
}

// Memories on their way to the stages.
struct Sent {
  std::vector<float> rows;
  std::vector<std::unique_ptr<Ticket>> tickets;
  bool done() const {
    return std::all_of(tickets.begin(), tickets.end(), [](const auto& ticket) { return ticket->done(); });
  }
};

}  // namespace

StageReport encode_batches(EncoderRunner& runner, const Encoder& encoder, Transport& transport,
                           std::int32_t stages) {
  StageReport report;
  std::deque<Sent> sent;
  for (;;) {
    Descriptor command;
    transport.receive_now(0, Channel::control, std::as_writable_bytes(std::span(&command, 1)),
                          {"the next batch to encode"});
    if (command.command == Command::finish) break;
    if (command.command != Command::encode)
      throw_internal("the encoder's rank was told something else than to encode");
    std::vector<std::byte> bytes(static_cast<std::size_t>(command.input_elements()) * sizeof(float));
    transport.receive_now(0, Channel::control, bytes, {"a batch to encode"});
    const auto start = Clock::now();
    const auto inputs = inputs_of(command, encoder, bytes);
    std::vector<const EncoderInput*> batch;
    for (const auto& input : inputs) batch.push_back(&input);
    while (!sent.empty() && sent.front().done()) sent.pop_front();
    auto& out = sent.emplace_back();
    for (const auto& memory : runner.encode(batch))
      out.rows.insert(out.rows.end(), memory.begin(), memory.end());
    report.busy_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
    ++report.steps;
    report.rows += static_cast<std::uint64_t>(command.rows());
    for (int stage = 0; stage < stages; ++stage) {
      out.tickets.push_back(transport.send(stage, stage == 0 ? Channel::result : Channel::control,
                                           std::as_bytes(std::span(out.rows)),
                                           {"memories for stage " + std::to_string(stage)}));
    }
  }
  for (const auto& out : sent) {
    for (const auto& ticket : out.tickets) ticket->wait();
  }
  report.bytes_sent = transport.bytes_sent();
  return report;
}

}  // namespace diffuse

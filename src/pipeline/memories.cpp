#include "pipeline/memories.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "pipeline/describe.hpp"

namespace diffuse {

void Memories::expect(const Descriptor& batch) {
  auto& expected = batches_.emplace_back();
  expected.command = batch;
  if (batch.encoder == transport_.rank()) return;
  auto rows = std::make_shared<std::vector<float>>(static_cast<std::size_t>(batch.rows() * hidden_));
  expected.received = transport_.receive(
      batch.encoder, Channel::memory, std::as_writable_bytes(std::span(*rows)),
      {"what rank " + std::to_string(batch.encoder) + " encodes, " + describe_batch(batch)});
  expected.rows = std::move(rows);
}

void Memories::put(const Descriptor& batch, std::shared_ptr<const std::vector<float>> rows) {
  const auto place = std::ranges::find_if(batches_, [&](const Batch& each) {
    return each.command.encoder == batch.encoder && each.command.entry[0].slot == batch.entry[0].slot;
  });
  if (place == batches_.end()) throw_internal("a batch was encoded that nobody has asked for");
  place->rows = std::move(rows);
}

std::vector<std::int32_t> Memories::arrived() {
  std::vector<std::int32_t> encoders;
  for (auto& batch : batches_) {
    if (batch.reported || !batch.here()) continue;
    wait_for(batch);
    batch.reported = true;
    encoders.push_back(batch.command.encoder);
  }
  return encoders;
}

bool Memories::await() {
  const auto oldest =
      std::ranges::find_if(batches_, [](const Batch& batch) { return batch.received != nullptr; });
  if (oldest == batches_.end()) return false;
  wait_for(*oldest);
  return true;
}

void Memories::wait_for(Batch& batch) {
  if (!batch.received) return;
  batch.received->wait();
  batch.received.reset();
}

Memories::Memory Memories::take(std::int32_t sequence) {
  for (auto batch = batches_.begin(); batch != batches_.end(); ++batch) {
    std::int64_t first = 0;
    for (int i = 0; i < batch->command.entries; ++i) {
      const auto& entry = batch->command.entry[static_cast<std::size_t>(i)];
      if (entry.slot != sequence) {
        first += entry.rows;
        continue;
      }
      wait_for(*batch);
      if (!batch->rows) break;
      Memory memory{batch->rows, std::span(*batch->rows)
                                     .subspan(static_cast<std::size_t>(first * hidden_),
                                              static_cast<std::size_t>(entry.rows * hidden_))};
      if (++batch->taken == batch->command.entries) batches_.erase(batch);
      return memory;
    }
  }
  throw_internal("a sequence is admitted before its memory was encoded");
}

void Memories::finish() {
  for (auto& batch : batches_) wait_for(batch);
  batches_.clear();
}

}  // namespace diffuse

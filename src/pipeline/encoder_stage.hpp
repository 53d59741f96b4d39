#pragma once
// A rank that encodes: goes through the batches that rank 0 deals out to it, and sends what comes of them to
// every stage. Beside layers it does so a block at a time, so that steps are not held up by a whole batch.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "pipeline/stage.hpp"
#include "schedule/step.hpp"
#include "slice/encoder.hpp"
#include "transport/transport.hpp"

namespace diffuse {

class BatchEncoder {
 public:
  // What came of a batch, one memory after the other.
  struct Made {
    Descriptor batch;
    std::shared_ptr<const std::vector<float>> rows;
  };

  // References must outlive it; `encoder` is the recipe's that `runner` runs.
  BatchEncoder(EncoderRunner& runner, const Encoder& encoder, Transport& transport, std::int32_t stages);
  ~BatchEncoder();

  // Batches are encoded in the order in which they come: their inputs given, or sent by rank 0 right behind
  // the descriptor.
  void give(const Descriptor& batch, std::vector<std::shared_ptr<const EncoderInput>> inputs);
  void expect(const Descriptor& batch);

  bool busy() const { return !batches_.empty(); }
  // Goes on with the oldest batch by a block. Its last part returns the memories, which are on their way to
  // the other stages by then. It must be busy.
  std::optional<Made> advance();

  void finish();  // waits until all is sent
  std::int64_t busy_ns() const { return busy_ns_; }

 private:
  struct Batch {
    Descriptor command;
    std::vector<std::shared_ptr<const EncoderInput>> inputs;
    std::vector<std::byte> bytes;  // the inputs as they come
    std::unique_ptr<Ticket> received;
    bool begun = false;
  };
  // Memories on their way to the stages.
  struct Sent {
    std::shared_ptr<const std::vector<float>> rows;
    std::vector<std::unique_ptr<Ticket>> tickets;
  };

  void begin(Batch& batch);
  void send(const Made& made);

  EncoderRunner& runner_;
  const Encoder& encoder_;
  Transport& transport_;
  std::int32_t stages_;
  std::deque<Batch> batches_;
  std::deque<Sent> sent_;
  std::int64_t busy_ns_ = 0;
};

// Inputs of a batch as they travel behind its descriptor: ids or frames, one input after the other, 4 bytes
// an element.
std::vector<std::byte> flattened(const std::vector<std::shared_ptr<const EncoderInput>>& inputs);

// The loop of a rank that encodes and has no layers, until `finish`.
StageReport encode_batches(BatchEncoder& encoder, Transport& transport);

}  // namespace diffuse

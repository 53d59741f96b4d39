#pragma once
// What was encoded, on its way to a stage and there until the sequences that read it are admitted.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "schedule/step.hpp"
#include "transport/transport.hpp"

namespace diffuse {

class Memories {
 public:
  // The memory [rows, hidden] of a sequence, part of its batch.
  struct Memory {
    std::shared_ptr<const std::vector<float>> batch;
    std::span<const float> rows;
  };

  // `hidden`: of a row. The transport must outlive it.
  Memories(Transport& transport, std::int64_t hidden) : transport_(transport), hidden_(hidden) {}

  // A batch is under way: it is received from the rank that encodes it, or put here where that is this rank.
  void expect(const Descriptor& batch);
  void put(const Descriptor& batch, std::shared_ptr<const std::vector<float>> rows);

  // Of each batch that has come and was not reported before, the rank that has encoded it.
  std::vector<std::int32_t> arrived();
  // Waits for the oldest batch that another rank has not sent yet; false where there is none.
  bool await();

  // Of a sequence, once; waits for it. Throws internal where nobody encodes it.
  Memory take(std::int32_t sequence);

  // Waits for what nobody will take: a stopped run leaves such.
  void finish();

 private:
  struct Batch {
    Descriptor command;
    std::shared_ptr<const std::vector<float>> rows;  // null: not encoded here yet
    std::unique_ptr<Ticket> received;                // null: here, or not from elsewhere
    bool reported = false;
    int taken = 0;  // entries
    bool here() { return rows && (!received || received->done()); }
  };

  static void wait_for(Batch& batch);

  Transport& transport_;
  std::int64_t hidden_;
  std::deque<Batch> batches_;
};

}  // namespace diffuse

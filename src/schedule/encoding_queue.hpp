#pragma once
// Which rank encodes which inputs: part of the schedule, pure like it. Inputs are dealt out whole, in
// batches, to the ranks that encode: the next one to who has least under way, so that a rank with more other
// work gets less of this; of equals to who has had least.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace diffuse {

// `sequence` counts in the order given to the policy.
struct Encode {
  std::int32_t encoder = 0;  // the rank
  std::vector<std::size_t> sequences;
};

// The oldest batch that is under way at a rank has become memories.
struct Encoded {
  std::int32_t encoder = 0;
};

class EncodingQueue {
 public:
  // The ranks, in the order in which they are served first; most rows of memory and inputs of a batch (one
  // input may have more rows). Throws internal on none of these, or a rank that stands there twice.
  EncodingQueue(std::vector<std::int32_t> encoders, std::int64_t most_rows, std::int32_t most_inputs);

  // Inputs are taken by prompt length, ascending and stable.
  void add(std::size_t sequence, std::int64_t prompt_tokens, std::int64_t memory_rows);

  std::size_t waiting() const { return waiting_.size(); }         // not dealt out yet
  std::size_t under_way() const { return under_way_; }            // dealt out and not encoded yet
  bool under_way_before(std::int32_t rank) const;                 // at a lower rank
  std::size_t next() const { return waiting_.front().sequence; }  // where one waits

  // The next batch; none where nothing waits or every rank has enough. Rank 0 has one batch at a time. The
  // others may have a second one lie ready, so that they need not wait for it; not of the last inputs, for
  // whoever is free first is to take those. A batch is no more than an even share of what waits.
  std::optional<Encode> deal();

  // Returns the sequences of the batch. Throws internal where that rank has none.
  std::vector<std::size_t> on(const Encoded& encoded);

  void cancel();  // what waits

 private:
  struct Input {
    std::size_t sequence = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t memory_rows = 0;
  };
  struct Rank {
    std::int32_t rank = 0;
    std::deque<std::vector<std::size_t>> batches;  // under way
    std::int64_t rows = 0;                         // that it was given
  };

  Rank* least_busy();

  std::vector<Rank> ranks_;
  std::int64_t most_rows_;
  std::size_t most_inputs_;
  std::deque<Input> waiting_;
  std::int64_t rows_waiting_ = 0;
  std::size_t under_way_ = 0;
};

}  // namespace diffuse

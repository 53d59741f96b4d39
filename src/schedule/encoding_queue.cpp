#include "schedule/encoding_queue.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace diffuse {

EncodingQueue::EncodingQueue(std::vector<std::int32_t> encoders, std::int64_t most_rows,
                             std::int32_t most_inputs)
    : most_rows_(most_rows), most_inputs_(static_cast<std::size_t>(std::max(most_inputs, 0))) {
  for (const auto rank : encoders) {
    if (std::ranges::any_of(ranks_, [&](const Rank& other) { return other.rank == rank; }))
      throw_internal("schedule: a rank that encodes is named twice");
    ranks_.push_back({rank, {}, 0});
  }
  if (ranks_.empty() || most_rows < 1 || most_inputs < 1)
    throw_internal("schedule: nobody encodes, or a batch to encode can hold nothing");
}

void EncodingQueue::add(std::size_t sequence, std::int64_t prompt_tokens, std::int64_t memory_rows) {
  rows_waiting_ += memory_rows;
  waiting_.insert(std::ranges::upper_bound(waiting_, prompt_tokens, {}, &Input::prompt_tokens),
                  {sequence, prompt_tokens, memory_rows});
}

EncodingQueue::Rank* EncodingQueue::least_busy() {
  auto& rank = *std::ranges::min_element(
      ranks_, {}, [](const Rank& each) { return std::pair(each.batches.size(), each.rows); });
  if (rank.batches.empty()) return &rank;
  // All have one.
  for (auto& ahead : ranks_) {
    if (ahead.rank != 0 && ahead.batches.size() == 1 && waiting_.size() >= ranks_.size()) return &ahead;
  }
  return nullptr;
}

std::optional<Encode> EncodingQueue::deal() {
  auto* rank = waiting_.empty() ? nullptr : least_busy();
  if (rank == nullptr) return std::nullopt;
  const auto free = std::ranges::count_if(ranks_, [](const Rank& each) { return each.batches.empty(); });
  const auto sharers = free > 0 ? static_cast<std::int64_t>(free) : static_cast<std::int64_t>(ranks_.size());
  const auto most_rows = std::min(most_rows_, (rows_waiting_ + sharers - 1) / sharers);
  Encode batch{rank->rank, {}};
  std::int64_t rows = 0;
  while (!waiting_.empty() && batch.sequences.size() < most_inputs_) {
    const auto& input = waiting_.front();
    if (!batch.sequences.empty() && rows + input.memory_rows > most_rows) break;
    rows += input.memory_rows;
    batch.sequences.push_back(input.sequence);
    waiting_.pop_front();
  }
  rows_waiting_ -= rows;
  under_way_ += batch.sequences.size();
  rank->batches.push_back(batch.sequences);
  rank->rows += rows;
  return batch;
}

std::vector<std::size_t> EncodingQueue::on(const Encoded& encoded) {
  const auto rank = std::ranges::find(ranks_, encoded.encoder, &Rank::rank);
  if (rank == ranks_.end() || rank->batches.empty())
    throw_internal("schedule: the end of a batch that nobody encodes");
  auto sequences = std::move(rank->batches.front());
  rank->batches.pop_front();
  under_way_ -= sequences.size();
  return sequences;
}

bool EncodingQueue::under_way_before(std::int32_t rank) const {
  return std::ranges::any_of(ranks_,
                             [&](const Rank& each) { return each.rank < rank && !each.batches.empty(); });
}

void EncodingQueue::cancel() {
  waiting_.clear();
  rows_waiting_ = 0;
}

}  // namespace diffuse

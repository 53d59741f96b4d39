#include "schedule/encoding_queue.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"

namespace diffuse {
namespace {

using testing::ElementsAre;

// Batches as they are dealt out at once: rank, and how many inputs.
std::vector<std::pair<std::int32_t, std::size_t>> dealt(EncodingQueue& queue) {
  std::vector<std::pair<std::int32_t, std::size_t>> batches;
  while (const auto batch = queue.deal()) batches.emplace_back(batch->encoder, batch->sequences.size());
  return batches;
}

void add(EncodingQueue& queue, std::size_t inputs, std::int64_t rows) {
  for (std::size_t i = 0; i < inputs; ++i) queue.add(i, 1, rows);
}

TEST(EncodingQueue, AFewInputsAreSharedEvenly) {
  EncodingQueue queue({1, 0}, 1000, 64);
  add(queue, 8, 10);
  EXPECT_THAT(dealt(queue), ElementsAre(std::pair(1, 4U), std::pair(0, 4U)));
  EXPECT_EQ(queue.waiting(), 0U);
  EXPECT_EQ(queue.under_way(), 8U);
}

TEST(EncodingQueue, OneRankTakesAll) {
  for (const std::int32_t rank : {0, 3}) {
    EncodingQueue queue({rank}, 1000, 64);
    add(queue, 8, 10);
    EXPECT_THAT(dealt(queue), ElementsAre(std::pair(rank, 8U)));
  }
}

// An input as large as a batch: whoever has done takes the next, and the others than rank 0 have one ready.
TEST(EncodingQueue, WhoIsFirstFreeTakesTheNext) {
  EncodingQueue queue({1, 2, 0}, 10, 64);
  add(queue, 7, 10);
  EXPECT_THAT(dealt(queue), ElementsAre(std::pair(1, 1U), std::pair(2, 1U), std::pair(0, 1U),
                                        std::pair(1, 1U), std::pair(2, 1U)));
  // Two are left: no longer ahead, for rank 0 may be the first that is free.
  EXPECT_THAT(queue.on({1}), ElementsAre(0));
  EXPECT_THAT(dealt(queue), ElementsAre());
  EXPECT_THAT(queue.on({0}), ElementsAre(2));
  EXPECT_THAT(dealt(queue), ElementsAre(std::pair(0, 1U)));
  EXPECT_THAT(queue.on({1}), ElementsAre(3));
  EXPECT_THAT(dealt(queue), ElementsAre(std::pair(1, 1U)));
  EXPECT_THAT(queue.on({2}), ElementsAre(1));
  EXPECT_THAT(queue.on({2}), ElementsAre(4));
  EXPECT_EQ(queue.under_way(), 2U);
}

// Where inputs come up one by one and all ranks are free, they take turns.
TEST(EncodingQueue, EqualsTakeTurns) {
  EncodingQueue queue({1, 0}, 10, 64);
  std::vector<std::int32_t> ranks;
  for (std::size_t i = 0; i < 4; ++i) {
    queue.add(i, 1, 10);
    ranks.push_back(queue.deal()->encoder);
    queue.on({ranks.back()});
  }
  EXPECT_THAT(ranks, ElementsAre(1, 0, 1, 0));
}

TEST(EncodingQueue, BatchesKeepTheirBounds) {
  EncodingQueue queue({1, 0}, 25, 3);
  add(queue, 12, 10);
  EXPECT_THAT(dealt(queue), ElementsAre(std::pair(1, 2U), std::pair(0, 2U), std::pair(1, 2U)));
  EncodingQueue few({1}, 1000, 3);
  add(few, 8, 10);
  EXPECT_THAT(dealt(few), ElementsAre(std::pair(1, 3U), std::pair(1, 3U)));
  EncodingQueue large({0}, 25, 3);
  large.add(0, 1, 100);
  EXPECT_THAT(dealt(large), ElementsAre(std::pair(0, 1U)));
}

TEST(EncodingQueue, ShortPromptsFirstAndEqualsInTheirOrder) {
  EncodingQueue queue({0}, 1000, 64);
  queue.add(0, 5, 1);
  queue.add(1, 2, 1);
  queue.add(2, 5, 1);
  queue.add(3, 2, 1);
  EXPECT_EQ(queue.next(), 1U);
  EXPECT_THAT(queue.deal()->sequences, ElementsAre(1, 3, 0, 2));
}

TEST(EncodingQueue, WhatIsUnderWayOutlivesACancel) {
  EncodingQueue queue({1, 0}, 10, 64);
  add(queue, 9, 10);
  dealt(queue);
  queue.cancel();
  EXPECT_EQ(queue.waiting(), 0U);
  EXPECT_EQ(queue.under_way(), 3U);
  queue.add(9, 1, 10);
  EXPECT_EQ(queue.on({0}).size(), 1U);
  EXPECT_EQ(queue.deal()->sequences.front(), 9U);
}

TEST(EncodingQueue, NonsenseIsRefused) {
  EXPECT_THROW(EncodingQueue({}, 1, 1), Error);
  EXPECT_THROW(EncodingQueue({0, 0}, 1, 1), Error);
  EXPECT_THROW(EncodingQueue({0}, 0, 1), Error);
  EXPECT_THROW(EncodingQueue({0}, 1, 0), Error);
  EncodingQueue queue({1, 0}, 1, 1);
  EXPECT_THROW(queue.on({0}), Error);
  EXPECT_THROW(queue.on({2}), Error);
}

}  // namespace
}  // namespace diffuse

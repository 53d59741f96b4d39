// Pages of slots: shared ones stay until the last slot has left them, and lanes take over what others held.

#include "slice/kv_pages.hpp"

#include <gtest/gtest.h>

#include "backend/backend.hpp"
#include "core/error.hpp"

namespace diffuse {
namespace {

std::vector<std::int32_t> listed(std::span<const std::int32_t> pages) {
  return {pages.begin(), pages.end()};
}

TEST(KvPages, grow_with_what_is_run) {
  KvPages pages(4);
  pages.admit(0);
  EXPECT_TRUE(pages.of(0).empty());
  pages.grow(0, 1);
  EXPECT_EQ(pages.of(0).size(), 1U);
  pages.grow(0, kPageTokens);
  EXPECT_EQ(pages.of(0).size(), 1U);
  pages.grow(0, kPageTokens + 1);
  EXPECT_EQ(pages.of(0).size(), 2U);
  EXPECT_THROW(pages.grow(0, 5 * kPageTokens), Error);
}

TEST(KvPages, a_shared_memory_stays_until_its_last_slot_leaves) {
  KvPages pages(3);
  pages.admit(0, 2 * kPageTokens);
  pages.admit(1, 2 * kPageTokens, 0);
  EXPECT_EQ(listed(pages.memory_of(0)), listed(pages.memory_of(1)));
  pages.release(0);
  pages.admit(0);
  pages.grow(0, kPageTokens);
  EXPECT_THROW(pages.grow(0, 2 * kPageTokens), Error);  // the memory's two pages are still held
  pages.release(1);
  pages.grow(0, 3 * kPageTokens);
}

TEST(KvPages, a_kept_memory_waits_for_the_next_of_its_slot) {
  KvPages pages(2);
  pages.admit(3, kPageTokens);
  const auto memory = listed(pages.memory_of(3));
  pages.grow(3, 1);
  pages.release(3, true);
  pages.admit(3, kPageTokens, 3);
  EXPECT_EQ(listed(pages.memory_of(3)), memory);
  EXPECT_TRUE(pages.of(3).empty());
  pages.release(3);
  EXPECT_THROW(pages.admit(3, kPageTokens, 3), Error);  // nothing was kept
}

TEST(KvPages, lanes_share_whole_pages_and_copy_the_last) {
  KvPages pages(8);
  for (const auto slot : {0, 1, 2}) pages.admit(slot);
  pages.grow(0, kPageTokens + 5);
  const auto first = listed(pages.of(0));
  const std::vector<LaneMove> moves = {{1, 0, kPageTokens + 5}, {2, 0, kPageTokens + 5}};
  const auto copies = pages.move(moves);
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(copies[0].from, first[1]);
  EXPECT_EQ(pages.of(1)[0], first[0]);
  EXPECT_EQ(pages.of(1)[1], copies[0].to);
  EXPECT_EQ(pages.of(2)[1], copies[1].to);
  EXPECT_NE(copies[0].to, copies[1].to);
}

// What one gives up another may take: nobody sees half of a step.
TEST(KvPages, moves_happen_at_once) {
  KvPages pages(8);
  for (const auto slot : {0, 1, 2}) {
    pages.admit(slot);
    pages.grow(slot, 2 * kPageTokens);
  }
  const auto before = std::vector{listed(pages.of(0)), listed(pages.of(1)), listed(pages.of(2))};
  const std::vector<LaneMove> moves = {
      {0, 1, 2 * kPageTokens}, {1, 2, 2 * kPageTokens}, {2, 0, 2 * kPageTokens}};
  EXPECT_TRUE(pages.move(moves).empty());  // whole pages alone
  EXPECT_EQ(listed(pages.of(0)), before[1]);
  EXPECT_EQ(listed(pages.of(1)), before[2]);
  EXPECT_EQ(listed(pages.of(2)), before[0]);
  for (const auto slot : {0, 1, 2}) pages.release(slot);
  pages.admit(5);
  pages.grow(5, 8 * kPageTokens);  // every page is free again, once
  EXPECT_EQ(pages.of(5).size(), 8U);
  EXPECT_THROW(pages.grow(5, 9 * kPageTokens), Error);
}

TEST(KvPages, what_is_not_held_cannot_be_taken_over) {
  KvPages pages(4);
  pages.admit(0);
  pages.admit(1);
  pages.grow(0, 3);
  const LaneMove far{1, 0, kPageTokens + 1};
  EXPECT_THROW(pages.move(std::span(&far, 1)), Error);
  EXPECT_THROW(pages.admit(0), Error);
  EXPECT_THROW(pages.release(2), Error);
}

}  // namespace
}  // namespace diffuse

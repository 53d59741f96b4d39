#include "core/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace diffuse {
namespace {

class Threads : public testing::TestWithParam<int> {};

TEST_P(Threads, RunEveryIndexOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (const std::size_t count : {0U, 1U, 2U, 3U, 7U, 100U, 10000U}) {
    std::vector<std::atomic<int>> seen(count);
    pool.parallel_for(count, [&](std::size_t index, int thread) {
      EXPECT_LT(thread, GetParam());
      ++seen[index];
    });
    for (const auto& times : seen) EXPECT_EQ(times.load(), 1);
  }
}

TEST_P(Threads, SeeWhatTheCallerWroteAndTheCallerSeesTheirs) {
  ThreadPool pool(GetParam());
  std::vector<int> values(64, 0);
  for (int round = 1; round <= 2000; ++round) {
    pool.parallel_for(values.size(), [&](std::size_t index, int) { values[index] += round; });
  }
  for (const auto value : values) EXPECT_EQ(value, 2000 * 2001 / 2);
}

TEST_P(Threads, PassOnTheFirstException) {
  ThreadPool pool(GetParam());
  const auto fail = [](std::size_t index, int) {
    if (index == 5) throw std::runtime_error("five");
  };
  EXPECT_THROW(pool.parallel_for(100, fail), std::runtime_error);
  std::atomic<int> ran{0};
  pool.parallel_for(10, [&](std::size_t, int) { ++ran; });
  EXPECT_EQ(ran.load(), 10);
}

INSTANTIATE_TEST_SUITE_P(Counts, Threads, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace diffuse

// Which shapes are recorded, and which recordings are kept.

#include "backend/cuda/shape_cache.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace diffuse::cuda {
namespace {

using Cache = ShapeCache<std::string, std::unique_ptr<int>>;  // recordings that cannot be copied

constexpr ShapeLimits kSmall{.sightings = 2, .kept = 2, .counted = 4};

// Meets a shape until it is recorded.
std::optional<std::unique_ptr<int>> record(Cache& cache, const std::string& shape, int recording) {
  while (cache.see(shape) != Advice::record) {
  }
  return cache.keep(shape, std::make_unique<int>(recording));
}

TEST(ShapeCache, RecordsAShapeThatWasMetSomeTimes) {
  Cache cache(kSmall);
  EXPECT_EQ(cache.see("a"), Advice::run);
  EXPECT_EQ(cache.see("b"), Advice::run);
  EXPECT_EQ(cache.see("a"), Advice::run);
  EXPECT_EQ(cache.see("a"), Advice::record);
  EXPECT_EQ(cache.see("a"), Advice::record) << "until it is";
  EXPECT_FALSE(cache.keep("a", std::make_unique<int>(7)));
  EXPECT_EQ(cache.see("a"), Advice::replay);
  EXPECT_EQ(*cache.at("a"), 7);
  EXPECT_EQ(cache.see("b"), Advice::run);
  EXPECT_EQ(cache.see("b"), Advice::record);
}

TEST(ShapeCache, DoesNotTryAgainWhatCannotBeRecorded) {
  Cache cache(kSmall);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cache.see("a"), Advice::run);
  EXPECT_EQ(cache.see("a"), Advice::record);
  cache.give_up("a");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(cache.see("a"), Advice::run);
  EXPECT_EQ(cache.recordings(), 0U);
}

TEST(ShapeCache, GivesBackTheRecordingThatWasUsedLongestAgo) {
  Cache cache(kSmall);
  EXPECT_FALSE(record(cache, "a", 1));
  EXPECT_FALSE(record(cache, "b", 2));
  EXPECT_EQ(cache.see("a"), Advice::replay);
  const auto old = record(cache, "c", 3);
  ASSERT_TRUE(old);
  EXPECT_EQ(**old, 2);
  EXPECT_EQ(cache.recordings(), 2U);
  EXPECT_EQ(cache.see("a"), Advice::replay);
  EXPECT_EQ(cache.see("c"), Advice::replay);
  EXPECT_EQ(cache.see("b"), Advice::run)
      << "counted anew, so that two that take turns are not recorded forever";
}

TEST(ShapeCache, ForgetsShapesWithoutARecordingFirst) {
  Cache cache(kSmall);
  EXPECT_FALSE(record(cache, "a", 1));
  EXPECT_FALSE(record(cache, "b", 2));
  EXPECT_EQ(cache.see("c"), Advice::run);
  EXPECT_EQ(cache.see("d"), Advice::run);
  EXPECT_EQ(cache.see("e"), Advice::run) << "and c goes for it";
  EXPECT_EQ(cache.see("d"), Advice::run);
  EXPECT_EQ(cache.see("d"), Advice::record) << "d was remembered";
  EXPECT_EQ(cache.see("c"), Advice::run) << "and e goes for it";
  EXPECT_EQ(cache.see("c"), Advice::run);
  EXPECT_EQ(cache.see("c"), Advice::record) << "c was not: it began anew";
  EXPECT_EQ(cache.see("a"), Advice::replay);
  EXPECT_EQ(cache.see("b"), Advice::replay);
}

TEST(ShapeCache, ClearsAll) {
  Cache cache(kSmall);
  EXPECT_FALSE(record(cache, "a", 1));
  cache.clear();
  EXPECT_EQ(cache.recordings(), 0U);
  EXPECT_EQ(cache.see("a"), Advice::run);
}

}  // namespace
}  // namespace diffuse::cuda

#include "schedule/group_tuner.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace diffuse {
namespace {

// Decode rounds in which `rate` says how many tokens a second a number of groups gives.
struct Rounds {
  std::function<double(std::int32_t)> rate;
  std::int64_t live = 16;
  std::int32_t least = 1;
  std::int32_t most = 4;
  double now = 0;

  void run(GroupTuner& tuner, int rounds) {
    for (int round = 0; round < rounds; ++round) {
      const auto groups = tuner.groups();
      ASSERT_GE(groups, least);
      ASSERT_LE(groups, most);
      for (std::int32_t group = 0; group < groups; ++group) {
        const auto tokens = live / groups + (group < live % groups ? 1 : 0);
        now += static_cast<double>(tokens) / rate(groups);
        tuner.on({.seconds = now, .tokens = tokens, .live = live, .least = least, .most = most});
        if (tuner.groups() != groups) break;
      }
    }
  }
};

TEST(GroupTuner, FindsOneGroupWhereStagesShareAMemory) {
  GroupTuner tuner(2);
  Rounds rounds{[](std::int32_t groups) { return groups == 1 ? 412.0 : 292.0; }};
  rounds.run(tuner, 40);
  EXPECT_EQ(tuner.groups(), 1);
}

TEST(GroupTuner, WalksToTheBestNumberAndStaysThere) {
  GroupTuner tuner(2);
  Rounds rounds{[](std::int32_t groups) { return groups == 4 ? 500.0 : 100.0 + 100.0 * groups; }};
  rounds.run(tuner, 90);
  EXPECT_EQ(tuner.groups(), 4);
  rounds.rate = [](std::int32_t groups) { return groups == 4 ? 1.0 : 1000.0; };
  rounds.run(tuner, 60);
  EXPECT_EQ(tuner.groups(), 4) << "settled for these sequences";
}

// The first measurement is three times as slow as the number is, and no more than that.
TEST(GroupTuner, AHiccupDoesNotDecide) {
  GroupTuner tuner(2);
  Rounds rounds{[](std::int32_t groups) { return groups == 2 ? 580.0 / 3 : 350.0; }};
  for (int round = 0; round < 20 && tuner.groups() == 2; ++round) rounds.run(tuner, 1);
  ASSERT_EQ(tuner.groups(), 1);
  rounds.rate = [](std::int32_t groups) { return groups == 2 ? 580.0 : 350.0; };
  rounds.run(tuner, 60);
  EXPECT_EQ(tuner.groups(), 2);
}

TEST(GroupTuner, AGainWithinTheNoiseChangesNothing) {
  GroupTuner tuner(3);
  Rounds rounds{[](std::int32_t groups) { return groups == 3 ? 100.0 : 102.0; }};
  rounds.run(tuner, 60);
  EXPECT_EQ(tuner.groups(), 3);
}

TEST(GroupTuner, LooksAgainWhenTheLiveSequencesChangeMuch) {
  GroupTuner tuner(2);
  Rounds rounds{[](std::int32_t groups) { return groups == 1 ? 400.0 : 300.0; }};
  rounds.run(tuner, 40);
  ASSERT_EQ(tuner.groups(), 1);
  rounds.live = 40;
  rounds.rate = [](std::int32_t groups) { return groups == 3 ? 600.0 : 300.0 + groups; };
  rounds.run(tuner, 60);
  EXPECT_EQ(tuner.groups(), 1) << "no better neighbour";
  rounds.live = 10;
  rounds.rate = [](std::int32_t groups) { return 100.0 * groups; };
  rounds.run(tuner, 60);
  EXPECT_EQ(tuner.groups(), 4);
}

TEST(GroupTuner, KeepsTheBounds) {
  GroupTuner tuner(2);
  Rounds rounds{[](std::int32_t groups) { return 100.0 / groups; }};
  rounds.run(tuner, 40);
  ASSERT_EQ(tuner.groups(), 1);
  tuner.on({.seconds = rounds.now, .tokens = 16, .live = 16, .least = 3, .most = 4});
  EXPECT_EQ(tuner.groups(), 3);
}

TEST(GroupTuner, ADisturbedMeasurementBeginsAgain) {
  GroupTuner tuner(2);
  Rounds rounds{[](std::int32_t groups) { return groups == 1 ? 400.0 : 300.0; }};
  for (int i = 0; i < 30; ++i) {
    rounds.run(tuner, 4);
    tuner.disturbed();
    EXPECT_EQ(tuner.groups(), 2);
  }
}

}  // namespace
}  // namespace diffuse

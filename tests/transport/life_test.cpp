#include "transport/life.hpp"

#include <gmock/gmock.h>

#include <vector>

namespace diffuse {
namespace {

using testing::HasSubstr;

LifeClock::time_point at(int second) {
  return LifeClock::time_point(std::chrono::seconds(second));
}

TEST(Life, AWorkingRankWasAliveWhenSeen) {
  const std::vector<LifeState> states{{at(90)}, {at(80)}};
  EXPECT_EQ(last_life(1, states).time, at(80));
  EXPECT_EQ(last_life(1, states).silent, 1);
}

TEST(Life, AChainIsAliveWhileItsEndWorks) {
  const std::vector<LifeState> states{{at(99), 1, at(5)}, {at(98), 2, at(5)}, {at(97)}};
  EXPECT_EQ(last_life(0, states).time, at(97));
  EXPECT_EQ(last_life(0, states).silent, 2);
}

TEST(Life, AChainDiesWithItsEnd) {
  const std::vector<LifeState> states{{at(99), 1, at(5)}, {at(98), 2, at(7)}, {at(20)}};
  const auto life = last_life(0, states);
  EXPECT_EQ(life.time, at(20));
  EXPECT_EQ(life.silent, 2);
  EXPECT_THAT(describe_silence(at(100), at(30), 0, life, {}, "layer 3"),
              HasSubstr("waited 70 s for rank 0: layer 3; it waits in turn for rank 2, which gives no sign"));
}

TEST(Life, AChainDiesWithItsMiddle) {
  const std::vector<LifeState> states{{at(99), 1, at(5)}, {at(40), 2, at(39)}, {at(98)}};
  EXPECT_EQ(last_life(0, states).time, at(40));
  EXPECT_EQ(last_life(0, states).silent, 1);
}

TEST(Life, ACircleIsAsYoungAsItsYoungestWait) {
  const std::vector<LifeState> states{{at(99), 1, at(5)}, {at(98), 0, at(11)}};
  const auto life = last_life(1, states);
  EXPECT_EQ(life.time, at(11));
  EXPECT_TRUE(life.circle);
  EXPECT_THAT(describe_silence(at(99), at(5), 1, life, {}, ""), HasSubstr("in a circle"));
}

TEST(Life, AStoppedRankInACircleIsNamed) {
  const std::vector<std::string> hosts{"a", "b"};
  const std::vector<LifeState> states{{at(99), 1, at(5)}, {at(12), 0, at(11)}};
  EXPECT_EQ(describe_silence(at(99), at(9), 1, last_life(1, states), hosts, "layer 2 (carry)"),
            "waited 88 s for rank 1 (host b): layer 2 (carry); it gives no sign of life");
}

TEST(Life, ShortTimesKeepADigit) {
  const std::vector<LifeState> states{{at(1)}};
  const auto now = at(2) + std::chrono::milliseconds(240);
  EXPECT_THAT(describe_silence(now, at(1), 0, last_life(0, states), {}, ""),
              HasSubstr("waited 1.2 s for rank 0;"));
}

}  // namespace
}  // namespace diffuse

#include "schedule/policy.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <variant>

#include "core/error.hpp"

namespace diffuse {
namespace {

using testing::ElementsAre;

ScheduleConfig config(int stages, std::int64_t rows, std::int32_t group) {
  ScheduleConfig config;
  config.stages = stages;
  config.max_rows_per_step = rows;
  config.max_group = group;
  config.kv_pages = 1000;
  config.page_tokens = 4;
  return config;
}

// The step among the actions; the test fails without one.
Descriptor step_of(const std::vector<Action>& actions) {
  for (const auto& action : actions)
    if (const auto* run = std::get_if<Run>(&action)) return run->step;
  ADD_FAILURE() << "no step";
  return {};
}

std::vector<std::size_t> admitted(const std::vector<Action>& actions) {
  std::vector<std::size_t> sequences;
  for (const auto& action : actions)
    if (const auto* admit = std::get_if<Admit>(&action)) sequences.push_back(admit->sequence);
  return sequences;
}

void answer(AutoregressivePolicy& policy, std::uint64_t number, std::vector<std::uint8_t> flags) {
  policy.on({number, flags});
}

TEST(Policy, NothingToDoIsFinished) {
  AutoregressivePolicy policy(config(3, 8, 4), {});
  EXPECT_TRUE(policy.finished());
  EXPECT_TRUE(policy.next().empty());
  EXPECT_EQ(policy.slots(), 0);
}

TEST(Policy, ChunksOfAPromptFollowWithoutWaitingAndOnlyTheLastSamples) {
  const SequenceNeed need{10, 5};
  AutoregressivePolicy policy(config(3, 4, 4), std::span(&need, 1));
  const std::int64_t firsts[] = {0, 4, 8};
  const std::int32_t rows[] = {4, 4, 2};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto step = step_of(policy.next());
    ASSERT_EQ(step.entries, 1);
    EXPECT_EQ(step.number, i + 1);
    EXPECT_EQ(step.entry[0].first_position, firsts[i]);
    EXPECT_EQ(step.entry[0].rows, rows[i]);
    EXPECT_EQ(step.entry[0].sample, i == 2 ? 1 : 0);
  }
  EXPECT_TRUE(policy.next().empty());
  answer(policy, 1, {});
  answer(policy, 2, {});
  EXPECT_TRUE(policy.next().empty());
  answer(policy, 3, {0});
  const auto decode = step_of(policy.next());
  EXPECT_EQ(decode.entry[0].first_position, 10);
  EXPECT_EQ(decode.entry[0].sample, 1);
}

TEST(Policy, ShortPromptsShareAStepInOrderOfLength) {
  const std::vector<SequenceNeed> needs{{5, 1}, {2, 1}, {3, 1}, {2, 1}};
  AutoregressivePolicy policy(config(2, 8, 4), needs);
  const auto first = policy.next();
  EXPECT_THAT(admitted(first), ElementsAre(1, 3, 2, 0));
  const auto step = step_of(first);
  ASSERT_EQ(step.entries, 4);
  EXPECT_EQ(step.rows(), 8);
  EXPECT_EQ(step.samples(), 3);  // one row of the longest fits only
  EXPECT_EQ(step_of(policy.next()).rows(), 4);
}

TEST(Policy, AGuidedSequenceRunsInPairs) {
  auto two = config(2, 1, 4);
  two.most_lanes = 2;
  const std::vector<SequenceNeed> needs(
      2, {.prompt_tokens = 2, .max_new_tokens = 2, .memory_rows = 9, .lanes = 2, .guided = true});
  EXPECT_EQ(pages_needed(needs[0], 4), 2 + 3 + 1);  // a lane each, the memory, and a row of zeros
  AutoregressivePolicy policy(two, needs);
  ASSERT_TRUE(std::holds_alternative<Encode>(policy.next().at(0)));
  policy.on(Encoded{});
  const auto first = policy.next();
  ASSERT_EQ(first.size(), 3U);
  const auto& lane = std::get<Admit>(first[0]);
  const auto& guide = std::get<Admit>(first[1]);
  EXPECT_FALSE(lane.no_memory);
  EXPECT_TRUE(guide.no_memory);
  EXPECT_EQ(guide.memory_from, -1);
  const auto pair = [&](const Descriptor& step, std::int64_t position, bool sampling) {
    ASSERT_EQ(step.entries, 2);  // a chunk has one row, and a pair runs even so
    EXPECT_EQ(step.entry[0].slot, lane.slot);
    EXPECT_EQ(step.entry[1].slot, guide.slot);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(step.entry[static_cast<std::size_t>(i)].first_position, position);
      EXPECT_EQ(step.entry[static_cast<std::size_t>(i)].rows, 1);
    }
    EXPECT_EQ(step.entry[0].sample, sampling ? 1 : 0);
    EXPECT_EQ(step.entry[1].guides, sampling ? 1 : 0);
    EXPECT_EQ(step.samples(), sampling ? 1 : 0);
  };
  pair(step_of(first), 0, false);
  pair(step_of(policy.next()), 1, true);
  answer(policy, 1, {});
  answer(policy, 2, {0});
  auto decode = policy.next();
  while (step_of(decode).entry[0].slot != lane.slot) decode = policy.next();
  pair(step_of(decode), 2, true);
}

TEST(Policy, OneTokenIsOneStepAndNoneIsAPromptWithoutSample) {
  const std::vector<SequenceNeed> needs{{3, 0}, {3, 1}};
  AutoregressivePolicy policy(config(1, 8, 4), needs);
  const auto step = step_of(policy.next());
  EXPECT_EQ(step.samples(), 1);
  answer(policy, 1, {0});
  const auto rest = policy.next();
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<Release>(rest[0]));
  EXPECT_TRUE(std::holds_alternative<Release>(rest[1]));
  EXPECT_TRUE(policy.finished());
  EXPECT_EQ(policy.pages_in_use(), 0);
}

TEST(Policy, WhatNeverFitsIsReported) {
  auto tight = config(2, 8, 4);
  tight.kv_pages = 4;  // 16 positions
  const auto huge = std::int64_t{1} << 62;
  const std::vector<SequenceNeed> needs{{0, 3}, {15, 2}, {15, 1}, {huge, huge}, {4, -1}};
  AutoregressivePolicy policy(tight, needs);
  EXPECT_THAT(policy.unfit(), ElementsAre(0, 1, 3, 4));
  EXPECT_EQ(policy.waiting(), 1U);
}

TEST(Policy, AFreedPlaceIsRefilledInTheStepOfTheGroupThatIsReady) {
  auto one = config(1, 8, 2);
  one.groups = 1;
  const std::vector<SequenceNeed> needs{{2, 9}, {2, 9}, {2, 9}};
  AutoregressivePolicy policy(one, needs);
  EXPECT_EQ(policy.slots(), 2);
  EXPECT_THAT(admitted(policy.next()), ElementsAre(0, 1));
  answer(policy, 1, {1, 0});
  const auto actions = policy.next();
  ASSERT_EQ(actions.size(), 3U);
  EXPECT_EQ(std::get<Release>(actions[0]).sequence, 0U);
  EXPECT_EQ(std::get<Admit>(actions[1]).sequence, 2U);
  EXPECT_EQ(std::get<Admit>(actions[1]).slot, std::get<Release>(actions[0]).slot);
  const auto step = step_of(actions);
  ASSERT_EQ(step.entries, 2);
  EXPECT_EQ(step.entry[0].first_position, 2);  // the group first
  EXPECT_EQ(step.entry[1].rows, 2);
}

TEST(Policy, GroupsAreOfEqualSize) {
  auto three = config(3, 64, 8);
  three.groups = 3;
  const std::vector<SequenceNeed> needs(12, SequenceNeed{4, 50});
  AutoregressivePolicy policy(three, needs);
  step_of(policy.next());
  answer(policy, 1, std::vector<std::uint8_t>(12, 0));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step_of(policy.next()).entries, 4);
  EXPECT_TRUE(policy.next().empty());

  // Three of the first group end: it is filled up again by the second when that comes back.
  answer(policy, 2, {1, 1, 1, 0});
  EXPECT_EQ(step_of(policy.next()).entries, 1);
  answer(policy, 3, {0, 0, 0, 0});
  EXPECT_EQ(step_of(policy.next()).entries, 3);
}

TEST(Policy, StepsInFlightAreBounded) {
  auto bounded = config(4, 1, 4);
  bounded.max_in_flight = 2;
  const SequenceNeed need{100, 1};
  AutoregressivePolicy policy(bounded, std::span(&need, 1));
  step_of(policy.next());
  step_of(policy.next());
  EXPECT_TRUE(policy.next().empty());
  answer(policy, 1, {});
  step_of(policy.next());
}

TEST(Policy, CancelWaitingRunsWhatIsAdmittedToItsEnd) {
  auto one = config(1, 2, 1);
  one.groups = 1;
  const std::vector<SequenceNeed> needs(2, SequenceNeed{2, 2});
  AutoregressivePolicy policy(one, needs);
  step_of(policy.next());
  policy.cancel_waiting();
  answer(policy, 1, {0});
  EXPECT_FALSE(policy.finished());
  step_of(policy.next());
  answer(policy, 2, {0});
  policy.next();
  EXPECT_TRUE(policy.finished());
}

TEST(Policy, CancelRunningStartsNoStepAndReleasesAll) {
  const std::vector<SequenceNeed> needs(3, SequenceNeed{2, 50});
  AutoregressivePolicy policy(config(2, 2, 4), needs);
  step_of(policy.next());
  step_of(policy.next());
  policy.cancel_running();
  EXPECT_TRUE(policy.next().empty());
  EXPECT_FALSE(policy.finished());
  answer(policy, 1, {1});
  answer(policy, 2, {0});
  const auto actions = policy.next();
  EXPECT_EQ(actions.size(), 2U);
  EXPECT_TRUE(std::all_of(actions.begin(), actions.end(),
                          [](const Action& action) { return std::holds_alternative<Release>(action); }));
  EXPECT_TRUE(policy.finished());
  EXPECT_EQ(policy.pages_in_use(), 0);
}

TEST(Policy, IsAValue) {
  const std::vector<SequenceNeed> needs(2, SequenceNeed{2, 3});
  AutoregressivePolicy policy(config(2, 8, 4), needs);
  step_of(policy.next());
  AutoregressivePolicy copy = policy;
  answer(copy, 1, {1, 1});
  copy.next();
  EXPECT_TRUE(copy.finished());
  EXPECT_FALSE(policy.finished());
  EXPECT_EQ(policy.in_flight(), 1U);
}

TEST(Policy, RefusesAnswersThatDoNotFit) {
  const SequenceNeed need{2, 3};
  AutoregressivePolicy policy(config(2, 8, 4), std::span(&need, 1));
  EXPECT_THROW(answer(policy, 1, {}), Error);
  step_of(policy.next());
  auto copy = policy;
  EXPECT_THROW(answer(copy, 2, {0}), Error);
  EXPECT_THROW(answer(policy, 1, {0, 0}), Error);
}

TEST(Policy, RefusesAConfigThatMakesNoSense) {
  EXPECT_THROW(AutoregressivePolicy(config(0, 8, 4), {}), Error);
  EXPECT_THROW(AutoregressivePolicy(config(1, 0, 4), {}), Error);
  EXPECT_THROW(AutoregressivePolicy(config(1, 8, 0), {}), Error);
  EXPECT_THROW(AutoregressivePolicy(config(1, 8, kMaxEntries + 1), {}), Error);
}

TEST(ChooseGroups, WeightBoundDecodeWithCheapHopsTakesAsManyAsStages) {
  auto cheap = config(2, 256, 16);
  cheap.cost = {1, 0.01, 0.005};
  EXPECT_EQ(choose_groups(cheap, 16), 2);
  EXPECT_EQ(choose_groups(cheap, 1), 1);
  EXPECT_EQ(choose_groups(cheap, 0), 1);
}

TEST(ChooseGroups, DearHopsTakeMore) {
  auto dear = config(4, 256, 4);
  dear.cost = {1, 0.01, 0.2};
  EXPECT_EQ(choose_groups(dear, 1000), 5);
  dear.cost.hop = 0.6;
  EXPECT_EQ(choose_groups(dear, 1000), 6);
  dear.groups = 3;
  EXPECT_EQ(choose_groups(dear, 1000), 3);
}

}  // namespace
}  // namespace diffuse

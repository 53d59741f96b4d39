#include "schedule/simulator.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <variant>

#include "schedule/checker.hpp"

namespace diffuse {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

MessageSizes sizes() {
  MessageSizes bytes;
  bytes.carry_row = 4096;
  bytes.result_step = 8;
  bytes.result_sample = 16;
  bytes.memory_row = 512;
  bytes.trace_position = 64;
  return bytes;
}

SimulationConfig balanced(int stages) {
  SimulationConfig config;
  config.stages.assign(static_cast<std::size_t>(stages), StageCost{1, 0.01});
  config.sizes = sizes();
  return config;
}

bool never(std::size_t, std::int64_t) {
  return false;
}

struct Outcome {
  SimulationReport report;
  std::vector<std::string> problems;  // of the checker
};

// Runs a policy, or one with a fault wrapped around it, before the checker's eyes.
Outcome watch(const SimulationConfig& simulation, const ScheduleConfig& config,
              const std::vector<SequenceNeed>& needs, const EndOracle& ends,
              const std::function<PolicyHooks(AutoregressivePolicy&)>& bind = bind_policy) {
  AutoregressivePolicy policy(config, needs);
  ScheduleChecker checker(config, needs, policy.slots(), policy.max_in_flight());
  const auto hooks = bind(policy);
  SimulationObserver observer{[&](const Action& action) { checker.on_action(action); },
                              [&](const StepDone& done) { checker.on_result(done); },
                              [&](const Encoded& encoded) { checker.on_encoded(encoded); }};
  Outcome outcome;
  outcome.report = simulate(simulation, hooks, ends, observer);
  checker.at_end(policy.unfit());
  outcome.problems = checker.problems();
  return outcome;
}

struct Workload {
  ScheduleConfig config;
  SimulationConfig simulation;
  std::vector<SequenceNeed> needs;
  std::vector<std::int64_t> ends;
  std::int64_t more = 0;  // sequences that come up while others run
};

Workload random_workload(std::mt19937& random) {
  const auto upto = [&](std::uint32_t limit) { return static_cast<std::int64_t>(random() % (limit + 1)); };
  Workload work;
  work.config.stages = 1 + static_cast<int>(upto(6));
  work.config.max_rows_per_step = 1 + upto(40);
  work.config.max_group = 1 + static_cast<std::int32_t>(upto(upto(1) != 0 ? 20 : 127));
  work.config.groups = static_cast<std::int32_t>(upto(8));
  work.config.tune_groups = upto(1) != 0;
  work.config.max_in_flight = upto(2) != 0 ? 0 : 1 + static_cast<std::int32_t>(upto(9));
  work.config.page_tokens = 1 + upto(16);
  work.config.kv_pages = upto(1) != 0 ? upto(30) : 4000;
  work.config.cost = {1, 0.01 * static_cast<double>(upto(20)), 0.1 * static_cast<double>(upto(10))};
  work.config.most_lanes =
      upto(1) != 0 ? 1
                   : 1 + static_cast<std::int32_t>(
                             upto(std::min(5U, static_cast<std::uint32_t>(work.config.max_group - 1))));
  const auto sequences = upto(60);
  const bool reads_encoder = upto(1) != 0;
  if (reads_encoder) {
    work.config.encode_rows = 1 + upto(100);
    work.config.encode_inputs = 1 + static_cast<std::int32_t>(upto(9));
    // Rank 0, some ranks in any order with and without layers, or one without.
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(work.config.stages + 2));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random);
    ranks.resize(static_cast<std::size_t>(1 + upto(static_cast<std::uint32_t>(work.config.stages + 1))));
    const auto choice = upto(3);
    if (choice == 0) ranks = {0};
    if (choice == 1) ranks = {work.config.stages};
    work.config.encoders = ranks;
    work.simulation.encoders.assign(ranks.begin(), ranks.end());
    work.simulation.encode = {0.1 * static_cast<double>(upto(20)), 0.01 * static_cast<double>(upto(10))};
  }
  for (std::int64_t i = 0; i < sequences; ++i) {
    work.needs.push_back({1 + upto(90), upto(3) != 0 ? upto(40) : upto(1), reads_encoder ? 1 + upto(60) : 0});
    auto& need = work.needs.back();
    need.lanes = 1 + static_cast<std::int32_t>(upto(static_cast<std::uint32_t>(work.config.most_lanes - 1)));
    need.most_lanes = upto(1) != 0 ? work.config.most_lanes : 0;
    need.most_tokens = upto(1) != 0 ? upto(150) : 0;
    if (work.config.most_lanes > 1 && upto(2) == 0) {
      need.guided = true;
      need.lanes = 2;
      need.most_lanes = 0;
    }
    work.ends.push_back(1 + upto(60));
  }
  work.more = upto(1) * upto(20);
  work.simulation.sizes = sizes();
  work.simulation.trace = upto(1) != 0;
  work.simulation.hop_seconds = 0.1 * static_cast<double>(upto(20));
  work.simulation.bytes_per_second = upto(1) != 0 ? 0 : 1e5;
  for (int i = 0; i < work.config.stages; ++i)
    work.simulation.stages.push_back(
        {0.1 * static_cast<double>(1 + upto(20)), 0.01 * static_cast<double>(upto(10))});
  return work;
}

// Lets sequences come up when others end: some of them where those were.
class Growing {
 public:
  Growing(Workload& work, std::uint32_t seed) : work_(work), random_(seed), left_(work.more) {}

  Outcome run() {
    AutoregressivePolicy policy(work_.config, work_.needs);
    ScheduleChecker checker(work_.config, work_.needs, policy.slots(), policy.max_in_flight());
    auto hooks = bind_policy(policy);
    std::vector<std::size_t> ended;
    hooks.on = [&](const StepDone& done) {
      policy.on(done);
      for (const auto sequence : std::exchange(ended, {})) grow(policy, checker, sequence);
    };
    const auto ends = [&](std::size_t sequence, std::int64_t sampled) {
      const bool last = sampled >= work_.ends[sequence];
      if (last || sampled >= work_.needs[sequence].max_new_tokens) ended.push_back(sequence);
      return last;
    };
    SimulationObserver observer{[&](const Action& action) { checker.on_action(action); },
                                [&](const StepDone& done) { checker.on_result(done); },
                                [&](const Encoded& encoded) { checker.on_encoded(encoded); }};
    Outcome outcome;
    outcome.report = simulate(work_.simulation, hooks, ends, observer);
    checker.at_end(policy.unfit());
    outcome.problems = checker.problems();
    return outcome;
  }
  std::int64_t followers() const { return followers_; }

 private:
  std::int64_t upto(std::int64_t limit) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit + 1));
  }

  void grow(AutoregressivePolicy& policy, ScheduleChecker& checker, std::size_t ended) {
    if (left_ == 0 || upto(2) == 0) return;
    --left_;
    // Within what its forerunner has reserved; the other kind is like it.
    auto need = work_.needs[ended];
    const auto lanes = std::max(need.lanes, need.most_lanes);
    const auto tokens = std::max(need.prompt_tokens + need.max_new_tokens, need.most_tokens);
    const bool follows = upto(1) != 0 && !need.guided;
    if (follows) {
      need.lanes = 1 + static_cast<std::int32_t>(upto(lanes - 1));
      need.prompt_tokens = 1 + upto(tokens - 1);
      need.max_new_tokens = upto(tokens - need.prompt_tokens);
      policy.follow(ended, need);
      need.most_lanes = lanes;
      need.most_tokens = tokens;
      ++followers_;
    } else {
      policy.add(need);
    }
    checker.on_add(need, follows ? static_cast<std::int64_t>(ended) : -1);
    work_.needs.push_back(need);
    work_.ends.push_back(1 + upto(60));
  }

  Workload& work_;
  std::mt19937 random_;
  std::int64_t left_;
  std::int64_t followers_ = 0;
};

TEST(Simulator, SequencesThatComeUpKeepEveryPromise) {
  std::mt19937 random(21);
  std::int64_t followers = 0;
  for (std::uint32_t round = 0; round < 400; ++round) {
    auto work = random_workload(random);
    Growing growing(work, round);
    const auto outcome = growing.run();
    EXPECT_THAT(outcome.report.problems, IsEmpty()) << "round " << round;
    EXPECT_THAT(outcome.problems, IsEmpty()) << "round " << round;
    followers += growing.followers();
    if (HasFailure()) break;
  }
  EXPECT_GT(followers, 200);
}

TEST(Simulator, RandomWorkloadsKeepEveryPromise) {
  std::mt19937 random(7);
  std::uint64_t steps = 0;
  for (int round = 0; round < 500; ++round) {
    const auto work = random_workload(random);
    const auto ends = [&](std::size_t sequence, std::int64_t sampled) {
      return sampled >= work.ends[sequence];
    };
    const auto outcome = watch(work.simulation, work.config, work.needs, ends);
    ASSERT_THAT(outcome.problems, IsEmpty()) << "round " << round;
    ASSERT_THAT(outcome.report.problems, IsEmpty()) << "round " << round;
    steps += outcome.report.steps;
  }
  EXPECT_GT(steps, 50000U);
}

// Two stages and forty sequences; `row` seconds for each row that is encoded.
SimulationReport translate(const std::vector<int>& encoders, double row) {
  SimulationConfig simulation;
  simulation.stages.assign(2, StageCost{1, 0.01});
  simulation.sizes = sizes();
  simulation.encoders = encoders;
  simulation.encode = {0, row};
  ScheduleConfig config;
  config.stages = 2;
  config.max_group = 4;
  config.kv_pages = 400;
  config.encode_rows = 60;
  config.encoders.assign(encoders.begin(), encoders.end());
  std::vector<SequenceNeed> needs;
  for (std::int64_t i = 0; i < 40; ++i) needs.push_back({1, 8 + 7 * i % 25, 30});
  const auto outcome = watch(simulation, config, needs, never);
  EXPECT_THAT(outcome.problems, IsEmpty());
  EXPECT_THAT(outcome.report.problems, IsEmpty());
  return outcome.report;
}

TEST(Simulator, EncodingOverlapsDecoding) {
  constexpr double kRow = 0.05;
  constexpr double kEncoding = 40 * 30 * kRow;
  const double decoding = translate({2}, 0).makespan;
  const auto apart = translate({2}, kRow);
  ASSERT_EQ(apart.utilisation.size(), 3U);
  EXPECT_NEAR(apart.utilisation[2] * apart.makespan, kEncoding, 1e-6);
  EXPECT_LT(apart.makespan - decoding, 0.5 * kEncoding);  // more than half of it is hidden
  // On rank 0 it takes that rank's time, and no more.
  EXPECT_LT(translate({0}, kRow).makespan - decoding, 1.05 * kEncoding);
  EXPECT_GT(translate({0}, kRow).makespan, apart.makespan);
}

// Where encoding is most of the work, two ranks that both encode share all of it.
TEST(Simulator, RanksShareWhatIsEncoded) {
  constexpr double kRow = 0.3;
  constexpr double kEncoding = 40 * 30 * kRow;
  const double decoding = translate({1, 0}, 0).makespan;
  const auto one = translate({0}, kRow);
  const auto both = translate({1, 0}, kRow);
  EXPECT_GT(one.makespan - decoding, kEncoding);
  EXPECT_LT(both.makespan - decoding, 0.6 * kEncoding);
  for (const double busy : both.utilisation) EXPECT_GT(busy, 0.88);
}

TEST(Simulator, CancellingAtAnyTimeEnds) {
  std::mt19937 random(8);
  for (int round = 0; round < 300; ++round) {
    const auto work = random_workload(random);
    const auto cancel_after = random() % 60;
    const bool at_once = random() % 2 == 0;
    AutoregressivePolicy policy(work.config, work.needs);
    auto hooks = bind_policy(policy);
    hooks.next = [&, asked = 0U]() mutable {
      if (asked++ == cancel_after) at_once ? policy.cancel_running() : policy.cancel_waiting();
      return policy.next();
    };
    const auto report = simulate(work.simulation, hooks, never);
    ASSERT_THAT(report.problems, IsEmpty()) << "round " << round;
    ASSERT_TRUE(policy.finished());
    ASSERT_EQ(policy.pages_in_use(), 0);
  }
}

TEST(Simulator, StagesAreBusyWhenSequencesSuffice) {
  for (int stages = 1; stages <= 7; ++stages) {
    for (const double hop : {0.0, 0.1}) {
      auto simulation = balanced(stages);
      simulation.hop_seconds = hop;
      ScheduleConfig config;
      config.stages = stages;
      config.max_rows_per_step = 64;
      config.max_group = 8;
      config.kv_pages = 100000;
      config.cost = {1, 0.01, hop};
      const std::vector<SequenceNeed> needs(static_cast<std::size_t>((stages + 1) * 8),
                                            SequenceNeed{32, 200});
      const auto outcome = watch(simulation, config, needs, never);
      EXPECT_THAT(outcome.problems, IsEmpty());
      EXPECT_THAT(outcome.report.problems, IsEmpty());
      const auto& busy = outcome.report.utilisation;
      const double mean = std::accumulate(busy.begin(), busy.end(), 0.0) / stages;
      EXPECT_GE(mean, 0.95) << stages << " stages, hop " << hop;
    }
  }
}

TEST(Simulator, RandomEndsAndRefillsKeepStagesBusy) {
  std::mt19937 random(9);
  auto simulation = balanced(4);
  for (auto& stage : simulation.stages) stage.row = 0.05;
  ScheduleConfig config;
  config.stages = 4;
  config.max_rows_per_step = 256;
  config.cost = {1, 0.05, 0};
  config.max_group = 8;
  config.kv_pages = 100000;
  std::vector<SequenceNeed> needs;
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < 400; ++i) {
    needs.push_back({16 + static_cast<std::int64_t>(random() % 200), 200});
    lengths.push_back(20 + static_cast<std::int64_t>(random() % 100));
  }
  const auto ends = [&](std::size_t sequence, std::int64_t sampled) { return sampled >= lengths[sequence]; };
  const auto outcome = watch(simulation, config, needs, ends);
  EXPECT_THAT(outcome.problems, IsEmpty());
  // Much less where whole chunks of prompts run between the short steps of decode groups.
  for (const double busy : outcome.report.utilisation) EXPECT_GE(busy, 0.85);
}

TEST(Simulator, FewerSequencesThanStagesIsTheRoundTrip) {
  auto simulation = balanced(5);
  ScheduleConfig config;
  config.stages = 5;
  config.kv_pages = 100;
  const std::vector<SequenceNeed> needs{{1, 10}};
  const auto outcome = watch(simulation, config, needs, never);
  EXPECT_THAT(outcome.problems, IsEmpty());
  EXPECT_NEAR(outcome.report.makespan, 10 * 5 * 1.01, 1e-9);
}

TEST(Simulator, SendBuffersAsManyAsStepsInFlightNeverBlock) {
  std::mt19937 random(10);
  for (int round = 0; round < 100; ++round) {
    auto work = random_workload(random);
    work.config.max_in_flight = 1 + static_cast<std::int32_t>(random() % 4);
    work.simulation.send_buffers = work.config.max_in_flight;
    work.simulation.trace = false;
    const auto ends = [&](std::size_t sequence, std::int64_t sampled) {
      return sampled >= work.ends[sequence];
    };
    const auto outcome = watch(work.simulation, work.config, work.needs, ends);
    ASSERT_THAT(outcome.report.problems, IsEmpty()) << "round " << round;
    for (const int peak : outcome.report.peak_carries) EXPECT_LE(peak, work.config.max_in_flight);
  }
}

// Answers pile up behind a driver that still issues steps, carries behind the answers: a circle of full
// buffers.
TEST(Simulator, TooFewSendBuffersAreADeadlockThatIsNamed) {
  auto simulation = balanced(2);
  simulation.send_buffers = 1;
  ScheduleConfig config;
  config.stages = 2;
  config.max_rows_per_step = 1;
  config.max_in_flight = 12;
  config.kv_pages = 100;
  const std::vector<SequenceNeed> needs{{50, 1}};
  const auto eager = [](AutoregressivePolicy& policy) {
    auto hooks = bind_policy(policy);
    // A driver that never looks for answers while it has something to do.
    hooks.next = [&policy] {
      std::vector<Action> all;
      for (auto actions = policy.next(); !actions.empty(); actions = policy.next())
        all.insert(all.end(), actions.begin(), actions.end());
      return all;
    };
    return hooks;
  };
  const auto outcome = watch(simulation, config, needs, never, eager);
  EXPECT_THAT(outcome.report.problems,
              Contains(HasSubstr("deadlock: rank 0 cannot send carry to rank 1; rank 1 "
                                 "cannot send result to rank 0")));
}

// ---- faults that must be seen

const std::vector<SequenceNeed> kSome(9, SequenceNeed{5, 6});

ScheduleConfig some_config() {
  ScheduleConfig config;
  config.stages = 3;
  config.max_rows_per_step = 8;
  config.max_group = 2;
  config.groups = 2;
  config.kv_pages = 6;
  config.page_tokens = 4;
  return config;
}

TEST(Faults, AForgottenReleaseIsSeen) {
  const auto outcome = watch(balanced(3), some_config(), kSome, never, [](AutoregressivePolicy& policy) {
    auto hooks = bind_policy(policy);
    hooks.next = [&policy, forgotten = false]() mutable {
      auto actions = policy.next();
      for (auto it = actions.begin(); it != actions.end() && !forgotten; ++it) {
        if (!std::holds_alternative<Release>(*it)) continue;
        actions.erase(it);
        forgotten = true;
        break;
      }
      return actions;
    };
    return hooks;
  });
  EXPECT_THAT(outcome.problems, Contains(HasSubstr("the key-value budget is exceeded")));
  EXPECT_THAT(outcome.problems, Contains(HasSubstr("was never released")));
}

// The policy is told that a step has ended when it has only been issued.
PolicyHooks hasty(AutoregressivePolicy& policy) {
  auto hooks = bind_policy(policy);
  hooks.next = [&policy] {
    auto actions = policy.next();
    for (const auto& action : actions) {
      const auto* run = std::get_if<Run>(&action);
      if (run == nullptr) continue;
      const std::vector<std::uint8_t> flags(static_cast<std::size_t>(run->step.samples()), 0);
      policy.on({run->step.number, flags});
    }
    return actions;
  };
  hooks.on = [](const StepDone&) {};
  return hooks;
}

TEST(Faults, AStepBeforeItsResultIsSeen) {
  const auto outcome = watch(balanced(3), some_config(), kSome, never, hasty);
  EXPECT_THAT(outcome.problems, Contains(HasSubstr("runs a token that is not known yet")));
  EXPECT_THAT(outcome.problems, Contains(HasSubstr("is released while a step of it is in flight")));
}

// One fault in the steps that the policy makes.
std::vector<std::string> with_bent_step(std::uint64_t number, const std::function<void(Descriptor&)>& bend,
                                        const std::vector<SequenceNeed>& needs = kSome) {
  auto config = some_config();
  config.most_lanes = needs.front().lanes;
  return watch(balanced(3), config, needs, never,
               [&](AutoregressivePolicy& policy) {
                 auto hooks = bind_policy(policy);
                 hooks.on = [&policy](const StepDone& done) {
                   try {
                     policy.on(done);
                   } catch (const std::runtime_error&) {
                     policy.cancel_running();
                   }
                 };
                 hooks.next = [&policy, &bend, number] {
                   auto actions = policy.next();
                   for (auto& action : actions)
                     if (auto* run = std::get_if<Run>(&action); run != nullptr && run->step.number == number)
                       bend(run->step);
                   return actions;
                 };
                 return hooks;
               })
      .problems;
}

TEST(Faults, WrongStepsAreSeen) {
  EXPECT_THAT(with_bent_step(2, [](Descriptor& step) { step.entry[0].first_position += 1; }),
              Contains(HasSubstr("skips or repeats a position")));
  EXPECT_THAT(with_bent_step(1, [](Descriptor& step) { step.entry[0].sample = 0; }),
              Contains(HasSubstr("does not sample where due")));
  EXPECT_THAT(with_bent_step(1, [](Descriptor& step) { step.entry[0].rows += 20; }),
              Contains(HasSubstr("a step has too many rows")));
  EXPECT_THAT(with_bent_step(1, [](Descriptor& step) { step.entry[0].slot = 3; }),
              Contains(HasSubstr("an entry names an empty slot")));
  EXPECT_THAT(with_bent_step(1, [](Descriptor& step) { step.number = 9; }),
              Contains(HasSubstr("steps are not numbered")));
}

TEST(Faults, AGuideThatIsNotBesideItsSequenceIsSeen) {
  const std::vector<SequenceNeed> guided(
      3, SequenceNeed{.prompt_tokens = 2, .max_new_tokens = 3, .lanes = 2, .guided = true});
  const auto bent = [&](const std::function<void(Descriptor&)>& bend) {
    return with_bent_step(1, bend, guided);
  };
  EXPECT_THAT(bent([](Descriptor&) {}), IsEmpty());
  EXPECT_THAT(bent([](Descriptor& step) { --step.entries; }), Contains(HasSubstr("runs without its guide")));
  EXPECT_THAT(bent([](Descriptor& step) { std::swap(step.entry[0], step.entry[1]); }),
              Contains(HasSubstr("has a guide apart from what it guides")));
  EXPECT_THAT(bent([](Descriptor& step) { step.entry[1].rows = 1; }),
              Contains(HasSubstr("has a guide unlike what it guides")));
  EXPECT_THAT(bent([](Descriptor& step) { step.entry[1].guides = 0; }),
              Contains(HasSubstr("samples by its guide, or without it")));
}

// A rank that exchanges something else than it should.
std::vector<std::string> with_bent_exchange(
    const std::function<void(int, const Descriptor&, std::vector<Exchange>&)>& bend) {
  auto simulation = balanced(3);
  simulation.exchanges = [&](int rank, const Descriptor& descriptor) {
    auto exchanges = expected_messages(rank, {.stages = 3}, descriptor, sizes());
    bend(rank, descriptor, exchanges);
    return exchanges;
  };
  return watch(simulation, some_config(), kSome, never).report.problems;
}

TEST(Faults, AMessageWithoutPartnerIsSeen) {
  EXPECT_THAT(with_bent_exchange([](int, const Descriptor&, std::vector<Exchange>&) {}), IsEmpty());
  const auto lost =
      with_bent_exchange([](int rank, const Descriptor& descriptor, std::vector<Exchange>& exchanges) {
        if (rank == 1 && descriptor.number == 4) exchanges.pop_back();
      });
  EXPECT_THAT(lost,
              Contains(HasSubstr("deadlock: rank 0 waits for an answer of rank 2; rank 1 waits for control "
                                 "from rank 0; rank 2 waits for carry from rank 1")));
  const auto extra =
      with_bent_exchange([](int rank, const Descriptor& descriptor, std::vector<Exchange>& exchanges) {
        if (rank == 1 && descriptor.command == Command::release)
          exchanges.push_back({true, 2, Lane::control, 1});
      });
  EXPECT_THAT(extra, Contains(HasSubstr("are never received")));
  const auto larger =
      with_bent_exchange([](int rank, const Descriptor& descriptor, std::vector<Exchange>& exchanges) {
        if (rank == 2 && descriptor.command == Command::step) exchanges.back().bytes += 4;
      });
  EXPECT_THAT(larger, Contains(HasSubstr("expects 24 bytes on result from rank 2 and 28 come")));
}

std::map<std::tuple<int, int, Lane>, std::int64_t> unpaired(const Places& places,
                                                            const Descriptor& descriptor) {
  std::map<std::tuple<int, int, Lane>, std::int64_t> open;
  for (int rank = 0; rank < places.ranks(); ++rank) {
    for (const auto& exchange : expected_messages(rank, places, descriptor, sizes())) {
      const int from = exchange.send ? rank : exchange.peer;
      const int to = exchange.send ? exchange.peer : rank;
      EXPECT_NE(from, to);
      open[{from, to, exchange.lane}] += exchange.send ? exchange.bytes : -exchange.bytes;
    }
  }
  return open;
}

TEST(Protocol, EverySendHasItsReceive) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int encoder = -1; encoder <= stages + 1; ++encoder) {
      // It alone, and beside others.
      std::vector<Places> all = {{stages, encoder < 0 ? std::vector<int>() : std::vector<int>{encoder}}};
      if (encoder > 0) all.push_back({stages, {encoder, 0, stages + 2}});
      for (const auto& places : all)
        for (const auto command :
             {Command::admit, Command::step, Command::release, Command::finish, Command::encode}) {
          if (command == Command::encode && encoder < 0) continue;
          Descriptor descriptor;
          descriptor.encoder = encoder;
          descriptor.command = command;
          descriptor.trace = 1;
          descriptor.reserved_tokens = 5;
          if (command == Command::step || command == Command::encode) {
            descriptor.entries = 2;
            descriptor.entry[0].rows = 3;
            descriptor.entry[1].rows = 1;
            descriptor.entry[1].sample = 1;
            descriptor.entry[1].first_position = 2;
          }
          const auto open = unpaired(places, descriptor);
          for (const auto& [key, bytes] : open) EXPECT_EQ(bytes, 0);
          const bool told = (command == Command::encode && encoder > 0) ||
                            (command == Command::finish && places.ranks() > stages);
          const bool alone = stages == 1 && !told;
          EXPECT_EQ(open.empty(), alone);
        }
    }
  }
}

}  // namespace
}  // namespace diffuse

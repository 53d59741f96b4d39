// Faults: a flipped bit, a rank that dies, a message that is lost, a stop in the middle.

#include <gmock/gmock.h>

#include <chrono>
#include <set>

#include "support.hpp"
#include "verify/compare.hpp"

namespace diffuse::test {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::HasSubstr;

class Fault : public testing::Test {
 protected:
  Request request(std::int64_t length, std::int64_t tokens) const {
    std::mt19937 random(static_cast<std::uint32_t>(length));
    return request_of(random_ids(random, subject_.model.recipe.vocab, length),
                      {{"max_new_tokens", tokens}, {"ignore_eos", true}});
  }
  std::vector<PreparedRequest> some() const {
    return subject_.prepare(
        job_of({request(20, 12), request(7, 30), request(33, 9), request(5, 25), request(12, 40)}));
  }

  Subject subject_{golden_case("llama").folder};
};

TEST_F(Fault, AFlippedBitIsFoundWhereItHappened) {
  const auto prepared = subject_.prepare(job_of({request(10, 6)}));
  for (const auto compute : {Compute::f32, Compute::bf16}) {
    for (std::int64_t border = 1; border <= 4; ++border) {
      Setting setting{.ranks = 2};
      setting.compute = compute;
      setting.slices = "0-" + std::to_string(border - 1) + "," + std::to_string(border) + "-4";
      setting.options.chunk = 3;
      Setting alone;
      alone.compute = compute;
      const auto whole = run_well(subject_, prepared, alone).result;
      EXPECT_EQ(difference(whole, run_well(subject_, prepared, setting).result), "");
      // Steps 1 to 4 hold the prompt's rows 0-2, 3-5, 6-8, 9; each step after them one generated token.
      const std::pair<FlipBit, std::int64_t> flips[] = {{{1, 0}, 0}, {{2, 1}, 4}, {{4, 0}, 9}, {{7, 0}, 12}};
      for (const auto& [flip, position] : flips) {
        setting.options.flip = flip;
        const auto comparison = compare(whole, run_well(subject_, prepared, setting).result);
        ASSERT_FALSE(comparison.identical()) << to_text(setting) << ", step " << flip.step;
        const auto found = std::find_if(comparison.differences.begin(), comparison.differences.end(),
                                        [](const auto& each) { return each.what == What::digest; });
        ASSERT_NE(found, comparison.differences.end());
        EXPECT_EQ(found->request, "r0");
        EXPECT_EQ(found->position, position) << to_text(setting) << ", step " << flip.step;
        EXPECT_EQ(found->layer, border + 1) << "the first block behind the border is " << border;
      }
    }
  }
}

TEST_F(Fault, AFlippedBitTouchesOneRequestOnly) {
  const auto prepared = some();
  const auto whole = run_well(subject_, prepared, {}).result;
  Setting setting{.ranks = 3};
  setting.options.flip = FlipBit{1, 0};  // the shortest prompt goes first
  const auto comparison = compare(whole, run_well(subject_, prepared, setting).result);
  ASSERT_FALSE(comparison.identical());
  for (const auto& each : comparison.differences) EXPECT_EQ(each.request, "r3") << sentence(each);
  EXPECT_EQ(comparison.differences.front().position, 0);
}

// What a message must name so that somebody can act on it.
void expect_names_the_wait(const std::string& error, int rank) {
  EXPECT_THAT(error, HasSubstr("waited")) << "rank " << rank;
  EXPECT_THAT(error, HasSubstr("rank ")) << "rank " << rank;
  EXPECT_THAT(error, HasSubstr("request ")) << "rank " << rank;
  EXPECT_THAT(error, HasSubstr("layer ")) << "rank " << rank;
}

TEST_F(Fault, ARankThatDiesEndsTheJobOnAll) {
  const auto prepared = some();
  for (const int dead : {1, 2, 3}) {
    Setting setting{.ranks = 4};
    setting.network.timeout = milliseconds(300);
    Hooks hooks;
    hooks.on_token = [dead](std::uint64_t tokens, LoopbackNetwork& network) {
      if (tokens == 20) network.die(dead);
    };
    const auto begin = std::chrono::steady_clock::now();
    const auto heard = run(subject_, prepared, setting, hooks);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    for (int rank = 0; rank < 4; ++rank) {
      const auto& error = heard.errors[static_cast<std::size_t>(rank)];
      if (rank == dead) {
        EXPECT_NE(error, "");
        continue;
      }
      expect_names_the_wait(error, rank);
    }
  }
}

// Of one request there is never another message behind the lost one that could be taken for it.
TEST_F(Fault, ALostMessageEndsTheJobOnAll) {
  const auto prepared = subject_.prepare(job_of({request(7, 30)}));
  struct Line {
    int from, to;
    Channel channel;
  };
  for (const auto& [from, to, channel] :
       {Line{1, 2, Channel::carry}, Line{0, 2, Channel::control}, Line{2, 0, Channel::result}}) {
    Setting setting{.ranks = 3};
    setting.network.timeout = milliseconds(300);
    setting.network.fate = [line = Line{from, to, channel}](int sender, int receiver, Channel on,
                                                            std::uint64_t index) {
      return LoopbackFate{.drop = sender == line.from && receiver == line.to && on == line.channel &&
                                  index == 12};
    };
    const auto heard = run(subject_, prepared, setting);
    for (int rank = 0; rank < 3; ++rank)
      expect_names_the_wait(heard.errors[static_cast<std::size_t>(rank)], rank);
  }
}

// With others behind it, sizes and numbers tell: a message is never taken for another one.
TEST_F(Fault, ALostMessageIsNeverTakenForAnother) {
  const auto prepared = some();
  for (const std::uint64_t lost : {3U, 12U, 19U}) {
    Setting setting{.ranks = 3};
    setting.network.timeout = milliseconds(300);
    setting.network.fate = [lost](int sender, int receiver, Channel on, std::uint64_t index) {
      return LoopbackFate{.drop = sender == 2 && receiver == 0 && on == Channel::result && index == lost};
    };
    const auto heard = run(subject_, prepared, setting);
    for (int rank = 0; rank < 3; ++rank) EXPECT_NE(heard.errors[static_cast<std::size_t>(rank)], "") << rank;
    EXPECT_THAT(heard.errors[0],
                AnyOf(HasSubstr("belongs to another step"), HasSubstr("was expected to have")))
        << lost;
  }
}

TEST_F(Fault, AnAnswerOfAnotherStepIsNoAnswer) {
  const auto prepared = subject_.prepare(job_of({request(6, 30), request(6, 30)}));
  Setting setting{.ranks = 2};
  setting.options.max_group = 1;
  setting.options.groups = 2;
  setting.options.trace = false;
  setting.network.timeout = milliseconds(300);
  setting.network.fate = [](int sender, int receiver, Channel on, std::uint64_t index) {
    return LoopbackFate{.drop = sender == 1 && receiver == 0 && on == Channel::result && index == 12};
  };
  EXPECT_THAT(run(subject_, prepared, setting).errors[0], HasSubstr("belongs to another step"));
}

TEST_F(Fault, SlowMessagesChangeNothing) {
  const auto prepared = some();
  const auto whole = run_well(subject_, prepared, {}).result;
  for (const auto seed : {1U, 2U, 3U}) {
    Setting setting{.ranks = 3};
    setting.options.chunk = 7;
    setting.options.max_group = 3;
    setting.network.fate = [seed](int from, int to, Channel channel, std::uint64_t index) {
      std::seed_seq key{seed, static_cast<unsigned>(from), static_cast<unsigned>(to),
                        static_cast<unsigned>(channel), static_cast<unsigned>(index)};
      std::mt19937 random(key);
      return LoopbackFate{.delay = std::chrono::microseconds(random() % 4 == 0 ? random() % 3000 : 0)};
    };
    EXPECT_EQ(difference(whole, run_well(subject_, prepared, setting).result), "") << seed;
  }
}

// A stop at any point; what was finished is kept, the rest is run again, over other ranks.
TEST_F(Fault, AStoppedJobGoesOnToTheSameEnd) {
  auto job = random_job(21, subject_.model.recipe.vocab, 16, 50);
  job.requests.push_back(request_of({}));  // bad from the start
  job.requests.back().id = "bad";
  const auto prepared = subject_.prepare(job);
  const auto whole = run_well(subject_, prepared, {}).result;
  std::uint64_t total = 0;
  for (const auto& request : whole.requests)
    for (const auto& sample : request.samples) total += sample.tokens.size();
  std::set<std::size_t> kept_counts;
  for (const std::uint64_t after :
       {std::uint64_t{0}, std::uint64_t{1}, total / 16, total / 4, total / 2, total * 5 / 8}) {
    Setting first{.ranks = 3};
    first.options.max_group = 4;
    first.options.chunk = 16;
    Hooks stop;
    stop.stop = [after](std::uint64_t tokens) { return tokens >= after; };
    auto stopped = run_well(subject_, prepared, first, stop);
    EXPECT_TRUE(stopped.report.stopped);
    Hooks resume;
    for (std::size_t i = 0; i < stopped.result.requests.size(); ++i) {
      auto& request = stopped.result.requests[i];
      if (request.status == Status::unfinished) {
        EXPECT_TRUE(request.samples.empty());
        continue;
      }
      resume.kept[i] = std::move(request);
    }
    EXPECT_EQ(resume.kept.size(), stopped.reported.size());
    kept_counts.insert(resume.kept.size());
    const auto resumed = run_well(subject_, prepared, {.ranks = 5}, resume);
    EXPECT_EQ(difference(whole, resumed.result), "") << "stopped after " << after;
    EXPECT_EQ(resumed.reported.size(), prepared.size() - resume.kept.size());
    for (const auto index : resumed.reported)
      EXPECT_EQ(resume.kept.count(index), 0U) << index << " was run again";
  }
  EXPECT_EQ(*kept_counts.begin(), 1U);  // the bad one alone
  EXPECT_GT(*kept_counts.rbegin(), 1U);
  EXPECT_LT(*kept_counts.rbegin(), prepared.size());
}

TEST_F(Fault, AStoppedJobMayBeStoppedAgain) {
  const auto prepared = subject_.prepare(random_job(22, subject_.model.recipe.vocab, 12, 40));
  const auto whole = run_well(subject_, prepared, {}).result;
  int runs = 0;
  Hooks hooks;
  // Later runs are let go on longer: what is unfinished starts again, and must come to its end some time.
  hooks.stop = [&runs](std::uint64_t tokens) { return tokens >= 25U * static_cast<unsigned>(runs); };
  Heard heard;
  do {
    ASSERT_LT(++runs, 30);
    Setting setting{.ranks = 1 + runs % 5};
    setting.options.max_group = 2;
    heard = run_well(subject_, prepared, setting, hooks);
    hooks.kept.clear();
    for (std::size_t i = 0; i < heard.result.requests.size(); ++i)
      if (heard.result.requests[i].status != Status::unfinished) hooks.kept[i] = heard.result.requests[i];
  } while (heard.report.stopped);
  EXPECT_GT(runs, 2);
  EXPECT_EQ(difference(whole, heard.result), "");
}

}  // namespace
}  // namespace diffuse::test

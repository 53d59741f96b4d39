// Several ranks encode: what they make is the same, all of them do, and a message that is lost is named.

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "support.hpp"

namespace diffuse::test {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::HasSubstr;

class Encoders : public testing::Test {
 protected:
  std::vector<PreparedRequest> sources(std::size_t count) const {
    std::mt19937 random(3);
    std::vector<Request> requests;
    for (std::size_t i = 0; i < count; ++i) {
      const auto length = 60 + static_cast<std::int64_t>(random() % 60);
      requests.push_back(request_of(random_ids(random, subject_.model.recipe.encoder->vocab, length),
                                    {{"max_new_tokens", 3 + i}, {"ignore_eos", true}}));
    }
    return subject_.prepare(job_of(std::move(requests)));
  }

  static Setting all(std::int32_t ranks) {
    return {.ranks = ranks,
            .encoders = EncoderCopies::all,
            .network = {.timeout = milliseconds(300), .fate = {}}};
  }

  Subject subject_{golden_case("bart").folder};
};

TEST_F(Encoders, EveryStageEncodesItsShare) {
  const auto prepared = sources(24);
  for (const std::int32_t ranks : {2, 4}) {
    Setting setting{.ranks = ranks, .encoders = EncoderCopies::all};
    const auto heard = run_well(subject_, prepared, setting);
    ASSERT_EQ(heard.report.stages.size(), static_cast<std::size_t>(ranks));
    for (std::size_t rank = 0; rank < heard.loads.size(); ++rank)
      EXPECT_EQ(heard.loads[rank].bytes_read, heard.plan.ranks[rank].weight_bytes) << "rank " << rank;
    std::int64_t sum = 0;
    for (const auto& stage : heard.report.stages) {
      EXPECT_GT(stage.encode_ns, 0) << ranks << " ranks";
      sum += stage.encode_ns;
    }
    EXPECT_EQ(heard.report.encode_ns, sum);
  }
}

TEST_F(Encoders, RanksWithoutLayersEncodeBesideStages) {
  const auto prepared = sources(24);
  const auto whole = run_well(subject_, prepared, {}).result;
  const auto depth = static_cast<std::int32_t>(subject_.model.recipe.depth());
  const auto heard = run_well(subject_, prepared, {.ranks = depth + 2, .encoders = EncoderCopies::all});
  EXPECT_EQ(difference(whole, heard.result), "");
  EXPECT_EQ(heard.plan.encoders.size(), static_cast<std::size_t>(depth + 2));
  EXPECT_EQ(heard.plan.stages, depth);
}

TEST_F(Encoders, SlowMessagesChangeNothing) {
  const auto prepared = sources(13);
  const auto whole = run_well(subject_, prepared, {}).result;
  for (const auto seed : {1U, 2U, 3U}) {
    Setting setting{.ranks = seed == 3 ? 7 : 3, .encoders = EncoderCopies::all};
    setting.options.max_group = 3;
    setting.network.fate = [seed](int from, int to, Channel channel, std::uint64_t index) {
      std::seed_seq key{seed, static_cast<unsigned>(from), static_cast<unsigned>(to),
                        static_cast<unsigned>(channel), static_cast<unsigned>(index)};
      std::mt19937 random(key);
      return LoopbackFate{.delay = std::chrono::microseconds(random() % 3 == 0 ? random() % 4000 : 0)};
    };
    EXPECT_EQ(difference(whole, run_well(subject_, prepared, setting).result), "") << seed;
  }
}

// Whoever waits for memories says for whose, and of which requests.
TEST_F(Encoders, LostMemoriesEndTheJobOnAll) {
  const auto prepared = sources(3);  // an input is a batch where there are as many ranks
  const std::pair<int, int> lines[] = {{1, 0}, {0, 1}, {2, 1}, {0, 2}, {2, 0}};
  for (const auto& line : lines) {
    auto setting = all(3);
    setting.network.fate = [&](int sender, int receiver, Channel on, std::uint64_t) {
      return LoopbackFate{.drop = std::pair(sender, receiver) == line && on == Channel::memory};
    };
    const auto heard = run(subject_, prepared, setting);
    for (std::size_t rank = 0; rank < 3; ++rank)
      EXPECT_NE(heard.errors[rank], "") << line.first << line.second;
    const auto& error = heard.errors[static_cast<std::size_t>(line.second)];
    EXPECT_THAT(error, HasSubstr("waited"));
    EXPECT_THAT(error, HasSubstr("what rank " + std::to_string(line.first) + " encodes, request "));
  }
}

TEST_F(Encoders, LostInputsEndTheJobOnAll) {
  // The set-up of the run is the first message, the descriptor of the batch the second, its inputs the third.
  for (const int encoder : {1, 2}) {
    auto setting = all(3);
    setting.network.fate = [&](int sender, int receiver, Channel on, std::uint64_t index) {
      return LoopbackFate{.drop = sender == 0 && receiver == encoder && on == Channel::control && index >= 2};
    };
    const auto heard = run(subject_, sources(3), setting);
    for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_NE(heard.errors[rank], "") << encoder;
    EXPECT_THAT(heard.errors[static_cast<std::size_t>(encoder)], HasSubstr("waited"));
  }
}

TEST_F(Encoders, ARankThatDiesEndsTheJobOnAll) {
  const auto prepared = sources(20);
  const auto depth = static_cast<std::int32_t>(subject_.model.recipe.depth());
  for (const int dead : {1, depth}) {
    auto setting = all(depth + 1);
    setting.options.max_group = 2;
    Hooks hooks;
    hooks.on_token = [dead](std::uint64_t tokens, LoopbackNetwork& network) {
      if (tokens == 2) network.die(dead);
    };
    const auto heard = run(subject_, prepared, setting, hooks);
    for (std::size_t rank = 0; rank < heard.errors.size(); ++rank)
      EXPECT_NE(heard.errors[rank], "") << "rank " << rank << " after " << dead;
    EXPECT_THAT(heard.errors[0], AnyOf(HasSubstr("waited"), HasSubstr("gone"), HasSubstr("rank")));
  }
}

}  // namespace
}  // namespace diffuse::test

// Jobs at the edges: nothing to do, little to do, what cannot be done. Each is run whole and over several
// ranks.

#include <gmock/gmock.h>

#include <limits>

#include "support.hpp"

namespace diffuse::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kContext = 256;  // of the small models

// Runs a job over each of some numbers of ranks; all must say the same. Returns what they said.
Result run_over(const Subject& subject, const std::vector<PreparedRequest>& prepared,
                const std::vector<std::int32_t>& ranks = {1, 2, 5}) {
  Result first;
  for (const auto count : ranks) {
    auto heard = run_well(subject, prepared, {.ranks = count});
    if (count == ranks.front()) {
      first = std::move(heard.result);
    } else {
      EXPECT_EQ(difference(first, heard.result), "") << count << " ranks";
    }
  }
  return first;
}

class Edge : public testing::Test {
 protected:
  std::vector<std::int32_t> ids(std::int64_t count, std::uint32_t seed = 1) const {
    std::mt19937 random(seed);
    return random_ids(random, subject_.model.recipe.vocab, count);
  }
  static Json fresh(std::int64_t tokens) { return {{"max_new_tokens", tokens}, {"ignore_eos", true}}; }

  Subject subject_{golden_case("llama").folder};
};

TEST_F(Edge, MoreRanksThanLayers) {
  const auto depth = static_cast<std::int32_t>(subject_.model.recipe.depth());
  const auto prepared = subject_.prepare(random_job(4, subject_.model.recipe.vocab, 9, 30));
  run_over(subject_, prepared, {1, depth + 1, depth + 4});
  const auto heard = run_well(subject_, prepared, {.ranks = depth + 4});
  EXPECT_LE(heard.plan.stages, depth);
  EXPECT_TRUE(heard.plan.ranks.back().idle());
  EXPECT_EQ(heard.loads.back().bytes_read, 0U);
}

TEST_F(Edge, OneSliceOverManyRanks) {
  const auto prepared = subject_.prepare(random_job(5, subject_.model.recipe.vocab, 4, 30));
  const auto whole = run_well(subject_, prepared, {});
  const auto split = run_well(subject_, prepared, {.ranks = 3, .slices = "0-4"});
  EXPECT_EQ(difference(whole.result, split.result), "");
  EXPECT_EQ(split.report.stages.size(), 1U);
}

TEST_F(Edge, FewerRequestsThanStages) {
  run_over(subject_, subject_.prepare(random_job(6, subject_.model.recipe.vocab, 2, 30)), {1, 3, 5});
}

TEST_F(Edge, OneRequest) {
  const auto result =
      run_over(subject_, subject_.prepare(job_of({request_of(ids(11), fresh(7))})), {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(result.requests.at(0).status, Status::done);
  EXPECT_EQ(result.requests[0].samples.at(0).tokens.size(), 7U);
  EXPECT_EQ(result.requests[0].samples[0].finish, Finish::length);
  EXPECT_EQ(result.requests[0].prompt_tokens, 11);
  const auto& trace = result.requests[0].samples[0].trace;
  EXPECT_EQ(trace.layers, subject_.model.recipe.depth() + 1);
  EXPECT_EQ(trace.positions, 11 + 7 - 1);
  EXPECT_EQ(trace.digests.size(), static_cast<std::size_t>(trace.layers * trace.positions));
}

TEST_F(Edge, NoRequest) {
  const auto result = run_over(subject_, subject_.prepare(job_of({})));
  EXPECT_TRUE(result.requests.empty());
}

// What cannot be answered gets its reason; its neighbours say what they say without it.
TEST_F(Edge, BadRequestsDoNotDisturbTheOthers) {
  Request spoiled;
  spoiled.input = Unusable{"the messages are no JSON"};
  Request text;
  text.input = Prompt{"no tokenizer here"};
  Request translated = request_of(ids(4), fresh(5));
  translated.language = "fr";
  const auto good = [&](std::uint32_t seed) { return request_of(ids(9, seed), fresh(5)); };
  const auto result = run_over(
      subject_, subject_.prepare(job_of({
                    good(1),
                    request_of(ids(kContext + 40), fresh(5)),  // longer than the context
                    request_of(ids(kContext), fresh(5)),       // fills it
                    good(2),
                    request_of({}, fresh(5)),  // empty
                    request_of({5, static_cast<std::int32_t>(subject_.model.recipe.vocab)}, fresh(5)),
                    request_of({-1}, fresh(5)),
                    spoiled,
                    text,
                    translated,
                    request_of(ids(4), {{"max_new_tokens", -1}}),
                    request_of(ids(4), {{"temprature", 1}}),
                    request_of(ids(4), {{"num_beams", 4}, {"logprobs", 1}}),
                    good(3),
                })));
  const std::vector<std::string> reasons = {"",
                                            "296 tokens",
                                            "256 tokens",
                                            "",
                                            "empty",
                                            "vocabulary",
                                            "-1",
                                            "no JSON",
                                            "tokenizer",
                                            "language",
                                            "max_new_tokens",
                                            "temperature",
                                            "num_beams",
                                            ""};
  ASSERT_EQ(result.requests.size(), reasons.size());
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    const auto& request = result.requests[i];
    EXPECT_EQ(request.status, reasons[i].empty() ? Status::done : Status::bad)
        << i << ": " << request.message;
    EXPECT_THAT(request.message, HasSubstr(reasons[i])) << i;
    EXPECT_EQ(request.samples.size(), reasons[i].empty() ? 1U : 0U) << i;
  }
  const auto alone = run_over(subject_, subject_.prepare(job_of({good(1), good(2), good(3)})));
  const std::size_t places[] = {0, 3, 13};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(result.requests[places[i]].samples[0].tokens, alone.requests[i].samples[0].tokens);
    EXPECT_EQ(result.requests[places[i]].samples[0].trace.digests,
              alone.requests[i].samples[0].trace.digests);
  }
}

TEST_F(Edge, OnlyBadRequests) {
  const auto result = run_over(subject_, subject_.prepare(job_of({request_of({}), request_of({-4})})));
  EXPECT_EQ(result.requests.at(0).status, Status::bad);
  EXPECT_EQ(result.requests.at(1).status, Status::bad);
}

TEST_F(Edge, AnAnswerEndsWhereTheContextDoes) {
  const auto result =
      run_over(subject_, subject_.prepare(job_of({request_of(ids(kContext - 6), fresh(100)),
                                                  request_of(ids(kContext - 1), fresh(100))})));
  EXPECT_EQ(result.requests.at(0).samples.at(0).tokens.size(), 6U);
  EXPECT_EQ(result.requests[0].samples[0].finish, Finish::length);
  EXPECT_EQ(result.requests.at(1).samples.at(0).tokens.size(), 1U);
}

TEST_F(Edge, WhatDoesNotFitTheKeyValueMemoryIsBad) {
  const auto prepared = prepare(job_of({request_of(ids(60), fresh(5)), request_of(ids(60), fresh(4))}),
                                subject_.text, limits_of(subject_.model.recipe, kPageTokens));
  Setting tiny{.ranks = 3};
  tiny.options.kv_pages = 1;
  const auto heard = run_well(subject_, prepared, tiny);
  EXPECT_EQ(heard.result.requests.at(0).status, Status::bad);
  EXPECT_THAT(heard.result.requests[0].message,
              AllOf(HasSubstr("65"), HasSubstr("64"), HasSubstr("--kv-memory")));
  EXPECT_EQ(heard.result.requests.at(1).status, Status::done);
}

TEST_F(Edge, OneTokenIsTheFirstOfMany) {
  const auto result = run_over(
      subject_, subject_.prepare(job_of({request_of(ids(9), fresh(1)), request_of(ids(9), fresh(6))})));
  const auto& one = result.requests.at(0).samples.at(0);
  const auto& six = result.requests.at(1).samples.at(0);
  ASSERT_EQ(one.tokens.size(), 1U);
  EXPECT_EQ(one.finish, Finish::length);
  EXPECT_EQ(one.tokens[0], six.tokens.at(0));
  EXPECT_EQ(one.trace.positions, 9);
}

// A journal may hold it: nothing is run, and nothing is said.
TEST_F(Edge, NoTokenAtAll) {
  auto prepared = subject_.prepare(job_of({request_of(ids(9), fresh(3)), request_of(ids(9), {{"n", 2}})}));
  prepared[1].max_new_tokens = 0;
  const auto result = run_over(subject_, prepared);
  EXPECT_EQ(result.requests.at(0).samples.at(0).tokens.size(), 3U);
  EXPECT_EQ(result.requests.at(1).status, Status::done);
  ASSERT_EQ(result.requests[1].samples.size(), 2U);
  EXPECT_TRUE(result.requests[1].samples[1].tokens.empty());
  EXPECT_EQ(result.requests[1].samples[1].finish, Finish::length);
}

// A row of the embeddings that holds NaNs spoils the requests that read it, and no other.
class Broken : public testing::TestWithParam<std::string> {};

TEST_P(Broken, NanInTheWeightsIsBadForWhoMeetsIt) {
  constexpr std::int32_t kSpoiled = 77;
  const Subject sound(golden_case(GetParam()).folder);
  const ModelCopy copy(sound.folder);
  copy.fill_row(sound.model.recipe.front.embedding.tensor, kSpoiled, std::numeric_limits<float>::quiet_NaN());
  const Subject broken(copy.folder());

  std::vector<Request> requests;
  std::vector<bool> meets;
  for (std::uint32_t i = 0; i < 9; ++i) {
    std::mt19937 random(i);
    auto prompt = random_ids(random, kSpoiled, 3 + 7 * i);
    meets.push_back(i % 4 == 1);
    if (meets.back()) prompt[i] = kSpoiled;
    Json generate = {{"max_new_tokens", 4}, {"ignore_eos", true}, {"n", 1 + i % 3}};
    if (i % 2 == 1) generate["temperature"] = 0.8;
    requests.push_back(request_of(std::move(prompt), std::move(generate)));
  }
  const auto job = job_of(requests);
  const auto of_sound = run_over(sound, sound.prepare(job));
  const auto of_broken = run_over(broken, broken.prepare(job));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& request = of_broken.requests.at(i);
    EXPECT_EQ(request.status, meets[i] ? Status::bad : Status::done) << i;
    if (meets[i]) {
      EXPECT_THAT(request.message, HasSubstr("not finite")) << i;
      EXPECT_TRUE(request.samples.empty());
      continue;
    }
    bool touched = false;  // it may choose the spoiled token itself, and is bad then
    for (std::size_t s = 0; s < request.samples.size(); ++s)
      touched = touched || request.samples[s].tokens != of_sound.requests.at(i).samples.at(s).tokens ||
                request.samples[s].trace.digests != of_sound.requests[i].samples[s].trace.digests;
    EXPECT_FALSE(touched) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, Broken, testing::Values("llama", "mixtral"),
                         [](const auto& each) { return each.param; });

// Whoever chooses, and whoever else is in the step: logits with an infinity are an answer of no one.
TEST(Overflow, IsBadInEveryGroup) {
  const Subject sound(golden_case("llama").folder);
  const ModelCopy copy(sound.folder);
  copy.fill_row(sound.model.recipe.back.head.tensor, 9, std::numeric_limits<float>::max());
  const Subject broken(copy.folder());
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 12; ++i) {
    std::mt19937 random(i);
    requests.push_back(
        request_of(random_ids(random, 256, 4 + i), {{"max_new_tokens", 3}, {"ignore_eos", true}}));
  }
  const auto greedy = broken.prepare(job_of(requests));
  for (std::uint32_t i = 0; i < 12; ++i) {
    std::mt19937 random(i);
    requests.push_back(request_of(random_ids(random, 256, 4 + i),
                                  {{"max_new_tokens", 3}, {"ignore_eos", true}, {"logprobs", 1}}));
  }
  const auto both = broken.prepare(job_of(requests));
  auto alone = run_well(broken, greedy, {}).result;
  auto mixed = run_well(broken, both, {}).result;
  std::size_t bad = 0;
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(alone.requests.at(i).status, mixed.requests.at(i).status) << i;
    EXPECT_EQ(alone.requests[i].status, mixed.requests.at(i + 12).status) << i;
    bad += alone.requests[i].status == Status::bad ? 1 : 0;
    if (alone.requests[i].status == Status::done && mixed.requests[i].status == Status::done) {
      EXPECT_EQ(alone.requests[i].samples.at(0).tokens, mixed.requests[i].samples.at(0).tokens) << i;
    }
  }
  EXPECT_GT(bad, 0U);
}

TEST(EdgeOfDemo, AnEmptyTextIsBadAndTheRestRuns) {
  const Subject subject(demo_model());
  Request empty;
  empty.input = Prompt{""};
  Request some;
  some.input = Prompt{"Once upon a time"};
  some.generate = {{"max_new_tokens", 8}};
  const auto result = run_over(subject, subject.prepare(job_of({empty, some})));
  EXPECT_EQ(result.requests.at(0).status, Status::bad);
  EXPECT_THAT(result.requests[0].message, HasSubstr("empty"));
  EXPECT_EQ(result.requests.at(1).status, Status::done);
  EXPECT_FALSE(result.requests[1].samples.at(0).text.empty());
}

}  // namespace
}  // namespace diffuse::test

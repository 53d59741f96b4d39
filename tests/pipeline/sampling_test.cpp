// How tokens are chosen and where an answer ends, over any split and in any group.

#include <gtest/gtest.h>

#include <set>

#include "support.hpp"

namespace diffuse::test {
namespace {

Request message(const std::string& text, Json generate) {
  Request request;
  request.input = Messages{Json::array({{{"role", "user"}, {"content", text}}})};
  request.generate = std::move(generate);
  return request;
}

class Sampling : public testing::Test {
 protected:
  // Whole, and the same over other splits and groups.
  std::vector<RequestResult> ask(const std::vector<Request>& requests) const {
    const auto prepared = subject_.prepare(job_of(requests));
    const auto whole = run_well(subject_, prepared, {});
    Setting three{.ranks = 3};
    three.options.chunk = 5;
    three.options.max_group = 2;
    Setting six{.ranks = 6, .threads = 2};
    six.options.kv_pages = 4;
    for (const auto& setting : {three, six}) {
      const auto split = run_well(subject_, prepared, setting);
      EXPECT_EQ(difference(whole.result, split.result), "") << to_text(setting);
    }
    return whole.result.requests;
  }
  RequestResult ask(const Request& request) const { return ask(std::vector<Request>{request}).at(0); }

  Subject subject_{demo_model()};
  const std::string story_ = "Tell me a story about a dragon and a key.";
};

TEST_F(Sampling, FollowsTheSeedAndNothingElse) {
  const Json warm = {{"max_new_tokens", 20}, {"temperature", 1.5}, {"ignore_eos", true}, {"seed", 5}};
  auto other = warm;
  other["seed"] = 6;
  auto without = warm;
  without.erase("seed");
  const auto answers = ask({message(story_, warm), message(story_, warm), message(story_, other),
                            message(story_, without), message(story_, without)});
  // The request's index is a part of the key, so that equal requests of a job do not echo one another.
  std::set<std::vector<std::int32_t>> said;
  for (const auto& answer : answers) said.insert(answer.samples.at(0).tokens);
  EXPECT_EQ(said.size(), answers.size());
  EXPECT_EQ(answers[0].seed, 5U);
  EXPECT_NE(answers[3].seed, answers[4].seed);

  // Alone and at the same place it says the same.
  EXPECT_EQ(ask(message(story_, warm)).samples.at(0).tokens, answers[0].samples.at(0).tokens);
}

TEST_F(Sampling, EachParameterCounts) {
  const Json base = {{"max_new_tokens", 25}, {"temperature", 2.0}, {"ignore_eos", true}, {"seed", 1}};
  const auto plain = ask(message(story_, base)).samples.at(0).tokens;
  for (const auto& [key, value] : std::map<std::string, Json>{
           {"temperature", 0.3}, {"top_k", 2}, {"top_p", 0.2}, {"min_p", 0.6}, {"repetition_penalty", 3.0}}) {
    auto changed = base;
    changed[key] = value;
    EXPECT_NE(ask(message(story_, changed)).samples.at(0).tokens, plain) << key;
  }
  auto greedy = base;
  greedy["top_k"] = 1;
  auto cold = base;
  cold["temperature"] = 0;
  EXPECT_EQ(ask(message(story_, greedy)).samples.at(0).tokens,
            ask(message(story_, cold)).samples.at(0).tokens);
}

TEST_F(Sampling, APenaltySeesThePromptAndWhatWasSaid) {
  const auto answer = ask(
      message("a a a a a a", {{"max_new_tokens", 30}, {"repetition_penalty", 100}, {"ignore_eos", true}}));
  const auto& tokens = answer.samples.at(0).tokens;
  EXPECT_EQ(std::set<std::int32_t>(tokens.begin(), tokens.end()).size(), tokens.size())
      << "a token came twice";
}

TEST_F(Sampling, LogprobsAreOfTheChosenTokens) {
  const auto answers = ask(
      {message(story_, {{"max_new_tokens", 12}, {"logprobs", 4}}),
       message(story_, {{"max_new_tokens", 12}, {"logprobs", 0}}), message(story_, {{"max_new_tokens", 12}}),
       message(story_, {{"max_new_tokens", 12}, {"logprobs", 3}, {"temperature", 1.2}})});
  const auto& four = answers[0].samples.at(0);
  ASSERT_EQ(four.logprobs.chosen.size(), four.tokens.size());
  EXPECT_EQ(four.logprobs.top, 4);
  ASSERT_EQ(four.logprobs.top_ids.size(), 4 * four.tokens.size());
  ASSERT_EQ(four.logprobs.top_values.size(), 4 * four.tokens.size());
  for (std::size_t i = 0; i < four.tokens.size(); ++i) {
    EXPECT_EQ(four.logprobs.top_ids[4 * i], four.tokens[i]);
    EXPECT_EQ(four.logprobs.top_values[4 * i], four.logprobs.chosen[i]);
    EXPECT_LE(four.logprobs.chosen[i], 0);
    EXPECT_GE(four.logprobs.top_values[4 * i], four.logprobs.top_values[4 * i + 3]);
  }
  EXPECT_EQ(answers[1].samples.at(0).logprobs.chosen, four.logprobs.chosen);
  EXPECT_TRUE(answers[1].samples[0].logprobs.top_ids.empty());
  EXPECT_TRUE(answers[2].samples.at(0).logprobs.chosen.empty());
  EXPECT_EQ(answers[2].samples[0].tokens, four.tokens);
  EXPECT_EQ(answers[3].samples.at(0).logprobs.top_ids.size(), 3 * answers[3].samples[0].tokens.size());
}

TEST_F(Sampling, SeveralSamplesARequest) {
  const auto answers =
      ask({message(story_, {{"max_new_tokens", 15}, {"temperature", 1.5}, {"seed", 9}, {"n", 4}}),
           message(story_, {{"max_new_tokens", 15}, {"n", 3}})});
  const auto one = ask(message(story_, {{"max_new_tokens", 15}, {"temperature", 1.5}, {"seed", 9}}));
  ASSERT_EQ(answers[0].samples.size(), 4U);
  std::set<std::vector<std::int32_t>> said;
  for (const auto& sample : answers[0].samples) said.insert(sample.tokens);
  EXPECT_GT(said.size(), 2U);
  EXPECT_EQ(one.samples.at(0).tokens, answers[0].samples[0].tokens);
  ASSERT_EQ(answers[1].samples.size(), 3U);
  EXPECT_EQ(answers[1].samples[0].tokens, answers[1].samples[2].tokens);
}

TEST_F(Sampling, EndsAtEndOfTextUnlessToldOtherwise) {
  const std::string sum = "What is 7 plus 9?";
  const auto answers = ask(
      {message(sum, {{"max_new_tokens", 40}}), message(sum, {{"max_new_tokens", 40}, {"ignore_eos", true}})});
  const auto& ended = answers[0].samples.at(0);
  const auto& driven = answers[1].samples.at(0);
  EXPECT_EQ(ended.finish, Finish::end_of_text);
  EXPECT_EQ(ended.text, "7 plus 9 is 16.");
  EXPECT_EQ(ended.tokens.back(), 2);
  EXPECT_EQ(driven.finish, Finish::length);
  ASSERT_EQ(driven.tokens.size(), 40U);
  EXPECT_TRUE(std::equal(ended.tokens.begin(), ended.tokens.end(), driven.tokens.begin()));
}

TEST_F(Sampling, StopsBeforeAStopString) {
  const auto free = ask(message(story_, {{"max_new_tokens", 60}})).samples.at(0);
  const auto answers =
      ask({message(story_, {{"max_new_tokens", 60}, {"stop", "near the"}}),
           message(story_, {{"max_new_tokens", 60}, {"stop", {"zebra", "med Ot", "named Otto lived"}}}),
           message(story_, {{"max_new_tokens", 60}, {"stop", "zebra"}})});
  const auto& near = answers[0].samples.at(0);
  EXPECT_EQ(near.finish, Finish::stop_string);
  EXPECT_EQ(near.text, free.text.substr(0, free.text.find("near the")));
  EXPECT_TRUE(std::equal(near.tokens.begin(), near.tokens.end(), free.tokens.begin()));
  EXPECT_LT(near.tokens.size(), free.tokens.size());
  EXPECT_EQ(answers[1].samples.at(0).text, free.text.substr(0, free.text.find("med Ot")));
  EXPECT_EQ(answers[2].samples.at(0).text, free.text);
  EXPECT_EQ(answers[2].samples[0].finish, Finish::length);
}

}  // namespace
}  // namespace diffuse::test

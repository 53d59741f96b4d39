// What a checkpoint's generation_config.json rules, against transformers 5.24's generate() on the same small
// models: five ids, at most eight more.

#include <gtest/gtest.h>

#include "support.hpp"

namespace diffuse::test {
namespace {

using Ids = std::vector<std::int32_t>;

struct Ruled {
  const char* model;
  int beams;
  Json rules;
  Ids expected;
};

const Json kBiases = {{"sequence_bias", {{{44}, 2.0}, {{44, 44}, -1.5}, {{7}, 1.5}, {{44, 7, 7}, -9.0}}}};
const Json kFavoured = {{"encoder_repetition_penalty", 20.0}};
const Json kFavouredOnce = {{"encoder_repetition_penalty", 20.0}, {"encoder_no_repeat_ngram_size", 2}};
const Json kDecay = {{"exponential_decay_length_penalty", {2, 3.0}}};
const Json kSuppressed = {{"suppress_tokens", {126, 12}}};
const Json kNotFirst = {{"begin_suppress_tokens", {126, 12}}};

const std::vector<Ruled> kRuled = {
    {"bart", 1, Json::object(), {126, 126, 126, 126, 126, 126, 126, 2}},
    {"bart", 1, kSuppressed, {52, 29, 29, 29, 29, 29, 29, 2}},
    {"bart", 1, kNotFirst, {52, 126, 126, 126, 126, 126, 126, 2}},
    {"bart", 1, kBiases, {44, 7, 44, 7, 44, 7, 44, 2}},
    {"bart", 1, kFavoured, {5, 5, 5, 5, 5, 5, 5, 2}},
    {"bart", 1, kDecay, {126, 126, 126, 126, 1}},
    {"bart", 3, kSuppressed, {52, 52, 29, 29, 29, 29, 29, 2}},
    {"bart", 3, kNotFirst, {129, 126, 126, 126, 126, 126, 126, 2}},
    {"bart", 3, kBiases, {44, 7, 44, 7, 44, 7, 44, 2}},
    {"bart", 3, kFavoured, {5, 6, 6, 5, 5, 5, 5, 2}},
    {"bart", 3, kFavouredOnce, {6, 6, 6, 5, 5, 5, 5, 2}},
    {"bart", 3, kDecay, {126, 126, 126, 1}},
    {"gpt2", 1, kBiases, {44, 245, 44, 62, 44, 241, 44, 241}},
    {"gpt2", 1, kFavoured, {9, 9, 9, 9, 106, 44, 44, 44}},
};

// The end comes at the end of an answer here, and is not among what it said.
Ids without_end(Ids ids) {
  if (!ids.empty() && ids.back() == 1) ids.pop_back();
  return ids;
}

TEST(GenerationRules, GiveWhatTransformersGives) {
  for (const auto& ruled : kRuled) {
    Subject subject(golden_case(ruled.model).folder);
    auto asks = subject.text.asks;
    asks.update(ruled.rules);
    subject.text.generation = parse_generation_config(asks, "asks");
    const auto job =
        job_of({request_of({5, 6, 7, 44, 9}, {{"max_new_tokens", 8}, {"num_beams", ruled.beams}})});
    const auto prepared = prepare(job, subject.text, limits_of(subject.model.recipe, 1 << 20));
    ASSERT_EQ(prepared[0].problem, "");
    for (const std::int32_t ranks : {1, 2}) {
      const auto heard = run_well(subject, prepared, {.ranks = ranks});
      EXPECT_EQ(without_end(heard.result.requests.at(0).samples.at(0).tokens), without_end(ruled.expected))
          << ruled.model << " " << ruled.beams << " " << ruled.rules.dump();
    }
  }
}

PreparedRequest with(Subject& subject, const Json& rules, const Json& generate = Json::object(),
                     const Ids& ids = {5, 6}) {
  subject.text.generation = parse_generation_config(rules, "rules");
  return subject.prepare(job_of({request_of(ids, generate)})).front();
}

TEST(GenerationRules, AnEndAloneIsNoBadWord) {
  Subject subject(golden_case("gpt2").folder);
  const auto request = with(subject, {{"eos_token_id", {3, 4}}, {"bad_words_ids", {{3}, {5}, {6, 4}}}});
  EXPECT_EQ(request.rules.never, (std::vector<Ids>{{5}, {6, 4}}));
}

TEST(GenerationRules, OfTheLeastLengthsTheJobsOwnAndTheNewOneHold) {
  Subject subject(golden_case("gpt2").folder);
  const Json asks = {{"eos_token_id", 3}, {"min_length", 30}, {"min_new_tokens", 4}};
  EXPECT_EQ(with(subject, asks).rules.least_tokens, 2 + 4);
  EXPECT_EQ(with(subject, asks, {{"min_length", 9}}).rules.least_tokens, 9);
  const auto both = with(subject, asks, {{"min_length", 9}, {"min_new_tokens", 1}});
  EXPECT_NE(both.problem.find("`min_length` gives way to `min_new_tokens`"), std::string::npos)
      << both.problem;
  EXPECT_EQ(with(subject, asks, {{"min_new_tokens", 0}}).rules.least_tokens, 0);
}

TEST(GenerationRules, AForcedBeginningIsOfAnswersThatBeginAtOnce) {
  Subject subject(golden_case("gpt2").folder);
  EXPECT_EQ(with(subject, {{"forced_bos_token_id", 8}}, Json::object(), {5}).rules.forced_first, 8);
  EXPECT_EQ(with(subject, {{"forced_bos_token_id", 8}}).rules.forced_first, -1);
}

TEST(GenerationRules, ThatCannotStandBesideAPenaltyAreTold) {
  Subject subject(golden_case("gpt2").folder);
  const auto request = with(subject, kBiases, {{"repetition_penalty", 1.1}});
  EXPECT_NE(request.problem.find("`repetition_penalty` stands beside sequence_bias"), std::string::npos);
  EXPECT_EQ(with(subject, kSuppressed, {{"repetition_penalty", 1.1}}).problem, "");
}

TEST(GenerationRules, WhatIsNotTakenIsSaid) {
  Subject subject(golden_case("gpt2").folder);
  const auto limits = limits_of(subject.model.recipe, 1);
  EXPECT_TRUE(notes_on(subject.text, limits).empty());
  subject.text.asks["repetition_penalty"] = 1.5;
  ASSERT_EQ(notes_on(subject.text, limits).size(), 1U);
  EXPECT_NE(notes_on(subject.text, limits)[0].find("repetition_penalty = 1.5"), std::string::npos);
}

}  // namespace
}  // namespace diffuse::test

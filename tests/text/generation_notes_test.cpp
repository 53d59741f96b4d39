#include "text/generation_notes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace diffuse {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> of(const Json& object, Answering answering = Answering::text) {
  return generation_notes(object, "generation_config.json", answering);
}

TEST(GenerationNotes, OfValuesThatChangeNothingThereAreNone) {
  EXPECT_TRUE(of(Json()).empty());
  EXPECT_TRUE(of({{"do_sample", false},
                  {"temperature", 0.6},
                  {"top_p", 0.9},
                  {"top_k", 50},
                  {"num_beams", 1},
                  {"num_beam_groups", 1},
                  {"repetition_penalty", 1.0},
                  {"encoder_repetition_penalty", nullptr},
                  {"diversity_penalty", 0.0},
                  {"renormalize_logits", false},
                  {"stop_strings", Json::array()},
                  {"max_length", 20},
                  {"eos_token_id", 3},
                  {"watermarking_config", nullptr},
                  {"guidance_scale", 1}})
                  .empty());
}

TEST(GenerationNotes, NameWhatAJobStatesItself) {
  const auto notes = of(
      {{"do_sample", true}, {"temperature", 0.6}, {"top_p", 0.9}, {"top_k", 0}, {"repetition_penalty", 1.1}});
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(
      notes[0],
      "generation_config.json says do_sample = true, temperature = 0.6, top_p = 0.9, repetition_penalty = "
      "1.1, which is not taken from there; state in the job what is to hold");
}

// Greedy answers are changed too by the second.
TEST(GenerationNotes, NameWhatThisBuildDoesNotDo) {
  const auto notes =
      of({{"typical_p", 0.5}, {"watermarking_config", {{"bias", 2.5}}}, {"guidance_scale", 1.5}});
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes[0], AllOf(StartsWith("generation_config.json says guidance_scale = 1.5, watermarking"),
                              HasSubstr("does not do"), Not(HasSubstr("typical_p"))));
  EXPECT_THAT(of({{"typical_p", 0.5}, {"do_sample", true}}).back(), HasSubstr("typical_p = 0.5"));
  for (const auto* const key : {"dola_layers", "constraints", "force_words_ids", "max_time"})
    EXPECT_THAT(of({{key, "x"}}).at(0), HasSubstr(key));
  for (const auto* const key : {"penalty_alpha", "num_beam_groups", "diversity_penalty"})
    EXPECT_THAT(of({{key, 2}}).at(0), HasSubstr(key));
  for (const auto* const key : {"token_healing", "renormalize_logits"})
    EXPECT_THAT(of({{key, true}}).at(0), HasSubstr(key));
}

TEST(GenerationNotes, WhatIsTakenDependsOnTheAnswers) {
  const Json object = {{"min_length", 5},
                       {"bad_words_ids", {{1}}},
                       {"suppress_tokens", {2}},
                       {"sequence_bias", {{{1}, 0.5}}},
                       {"encoder_no_repeat_ngram_size", 3},
                       {"exponential_decay_length_penalty", {1, 1.1}}};
  EXPECT_TRUE(of(object).empty());
  const auto transcripts = of(object, Answering::transcripts);
  ASSERT_EQ(transcripts.size(), 1U);
  EXPECT_THAT(transcripts[0],
              AllOf(HasSubstr("min_length"), HasSubstr("sequence_bias"), Not(HasSubstr("suppress_tokens"))));
  EXPECT_TRUE(of({{"guidance_scale", 3}}, Answering::sound).empty());
  EXPECT_FALSE(of({{"suppress_tokens", {2}}}, Answering::sound).empty());
}

// Whisper's own files force what a run does anyway.
TEST(GenerationNotes, OfWhatWhispersFilesForce) {
  Json object = {{"forced_decoder_ids", {{1, nullptr}, {2, 50359}}},
                 {"task_to_id", {{"transcribe", 50359}, {"translate", 50358}}},
                 {"no_timestamps_token_id", 50363},
                 {"task", nullptr}};
  const auto notes = [&] { return of(object, Answering::transcripts); };
  EXPECT_TRUE(notes().empty());
  object["forced_decoder_ids"] = {{1, 50363}};  // of a model of one language
  EXPECT_TRUE(notes().empty());
  object["forced_decoder_ids"] = {{1, 50261}, {2, 50359}};
  ASSERT_EQ(notes().size(), 1U);
  EXPECT_THAT(notes()[0], HasSubstr("says forced_decoder_ids = [[1,50261],[2,50359]], which is not taken"));
  EXPECT_TRUE(of(object).empty());
  object["forced_decoder_ids"] = {{1, nullptr}, {2, 50358}};
  EXPECT_EQ(notes().size(), 1U);
  object["language"] = "german";  // goes before them in transformers
  object["task"] = "transcribe";
  EXPECT_THAT(notes().at(0), HasSubstr("says language = \"german\", which is not taken"));
  object["task"] = "translate";
  EXPECT_THAT(notes().at(0), HasSubstr("task = \"translate\""));
}

}  // namespace
}  // namespace diffuse

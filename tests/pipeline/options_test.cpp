// What a job asks for has its effect, or a line says why not: before anything runs.

#include <gmock/gmock.h>

#include <fstream>

#include "support.hpp"

namespace diffuse::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::filesystem::path kGolden = std::filesystem::path(DIFFUSE_TEST_DATA) / "golden";

Request recording(Json generate, const std::string& language = "en") {
  Request request;
  request.input = NoText{};
  request.audio = Sound{std::vector<float>(16'000, 0.25F), 16'000};
  request.language = language;
  request.generate = std::move(generate);
  return request;
}

Request text(Json generate) {
  return request_of({1, 2, 3}, std::move(generate));
}

std::vector<PreparedRequest> prepare_all(const Subject& subject, Json defaults,
                                         std::vector<Request> requests) {
  auto job = job_of(std::move(requests));
  job.generate = std::move(defaults);
  return prepare(job, subject.text, limits_of(subject.model.recipe, 1 << 20));
}

// Of one request; what refuses the whole job counts too.
std::string problem_of(const Subject& subject, Json defaults, Request request) {
  try {
    return prepare_all(subject, std::move(defaults), {std::move(request)}).front().problem;
  } catch (const Error& error) {
    return error.what();
  }
}

class SpeechOptions_ : public testing::Test {
 protected:
  std::string own(Json generate, const std::string& language = "en") const {
    return problem_of(speech_, Json::object(), recording(std::move(generate), language));
  }
  std::string of_job(Json generate) const {
    return problem_of(speech_, std::move(generate), recording(Json::object()));
  }
  const Subject speech_{kGolden / "speech"};
};

TEST_F(SpeechOptions_, NamesOfOneThingMustNotContradict) {
  EXPECT_THAT(own({{"num_beams", 3}, {"beam_size", 4}}),
              AllOf(HasSubstr("`beam_size`"), HasSubstr("`num_beams`")));
  EXPECT_THAT(own({{"logprob_threshold", -2}, {"log_prob_threshold", nullptr}}),
              AllOf(HasSubstr("`log_prob_threshold`"), HasSubstr("`logprob_threshold`")));
  EXPECT_THAT(of_job({{"num_beams", 3}, {"beam_size", 4}}), HasSubstr("the job's generate"));
  EXPECT_EQ(own({{"num_beams", 3}, {"beam_size", 3}}), "");
  EXPECT_EQ(own({{"logprob_threshold", -2}, {"log_prob_threshold", -2.0}}), "");
  EXPECT_EQ(problem_of(speech_, {{"beam_size", 2}}, recording({{"num_beams", 3}})), "");
}

TEST_F(SpeechOptions_, WhatChangesNothingIsSaid) {
  const Json cold = {{"temperature", 0}};
  const auto with = [](Json base, const Json& more) {
    base.update(more);
    return base;
  };
  EXPECT_THAT(own({{"hallucination_silence_threshold", 2}}), HasSubstr("`word_timestamps`"));
  EXPECT_THAT(own({{"prepend_punctuations", "("}}), HasSubstr("`word_timestamps`"));
  EXPECT_THAT(own({{"append_punctuations", ")"}}), HasSubstr("`word_timestamps`"));
  EXPECT_THAT(own({{"vad_parameters", {{"speech_pad_ms", 100}}}}), HasSubstr("`vad_filter`"));
  EXPECT_THAT(own({{"vad_filter", true}, {"clip_timestamps", "1,2"}}), HasSubstr("`clip_timestamps`"));
  EXPECT_THAT(own({{"patience", 2}, {"beam_size", 1}}), HasSubstr("one beam"));
  EXPECT_THAT(own({{"patience", 2}, {"temperature", 0.5}}), HasSubstr("`temperature`"));
  EXPECT_THAT(own({{"beam_size", 3}, {"temperature", 0.5}}), HasSubstr("`temperature`"));
  EXPECT_THAT(own({{"num_beams", 3}, {"temperature", 0.5}}), HasSubstr("`num_beams`"));
  EXPECT_THAT(own(with(cold, {{"best_of", 3}})), HasSubstr("`temperature`"));
  EXPECT_THAT(own(with(cold, {{"length_penalty", 0.5}, {"beam_size", 1}})), HasSubstr("`length_penalty`"));
  EXPECT_THAT(own({{"carry_initial_prompt", true}}), HasSubstr("`initial_prompt`"));
  EXPECT_THAT(own({{"condition_on_previous_text", false}, {"prompt_reset_on_temperature", 0.2}}),
              HasSubstr("`condition_on_previous_text`"));
  EXPECT_THAT(own({{"without_timestamps", true}, {"max_initial_timestamp", 2}}),
              HasSubstr("`without_timestamps`"));
  EXPECT_THAT(own(with(cold, {{"compression_ratio_threshold", 2}})), HasSubstr("`temperature`"));
  EXPECT_THAT(own(with(cold, {{"log_prob_threshold", -2}, {"no_speech_threshold", nullptr}})),
              HasSubstr("`temperature`"));
  EXPECT_THAT(own({{"language_detection_segments", 3}}), HasSubstr("`language`"));
  EXPECT_THAT(own({{"language_detection_threshold", 0.9}}, ""), HasSubstr("`language_detection_segments`"));
  EXPECT_THAT(own({{"multilingual", true}}), HasSubstr("`language`"));
  EXPECT_THAT(own({{"prefix", "So"}, {"clip_timestamps", "0.5"}}), HasSubstr("`clip_timestamps`"));
  EXPECT_THAT(of_job({{"carry_initial_prompt", true}}),
              AllOf(HasSubstr("the job's generate"), HasSubstr("`initial_prompt`")));
}

TEST_F(SpeechOptions_, WhatHasItsEffectIsTaken) {
  // What both programs do by default may be written out.
  const Json usual = {{"beam_size", 5},
                      {"best_of", 5},
                      {"patience", 1},
                      {"length_penalty", 1},
                      {"temperature", {0, 0.2, 0.4}},
                      {"vad_filter", false},
                      {"vad_parameters", nullptr},
                      {"clip_timestamps", "0"},
                      {"carry_initial_prompt", false},
                      {"hallucination_silence_threshold", nullptr},
                      {"language_detection_threshold", 0.5},
                      {"language_detection_segments", 1},
                      {"multilingual", false}};
  EXPECT_EQ(own(usual), "");
  EXPECT_EQ(
      own({{"beam_size", 1}, {"patience", 1}, {"length_penalty", 1}, {"temperature", 0}, {"best_of", 5}}),
      "");
  // A hotter attempt may follow.
  EXPECT_EQ(own({{"best_of", 3}}), "");
  EXPECT_EQ(own({{"beam_size", 1}, {"length_penalty", 0.5}}), "");
  EXPECT_EQ(own({{"vad_filter", true}, {"vad_parameters", {{"speech_pad_ms", 100}}}}), "");
  EXPECT_EQ(own({{"batched", true}, {"vad_parameters", {{"speech_pad_ms", 100}}}}), "");
  EXPECT_EQ(own({{"vad_filter", true}, {"clip_timestamps", "0"}}), "");
  EXPECT_EQ(own({{"carry_initial_prompt", true}, {"initial_prompt", "x"}}), "");
  EXPECT_EQ(own({{"prefix", "So"}, {"clip_timestamps", "0,0.5"}}), "");
  EXPECT_EQ(own({{"language_detection_segments", 3}, {"language_detection_threshold", 0.9}}, ""), "");
  // A default that one of the recordings follows has its effect.
  for (const auto& request :
       prepare_all(speech_, {{"patience", 2}}, {recording({{"beam_size", 1}}), recording(Json::object())}))
    EXPECT_EQ(request.problem, "");
}

TEST_F(SpeechOptions_, KeysOfTheJobAreCheckedAsThoseOfARequest) {
  EXPECT_THAT(of_job({{"top_k", 4}}), AllOf(HasSubstr("the job's generate"), HasSubstr("`top_k`")));
  EXPECT_THAT(of_job({{"stop", "x"}}), HasSubstr("`stop`"));
  Request continued = recording(Json::object(), "");
  continued.input = Tokens{{257}};
  EXPECT_THAT(problem_of(speech_, {{"beam_size", 2}}, continued),
              AllOf(HasSubstr("the job's generate"), HasSubstr("`beam_size`")));
  EXPECT_EQ(problem_of(speech_, {{"max_new_tokens", 3}}, continued), "");
  for (const auto& request :
       prepare_all(speech_, {{"beam_size", 2}, {"logprobs", 1}}, {recording(Json::object()), continued}))
    EXPECT_EQ(request.problem, "");
}

TEST_F(SpeechOptions_, IdsLieWithinTheVocabulary) {
  EXPECT_THAT(own({{"suppress_tokens", {5, 1768}}}),
              AllOf(HasSubstr("`suppress_tokens`"), HasSubstr("1768")));
  EXPECT_EQ(own({{"suppress_tokens", {-1, 5, 1767}}}), "");
}

TEST(SpeechModel, HeadsThatItDoesNotHaveAreNamedBeforeAnythingRuns) {
  const ModelCopy copy(kGolden / "speech");
  const auto path = copy.folder() / "generation_config.json";
  const auto original = read_json(path);
  const auto problem = [&](const Json& heads) {
    auto config = original;
    config["alignment_heads"] = heads;
    std::ofstream(path) << config;
    return problem_of(Subject(copy.folder()), Json::object(), recording({{"word_timestamps", true}}));
  };
  EXPECT_EQ(problem({{2, 1}}), "");
  const auto layer = problem({{2, 1}, {3, 0}});
  EXPECT_THAT(layer, AllOf(HasSubstr("generation_config.json"), HasSubstr("`alignment_heads`"),
                           HasSubstr("entry 1"), HasSubstr("layer 3")));
  EXPECT_THAT(problem({{0, 2}}), AllOf(HasSubstr("entry 0"), HasSubstr("head 2")));
}

class TextOptions : public testing::Test {
 protected:
  std::string own(Json generate) const {
    return problem_of(text_, Json::object(), text(std::move(generate)));
  }
  std::string of_job(Json generate) const {
    return problem_of(text_, std::move(generate), text(Json::object()));
  }
  const Subject text_{kGolden / "qwen2"};
};

TEST_F(TextOptions, WhatChangesNothingIsSaid) {
  for (const auto& [key, value] : std::map<std::string, Json>{{"top_k", 4}, {"top_p", 0.5}, {"min_p", 0.1}}) {
    EXPECT_THAT(own({{key, value}}), AllOf(HasSubstr("`" + key + "`"), HasSubstr("greedy")));
    EXPECT_THAT(of_job({{key, value}}), AllOf(HasSubstr("the job's generate"), HasSubstr("`" + key + "`")));
    EXPECT_EQ(own({{key, value}, {"temperature", 0.5}}), "");
    EXPECT_EQ(own({{key, value}, {"do_sample", true}}), "");
    EXPECT_EQ(own({{key, value}, {"temperature", 0}}), "") << "who says greedy means it";
  }
  EXPECT_THAT(own({{"length_penalty", 2}}), HasSubstr("`num_beams`"));
  EXPECT_THAT(own({{"early_stopping", true}}), HasSubstr("`num_beams`"));
  EXPECT_THAT(own({{"min_length", 4}, {"min_new_tokens", 2}}), HasSubstr("`min_new_tokens`"));
  EXPECT_EQ(own({{"length_penalty", 2}, {"early_stopping", true}, {"num_beams", 2}}), "");
}

TEST_F(TextOptions, WhatSaysWhatHoldsAnywayIsTaken) {
  EXPECT_EQ(own({{"temperature", 0},
                 {"top_p", 1},
                 {"top_k", -1},
                 {"min_p", 0},
                 {"num_beams", 1},
                 {"length_penalty", 1},
                 {"early_stopping", false}}),
            "");
  // The job's default is for the other request.
  for (const auto& request :
       prepare_all(text_, {{"top_p", 0.5}}, {text({{"temperature", 0.5}}), text(Json::object())}))
    EXPECT_EQ(request.problem, "");
}

TEST_F(TextOptions, TheLeastMustNotBeMoreThanTheMost) {
  EXPECT_THAT(own({{"min_new_tokens", 11}, {"max_new_tokens", 10}}),
              AllOf(HasSubstr("`min_new_tokens` is 11"), HasSubstr("10")));
  EXPECT_THAT(own({{"min_length", 14}, {"max_new_tokens", 10}}), HasSubstr("`min_length` is 14"));
  EXPECT_EQ(own({{"min_new_tokens", 10}, {"max_new_tokens", 10}}), "");
  EXPECT_EQ(own({{"min_length", 13}, {"max_new_tokens", 10}}), "");
  EXPECT_THAT(own({{"min_new_tokens", 2147483647}}), HasSubstr("`min_new_tokens`"));
}

TEST(MusicOptions, BeamsAreOfText) {
  const Subject music(kGolden / "musicgen");
  EXPECT_THAT(problem_of(music, Json::object(), text({{"early_stopping", true}})),
              HasSubstr("'early_stopping' is of text"));
  // Codes have no end that could be passed by.
  EXPECT_EQ(problem_of(music, Json::object(), text({{"ignore_eos", true}})), "");
  EXPECT_THAT(problem_of(music, {{"top_k", 5}}, text(Json::object())), HasSubstr("`top_k`"));
  EXPECT_EQ(problem_of(music, {{"top_k", 5}, {"do_sample", true}}, text(Json::object())), "");
}

TEST(TranslationOptions, AForcedTokenLiesWithinTheVocabulary) {
  const Subject translator(kGolden / "bart");
  const auto vocab = translator.model.recipe.vocab;
  EXPECT_THAT(problem_of(translator, Json::object(), text({{"forced_bos_token_id", vocab}})),
              AllOf(HasSubstr("'forced_bos_token_id'"), HasSubstr(std::to_string(vocab))));
  EXPECT_EQ(problem_of(translator, Json::object(), text({{"forced_bos_token_id", vocab - 1}})), "");
}

}  // namespace
}  // namespace diffuse::test

#include "text/speech_options.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"

namespace diffuse::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string problem(const Json& generate) {
  try {
    parse_speech_options(generate, "request 3");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SpeechOptions, have_the_usual_defaults) {
  const auto options = parse_speech_options(Json::object(), "x");
  EXPECT_THAT(options.temperatures, ElementsAre(0, 0.2, 0.4, 0.6, 0.8, 1));
  EXPECT_EQ(options.beam_size, 5);
  EXPECT_EQ(options.best_of, 5);
  EXPECT_EQ(options.patience, 1);
  EXPECT_EQ(options.limits.compression_ratio, 2.4);
  EXPECT_EQ(options.limits.logprob, -1);
  EXPECT_EQ(options.limits.no_speech, 0.6);
  EXPECT_EQ(options.prompt_reset_on_temperature, 0.5);
  EXPECT_FALSE(options.max_initial_timestamp);  // the checkpoint's, else 1
  EXPECT_TRUE(options.condition_on_previous_text);
}

TEST(SpeechOptions, are_read_over_the_jobs) {
  const auto job = parse_speech_options({{"beam_size", 2}, {"initial_prompt", "x"}}, "x");
  const auto own = parse_speech_options({{"temperature", {0, 0.5}},
                                         {"num_beams", 3},
                                         {"no_speech_threshold", nullptr},
                                         {"hotwords", "a b"},
                                         {"suppress_tokens", {1, 2}},
                                         {"max_new_tokens", 7},
                                         {"word_timestamps", true},
                                         {"top_k", 5}},
                                        "x", job);
  EXPECT_THAT(own.temperatures, ElementsAre(0, 0.5));
  EXPECT_EQ(own.beam_size, 3);
  EXPECT_EQ(own.initial_prompt, "x");
  EXPECT_EQ(own.hotwords, "a b");
  EXPECT_EQ(own.limits.no_speech, std::nullopt);
  EXPECT_THAT(*own.suppress_tokens, ElementsAre(1, 2));
  EXPECT_EQ(own.max_new_tokens, 7);
  EXPECT_TRUE(own.word_timestamps);
  EXPECT_THAT(parse_speech_options({{"temperature", 0.5}}, "x").temperatures, ElementsAre(0.5));
  EXPECT_EQ(parse_speech_options({{"suppress_tokens", {-1}}}, "x").suppress_tokens, std::nullopt);
}

TEST(SpeechOptions, are_written_as_both_programs_users_write_them) {
  const auto read = [](const Json& generate) { return parse_speech_options(generate, "x"); };
  EXPECT_THAT(read({{"clip_timestamps", "0"}}).clips, ElementsAre());
  EXPECT_THAT(read({{"clip_timestamps", "3"}}).clips, ElementsAre(3));
  EXPECT_THAT(read({{"clip_timestamps", "1,2.5, 7"}}).clips, ElementsAre(1, 2.5, 7));
  EXPECT_THAT(read({{"clip_timestamps", {1, 2.5}}}).clips, ElementsAre(1, 2.5));
  EXPECT_THAT(read({{"clip_timestamps", ""}}).clips, ElementsAre());
  EXPECT_THAT(read({{"clip_timestamps", {{{"start", 3}, {"end", 4.5}}}}}).clips, ElementsAre(3, 4.5));
  EXPECT_THAT(*read({{"suppress_tokens", "3,-1"}}).suppress_tokens, ElementsAre(3, -1));
  EXPECT_EQ(read({{"suppress_tokens", "-1"}}).suppress_tokens, std::nullopt);
  EXPECT_THAT(*read({{"suppress_tokens", ""}}).suppress_tokens, ElementsAre());
  EXPECT_EQ(read({{"logprob_threshold", -2}}).limits.logprob, -2);
  EXPECT_EQ(read({{"logprob_threshold", nullptr}}).limits.logprob, std::nullopt);
  EXPECT_THAT(read({{"initial_prompt", {4, 5}}}).initial_tokens, ElementsAre(4, 5));
  const auto vad = read({{"vad_parameters", {{"min_silence_duration_ms", 500}, {"speech_pad_ms", 0}}}}).vad;
  EXPECT_EQ(vad.min_silence, 500);
  EXPECT_EQ(vad.padding, 0);
  EXPECT_EQ(vad.min_speech, std::nullopt);
}

TEST(SpeechOptions, what_is_wrong_is_named) {
  EXPECT_THAT(problem({{"clip_timestamps", {5, 2}}}), HasSubstr("end behind their start"));
  EXPECT_THAT(problem({{"clip_timestamps", "1;2"}}), HasSubstr("a list of seconds"));
  EXPECT_THAT(problem({{"clip_timestamps", {-1}}}), HasSubstr("`clip_timestamps`"));
  EXPECT_THAT(problem({{"clip_timestamps", {{{"start", 3}}}}}), HasSubstr("`start` and `end`"));
  EXPECT_THAT(problem({{"vad_parameters", {{"threshold", 0.5}}}}), HasSubstr("loudness"));
  EXPECT_THAT(problem({{"vad_parameters", {{"speech_pad", 5}}}}), HasSubstr("speech_pad_ms"));
  EXPECT_THAT(problem({{"chunk_length", 31}}), HasSubstr("from 1 to 30"));
  EXPECT_THAT(problem({{"initial_prompt", {-1}}}), HasSubstr("`initial_prompt`"));

  EXPECT_THAT(problem({{"beam_size", 0}}),
              HasSubstr("request 3: `beam_size` must be a whole number from 1 to 64"));
  EXPECT_THAT(problem({{"temperature", Json::array()}}), HasSubstr("1 to 32"));
  EXPECT_THAT(problem({{"temperature", {0, "x"}}}), HasSubstr("`temperature`"));
  EXPECT_THAT(problem({{"temperature", 1e-9}}), HasSubstr("0.000001"));
  EXPECT_THAT(problem({{"vad_filter", 1}}), HasSubstr("true or false"));
  EXPECT_THAT(problem({{"no_speech_threshold", 1.5}}), HasSubstr("from 0.0 to 1.0"));
  EXPECT_THAT(problem({{"initial_prompt", 5}}), HasSubstr("a text"));
  EXPECT_THAT(problem({{"suppress_tokens", {"x"}}}), HasSubstr("`suppress_tokens`"));
  EXPECT_THAT(problem({{"suppress_tokens", 5}}), HasSubstr("a list of token ids"));
}

TEST(SpeechOptions, leave_the_rest_to_the_others) {
  const Json generate = {{"beam_size", 2}, {"top_k", 5}, {"temperature", {0, 1}}, {"seed", 1}};
  EXPECT_EQ(without_speech_keys(generate), Json({{"top_k", 5}, {"seed", 1}}));
  EXPECT_EQ(without_speech_keys({{"temperature", 0.5}}), Json({{"temperature", 0.5}}));
  EXPECT_TRUE(is_speech_key("vad_filter"));
  EXPECT_FALSE(is_speech_key("temperature"));
  EXPECT_FALSE(is_speech_key("prompt"));
}

TEST(SpeechOptions, language_and_task_are_checked) {
  SpeechOptions options;
  set_language(options, "German", "x");
  EXPECT_EQ(options.language, "de");
  set_language(options, "auto", "x");
  EXPECT_EQ(options.language, "");
  EXPECT_THROW(set_language(options, "klingon", "x"), Error);
  set_task(options, "translate", "x");
  EXPECT_EQ(options.task, SpeechTask::translate);
  EXPECT_THROW(set_task(options, "sing", "x"), Error);
}

}  // namespace
}  // namespace diffuse::test

// Whole recordings, window by window, against openai-whisper's transcribe() with a model that answers from a
// script: the same prompts are asked for, and the same segments come out.

#include "text/speech_transcriber.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"
#include "tests/text/speech_support.hpp"

namespace diffuse::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

std::shared_ptr<const SpeechTokens> shared_tokens() {
  return std::make_shared<const SpeechTokens>(small_tokens());
}

SpeechText small_text(Ids prompt = {}) {
  return {small_decode, std::move(prompt), {}, {}};
}

// openai-whisper's names -> ours.
SpeechOptions options_of(const Json& run) {
  SpeechOptions options;
  options.language = "en";
  options.word_timestamps = run["words"];
  Json generate = Json::object();
  for (const auto& [key, value] : run["options"].items()) {
    if (key == "initial_prompt" || key == "task") continue;
    generate[key == "logprob_threshold" ? "log_prob_threshold" : key] = value;
  }
  options = parse_speech_options(generate, "the run", options);
  if (run["options"].contains("task")) set_task(options, run["options"]["task"], "the run");
  return options;
}

// A peak at each row's place over a floor that differs everywhere, as the fixture was made with.
WordAttention attention_of(const Json& places) {
  WordAttention attention;
  attention.heads = 1;
  attention.rows = static_cast<std::int64_t>(places.size());
  attention.columns = 1500;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto first = places[i].get<std::size_t>();
    for (std::size_t j = 0; j < 1500; ++j) {
      const auto floor = static_cast<double>((i * i * 7 + j * 13 + i * j * 3) % 101) / 101;
      const auto weight = static_cast<float>(0.0005 * (1 + floor));
      attention.weights.push_back(j >= first && j < first + 12 ? weight + 0.05F : weight);
    }
  }
  return attention;
}

void answer(Transcriber& work, const Json& call) {
  if (call["kind"] == "decode") {
    ASSERT_TRUE(std::holds_alternative<DecodeStep>(work.step()));
    const auto& step = std::get<DecodeStep>(work.step());
    EXPECT_EQ(step.temperature, call["temperature"].get<double>());
    EXPECT_EQ(step.prompt.tokens, list_of<std::int32_t>(call["prompt"]));
    if (call.contains("seek")) {
      EXPECT_EQ(step.seek, call["seek"].get<std::int64_t>());
      EXPECT_EQ(step.frames, call["frames"].get<std::int64_t>());
    }
    work.decoded({list_of<std::int32_t>(call["chosen"]), call["logprob"], call["no_speech"]});
  } else {
    ASSERT_TRUE(std::holds_alternative<AlignStep>(work.step()));
    const auto& step = std::get<AlignStep>(work.step());
    EXPECT_EQ(Ids(step.tokens.begin() + 4, step.tokens.end() - 1), list_of<std::int32_t>(call["text"]));
    EXPECT_EQ(step.front, 3U);
    work.aligned(attention_of(call["places"]), list_of<double>(call["probabilities"]));
  }
}

void expect_segment(const TranscriptSegment& segment, const Json& wanted) {
  EXPECT_EQ(segment.seek, wanted["seek"].get<std::int64_t>());
  EXPECT_EQ(segment.start, wanted["start"].get<double>());
  EXPECT_EQ(segment.end, wanted["end"].get<double>());
  EXPECT_EQ(segment.text, wanted["text"].get<std::string>());
  EXPECT_EQ(segment.tokens, list_of<std::int32_t>(wanted["tokens"]));
  EXPECT_EQ(segment.temperature, wanted["temperature"].get<double>());
  EXPECT_EQ(segment.avg_logprob, wanted["avg_logprob"].get<double>());
  EXPECT_EQ(segment.compression_ratio, wanted["compression_ratio"].get<double>());
  EXPECT_EQ(segment.no_speech_prob, wanted["no_speech_prob"].get<double>());
  if (!wanted.contains("words")) return;
  ASSERT_EQ(segment.words.size(), wanted["words"].size());
  for (std::size_t i = 0; i < segment.words.size(); ++i) {
    EXPECT_EQ(segment.words[i].word, wanted["words"][i]["word"].get<std::string>());
    EXPECT_EQ(segment.words[i].start, wanted["words"][i]["start"].get<double>());
    EXPECT_EQ(segment.words[i].end, wanted["words"][i]["end"].get<double>());
    EXPECT_DOUBLE_EQ(segment.words[i].probability, wanted["words"][i]["probability"].get<double>());
  }
}

void expect_result(const Transcriber& work, const Json& wanted) {
  ASSERT_TRUE(work.done());
  const auto& transcript = work.transcript();
  EXPECT_EQ(transcript.text, wanted["text"].get<std::string>());
  ASSERT_EQ(transcript.segments.size(), wanted["segments"].size());
  for (std::size_t i = 0; i < transcript.segments.size(); ++i)
    expect_segment(transcript.segments[i], wanted["segments"][i]);
}

TEST(Transcriber, does_what_openai_whisper_does) {
  std::size_t windows = 0;
  for (const auto& run : speech_fixture()["runs"]) {
    SCOPED_TRACE(run["options"].dump());
    Transcriber work(shared_tokens(), options_of(run),
                     small_text(run["options"].contains("initial_prompt") ? Ids{14, 1} : Ids()),
                     run["frames"], 448);
    for (const auto& call : run["calls"]) {
      answer(work, call);
      if (testing::Test::HasFatalFailure()) return;
      ++windows;
    }
    expect_result(work, run["result"]);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GE(windows, 80U);
}

// Clips of a recording, silence around strange words, a prompt that is carried on. After each window another
// goes on behind the ones before it, as a run does that was stopped there.
TEST(Transcriber, clips_skips_and_carries_as_openai_whisper_does) {
  const auto runs = read_json(std::filesystem::path(DIFFUSE_TEST_DATA) / "text" / "clips" / "runs.json");
  std::size_t resumed = 0;
  for (std::size_t at = 0; at < runs.size(); ++at) {
    const auto& run = runs[at];
    SCOPED_TRACE(std::to_string(at) + ": " + run["options"].dump());
    const Ids all = {14, 1, 7, 17, 2, 0};
    const auto shown = std::stoul(run["options"].value("initial_prompt", "0"));
    const auto start = [&] {
      return Transcriber(shared_tokens(), options_of(run),
                         small_text({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown)}),
                         run["frames"], run["context"]);
    };
    std::vector<TranscriptWindow> windows;
    std::vector<std::size_t> behind;  // of each window the calls up to its end
    auto work = start();
    for (std::size_t i = 0; i < run["calls"].size(); ++i) {
      answer(work, run["calls"][i]);
      if (testing::Test::HasFailure()) return;
      if (auto window = work.take_window()) {
        windows.push_back(std::move(*window));
        behind.push_back(i + 1);
      }
    }
    expect_result(work, run["result"]);
    if (testing::Test::HasFailure()) return;
    for (std::size_t kept = 1; kept <= windows.size(); ++kept) {
      auto again = start();
      again.resume(std::span(windows).first(kept));
      for (std::size_t i = behind[kept - 1]; i < run["calls"].size(); ++i) answer(again, run["calls"][i]);
      expect_result(again, run["result"]);
      EXPECT_EQ(again.said(), work.said());
      if (testing::Test::HasFailure()) return;
      ++resumed;
    }
  }
  EXPECT_GE(resumed, 150U);
}

// ---- what the original has no part of, or another one

SpeechOptions greedy() {
  SpeechOptions options;
  options.temperatures = {0};
  options.beam_size = 1;
  return options;
}

const DecodeStep& decode_step(const Transcriber& work) {
  return std::get<DecodeStep>(work.step());
}

TEST(Transcriber, finds_the_language_first) {
  Transcriber work(shared_tokens(), greedy(), small_text(), 3500, 448);
  EXPECT_EQ(std::get<DetectStep>(work.step()).frames, 3000);
  work.detected({23, 0.75, {0.25, 0.75}});
  EXPECT_THAT(decode_step(work).prompt.tokens, ElementsAre(21, 23, 25));
  work.decoded({{30, 1, 80}, -0.4, 0.1});
  EXPECT_EQ(decode_step(work).seek, 3000);
  EXPECT_EQ(decode_step(work).frames, 500);
  work.decoded({{30, 1, 80}, -0.4, 0.1});
  EXPECT_TRUE(work.done());
  EXPECT_EQ(work.transcript().language, "de");
  EXPECT_EQ(work.transcript().language_probability, 0.75);
  EXPECT_EQ(work.transcript().segments[0].language, "de");
}

TEST(Transcriber, finds_it_in_each_window_where_asked) {
  auto options = greedy();
  options.multilingual = true;
  Transcriber work(shared_tokens(), options, small_text(), 6000, 448);
  work.detected({23, 0.75, {}});
  work.decoded({{30, 1, 80}, -0.4, 0.1});
  EXPECT_EQ(std::get<DetectStep>(work.step()).seek, 3000);
  work.detected({22, 0.9, {}});
  EXPECT_EQ(decode_step(work).prompt.tokens.back(), 25);
  work.decoded({{30, 1, 80}, -0.4, 0.1});
  EXPECT_EQ(work.transcript().language, "de");
  EXPECT_EQ(work.transcript().segments[1].language, "en");
}

TEST(Transcriber, finds_it_by_several_windows) {
  auto options = greedy();
  options.language_windows = 3;
  options.language_threshold = 0.6;
  options.clips = {10, 100};
  const auto found = [&](const std::vector<LanguageGuess>& guesses) {
    Transcriber work(shared_tokens(), options, small_text(), 10'000, 448);
    for (std::size_t i = 0; i < guesses.size(); ++i) {
      EXPECT_EQ(std::get<DetectStep>(work.step()).seek, 1000 + 3000 * static_cast<std::int64_t>(i));
      work.detected(guesses[i]);
    }
    EXPECT_EQ(decode_step(work).seek, 1000);
    return std::pair(work.transcript().language, work.transcript().language_probability);
  };
  EXPECT_EQ(found({{22, 0.5, {}}, {23, 0.61, {}}}), std::pair(std::string("de"), 0.61));  // sure enough
  EXPECT_EQ(found({{22, 0.5, {}}, {23, 0.4, {}}, {23, 0.3, {}}}), std::pair(std::string("de"), 0.4));
  options.language_windows = 2;
  EXPECT_EQ(found({{22, 0.3, {}}, {23, 0.6, {}}}), std::pair(std::string("en"), 0.3));  // of equals the first
}

TEST(Transcriber, windows_are_as_long_as_a_chunk) {
  auto options = greedy();
  options.language = "en";
  options.chunk_length = 12;
  Transcriber work(shared_tokens(), options, small_text(), 2000, 448);
  EXPECT_EQ(decode_step(work).frames, 1200);
  work.decoded({{30, 1, 80}, -0.4, 0.1});
  EXPECT_EQ(decode_step(work).seek, 1200);
  EXPECT_EQ(decode_step(work).frames, 800);
}

TEST(Transcriber, what_no_text_may_hold_is_never_chosen) {
  auto options = greedy();
  options.language = "en";
  const auto suppressed = [&](std::optional<Ids> ids) {
    options.suppress_tokens = std::move(ids);
    return decode_step(Transcriber(shared_tokens(), options, small_text(), 3000, 448)).rules.suppress;
  };
  EXPECT_EQ(suppressed(std::nullopt), small_tokens().suppress);
  EXPECT_EQ(suppressed(Ids{}), (Ids{21, 24, 25, 26, 27, 28}));
  EXPECT_EQ(suppressed(Ids{9, -1, 9}), (Ids{4, 9, 21, 24, 25, 26, 27, 28}));
}

TEST(Transcriber, keeps_the_sequence_that_transformers_keeps) {
  auto options = greedy();
  options.language = "en";
  Transcriber work(shared_tokens(), options, small_text(), 3000, 448);
  work.decoded({{30, 1, 80, 80, 2}, -0.4, 0.1});  // what follows the pair is decoded again
  EXPECT_EQ(decode_step(work).seek, 100);
  work.decoded({{30, 2, 90}, -0.4, 0.1});
  EXPECT_TRUE(work.done());
  EXPECT_EQ(work.said(), (Ids{30, 1, 80, 80, 30, 2, 90}));
  EXPECT_EQ(work.transcript().segments[0].tokens, (Ids{30, 1, 80}));
}

TEST(Transcriber, steps_carry_rules_and_search) {
  SpeechOptions options;
  options.language = "de";
  options.temperatures = {0, 0.5};
  options.max_initial_timestamp = 0.5;
  options.suppress_tokens = Ids{3};
  options.suppress_blank = false;
  options.without_timestamps = true;
  options.no_repeat_ngram_size = 4;
  options.repetition_penalty = 1.5;
  Transcriber work(shared_tokens(), options, small_text(), 3000, 448);
  const auto first = decode_step(work);
  EXPECT_EQ(first.beams, 5);
  EXPECT_EQ(first.samples, 1);
  EXPECT_EQ(first.attempt, 0);
  EXPECT_EQ(first.max_new_tokens, 448 - 4);
  EXPECT_EQ(first.prompt.tokens, (Ids{21, 23, 25, 29}));
  EXPECT_FALSE(first.rules.timestamps);
  EXPECT_FALSE(first.rules.suppress_first);
  EXPECT_EQ(first.rules.max_initial_timestamp, 25);
  EXPECT_EQ(first.rules.suppress, (Ids{3, 21, 24, 25, 26, 27, 28}));
  EXPECT_EQ(first.rules.no_repeat_ngram, 4);
  EXPECT_EQ(first.rules.repetition_penalty, 1.5);
  work.decoded({{1, 2}, -9, 0.1});
  EXPECT_EQ(decode_step(work).temperature, 0.5);
  EXPECT_EQ(decode_step(work).attempt, 1);
  EXPECT_EQ(decode_step(work).beams, 1);
  EXPECT_EQ(decode_step(work).samples, 5);
}

// The job's first, then the checkpoint's, then a second.
TEST(Transcriber, the_first_timestamp_is_bounded_by_the_job_or_the_checkpoint) {
  auto tokens = std::make_shared<SpeechTokens>(*shared_tokens());
  auto options = greedy();
  options.language = "en";
  const auto bound = [&] {
    Transcriber work(tokens, options, small_text(), 3000, 448);
    return decode_step(work).rules.max_initial_timestamp;
  };
  tokens->max_initial_timestamp.reset();
  EXPECT_EQ(bound(), 50);
  tokens->max_initial_timestamp = 20;
  EXPECT_EQ(bound(), 20);
  options = parse_speech_options({{"max_initial_timestamp", 0.5}}, "x", options);
  EXPECT_EQ(bound(), 25);
  options = parse_speech_options({{"max_initial_timestamp", nullptr}}, "x", options);
  EXPECT_EQ(bound(), std::nullopt);
}

TEST(Transcriber, prefix_and_hotwords_are_shown) {
  auto options = greedy();
  options.language = "en";
  auto text = small_text();
  text.prefix = {5};
  text.hotwords = {7};
  Transcriber work(shared_tokens(), options, text, 6000, 448);
  EXPECT_EQ(decode_step(work).prompt.tokens, (Ids{21, 22, 25, 30, 5}));
  work.decoded({{30, 1, 80}, -0.4, 0.1});
  EXPECT_EQ(decode_step(work).prompt.tokens, (Ids{27, 7, 30, 1, 80, 21, 22, 25}));
}

TEST(Transcriber, an_hour_of_silence_ends) {
  auto options = greedy();
  options.language = "en";
  Transcriber work(shared_tokens(), options, small_text(), 360'000, 448);
  int windows = 0;
  for (; !work.done() && windows < 1000; ++windows) work.decoded({{}, -5, 0.99});
  EXPECT_EQ(windows, 120);
  EXPECT_TRUE(work.transcript().segments.empty());
  EXPECT_EQ(work.transcript().duration, 3600);
}

TEST(Transcriber, nothing_is_done_at_once) {
  Transcriber work(shared_tokens(), greedy(), small_text(), 0, 448);
  EXPECT_TRUE(work.done());
  EXPECT_EQ(work.transcript().text, "");
}

std::string problem(const SpeechTokens& tokens, const SpeechOptions& options) {
  try {
    const Transcriber work(std::make_shared<const SpeechTokens>(tokens), options, small_text(), 3000, 448);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Transcriber, what_a_model_cannot_do_is_named) {
  auto english = small_tokens();
  english.languages.clear();
  auto options = greedy();
  EXPECT_EQ(problem(english, options), "");
  options.language = "de";
  EXPECT_THAT(problem(english, options), HasSubstr("English alone"));
  SpeechOptions several;
  several.multilingual = true;
  EXPECT_THAT(problem(english, several), HasSubstr("`multilingual`"));
  options.language = "fr";
  EXPECT_THAT(problem(small_tokens(), options), HasSubstr("does not know the language 'fr'"));
  options = greedy();
  options.word_timestamps = true;
  auto headless = small_tokens();
  headless.alignment_heads.clear();
  EXPECT_THAT(problem(headless, options), HasSubstr("alignment heads"));
}

TEST(Transcriber, the_wrong_answer_is_an_error) {
  auto options = greedy();
  options.language = "en";
  Transcriber work(shared_tokens(), options, small_text(), 3000, 448);
  EXPECT_THROW(work.detected({22, 1, {}}), Error);
  EXPECT_THROW(work.aligned({}, {}), Error);
}

TEST(Transcripts, are_moved_and_joined) {
  Transcript piece;
  piece.language = "en";
  piece.text = " a";
  piece.segments.push_back({});
  piece.segments[0].start = 1;
  piece.segments[0].end = 2;
  piece.segments[0].words.push_back({" a", 1, 2, 0.5});
  auto moved = piece;
  move_times(moved, [](double time, bool ends) { return time + (ends ? 100.5 : 100); });
  EXPECT_EQ(moved.segments[0].start, 101);
  EXPECT_EQ(moved.segments[0].end, 102.5);
  EXPECT_EQ(moved.segments[0].words[0].end, 102.5);
  Transcript whole;
  append_piece(whole, piece);
  append_piece(whole, moved);
  EXPECT_EQ(whole.text, " a a");
  EXPECT_EQ(whole.language, "en");
  EXPECT_EQ(whole.segments.size(), 2U);
}

}  // namespace
}  // namespace diffuse::test

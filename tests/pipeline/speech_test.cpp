// Recordings through the pipeline: the transcript is the reference's, and the same however the run is cut.

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <thread>

#include "job/transcript.hpp"
#include "support.hpp"
#include "verify/compare.hpp"

namespace diffuse::test {
namespace {

// tests/data/golden/speech/make.py has the same formula.
Sound sound_of(double seconds, std::int64_t seed) {
  Sound sound;
  sound.rate = 16'000;
  for (std::int64_t n = 0; n < static_cast<std::int64_t>(seconds * 16'000); ++n) {
    const auto wave = (n * n % 4001 * (seed + 3) + n * 7 * seed) % 1601 - 800;
    const auto loud = n / 4000 * (seed + 5) % 17;
    sound.samples.push_back(static_cast<float>(wave * loud) / 16384.0F);
  }
  return sound;
}

Request recording_of(Sound sound, const std::string& language, Json generate) {
  Request request;
  request.input = NoText{};
  request.audio = std::move(sound);
  request.language = language;
  request.generate = std::move(generate);
  return request;
}

const Subject& subject() {
  static const Subject speech(std::filesystem::path(DIFFUSE_TEST_DATA) / "golden" / "speech");
  return speech;
}

std::vector<PreparedRequest> prepared(const Job& job) {
  return prepare(job, subject().text, limits_of(subject().model.recipe, 1 << 20));
}

// As transformers transcribes by default.
Json greedy() {
  return {{"beam_size", 1},
          {"temperature", 0},
          {"condition_on_previous_text", false},
          {"no_speech_threshold", nullptr}};
}

Json with(Json base, const Json& more) {
  base.update(more);
  return base;
}

void expect_identical(const Job& job, const std::vector<Setting>& settings) {
  const auto requests = prepared(job);
  const auto whole = run_well(subject(), requests, {});
  for (const auto& request : whole.result.requests)
    EXPECT_EQ(request.status, Status::done) << request.message;
  for (const auto& setting : settings) {
    const auto split = run_well(subject(), requests, setting);
    EXPECT_EQ(difference(whole.result, split.result), "") << to_text(setting);
    for (std::size_t i = 0; i < whole.result.requests.size(); ++i) {
      const auto& a = *whole.result.requests[i].samples.at(0).transcript;
      const auto& b = *split.result.requests[i].samples.at(0).transcript;
      ASSERT_EQ(a.segments.size(), b.segments.size());
      for (std::size_t s = 0; s < a.segments.size(); ++s) {
        EXPECT_EQ(a.segments[s].avg_logprob, b.segments[s].avg_logprob);
        EXPECT_EQ(a.segments[s].no_speech_prob, b.segments[s].no_speech_prob);
        ASSERT_EQ(a.segments[s].words.size(), b.segments[s].words.size());
        for (std::size_t w = 0; w < a.segments[s].words.size(); ++w) {
          EXPECT_EQ(a.segments[s].words[w].start, b.segments[s].words[w].start);
          EXPECT_EQ(a.segments[s].words[w].probability, b.segments[s].words[w].probability);
        }
      }
    }
    if (testing::Test::HasFailure()) return;
  }
}

std::vector<Setting> ways() {
  std::vector<Setting> settings;
#ifndef __SANITIZE_ADDRESS__  // there it is how memory is used that counts: the ways below run what these do
  for (std::int32_t ranks = 1; ranks <= 4; ++ranks) settings.push_back({.ranks = ranks});
#endif
  settings.push_back({.ranks = 2, .slices = "0-1,2-2", .threads = 2});
  settings.push_back({.ranks = 3, .encoders = EncoderCopies::one});
  settings.push_back({.ranks = 5});
  for (auto& setting : settings) {
    setting.options.chunk = setting.ranks == 2 ? 3 : 64;
    setting.options.max_group = setting.ranks == 3 ? 1 : 64;
  }
  return settings;
}

TEST(Speech, segments_and_tokens_are_the_references) {
  std::ifstream file(std::filesystem::path(DIFFUSE_TEST_DATA) / "golden" / "speech" / "transcripts.json");
  const auto cases = Json::parse(file);
  std::vector<Request> requests;
  for (const auto& each : cases)
    requests.push_back(recording_of(sound_of(each["seconds"], each["seed"]), each["language"], greedy()));
  const auto heard = run_well(subject(), prepared(job_of(std::move(requests))), {.ranks = 2});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& expected = cases[i]["segments"];
    const auto& segments = heard.result.requests[i].samples.at(0).transcript->segments;
    ASSERT_EQ(segments.size(), expected.size());
    EXPECT_NEAR(segments.front().no_speech_prob / cases[i]["no_speech_prob"].get<double>(), 1, 1e-4);
    for (std::size_t s = 0; s < segments.size(); ++s) {
      EXPECT_NEAR(segments[s].start, expected[s]["start"].get<double>(), 1e-6);
      EXPECT_NEAR(segments[s].end, expected[s]["end"].get<double>(), 1e-6);
      EXPECT_EQ(segments[s].tokens, expected[s]["tokens"].get<std::vector<std::int32_t>>());
    }
  }
}

// Beams with patience and length penalty, with and without timestamps, earlier text in front.
TEST(Speech, beams_choose_what_openai_whisper_chooses) {
  const auto cases = read_json(std::filesystem::path(DIFFUSE_TEST_DATA) / "golden" / "speech" / "beams.json");
  std::vector<Request> requests;
  for (const auto& each : cases) {
    requests.push_back(recording_of(sound_of(each["seconds"], each["seed"]), "en",
                                    with(each["generate"], {{"temperature", 0},
                                                            {"no_speech_threshold", nullptr},
                                                            {"compression_ratio_threshold", nullptr},
                                                            {"max_new_tokens", 32}})));
  }
  const auto heard = run_well(subject(), prepared(job_of(std::move(requests))), {.ranks = 2});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i]["generate"].dump());
    const auto& expected = cases[i]["segments"];
    const auto& segments = heard.result.requests[i].samples.at(0).transcript->segments;
    ASSERT_EQ(segments.size(), expected.size());
    for (std::size_t s = 0; s < segments.size(); ++s) {
      EXPECT_EQ(segments[s].seek, expected[s]["seek"].get<std::int64_t>());
      EXPECT_NEAR(segments[s].start, expected[s]["start"].get<double>(), 1e-6);
      EXPECT_NEAR(segments[s].end, expected[s]["end"].get<double>(), 1e-6);
      EXPECT_EQ(segments[s].tokens, expected[s]["tokens"].get<std::vector<std::int32_t>>());
      EXPECT_NEAR(segments[s].avg_logprob, expected[s]["avg_logprob"].get<double>(), 1e-4);
      EXPECT_NEAR(segments[s].no_speech_prob / expected[s]["no_speech_prob"].get<double>(), 1, 1e-3);
    }
  }
}

TEST(Speech, greedy_is_the_same_however_it_is_cut) {
  expect_identical(job_of({recording_of(sound_of(40.3, 1), "en", greedy()),
                           recording_of(sound_of(3, 5), "", greedy()),  // its language is found
                           recording_of(sound_of(71.5, 2), "de", greedy())}),
                   ways());
}

TEST(Speech, beams_samples_and_words_are_the_same_however_they_are_cut) {
  // All the usual defaults: beams, then hotter and hotter samples, for such a model is never sure.
  const Json usual = {{"word_timestamps", true}};
  expect_identical(
      job_of({recording_of(sound_of(12, 4), "", usual),
              recording_of(sound_of(31, 6), "ja", with(usual, {{"best_of", 2}, {"beam_size", 3}}))}),
      ways());
}

// The tokens of windows one by one, as they were chosen: each must be one that the rules leave behind those
// before it. Where all timestamps together are likelier is not looked at, for that is the model's to say.
TEST(Speech, lanes_keep_to_the_rules_by_what_they_themselves_said) {
  const auto tokens =
      parse_speech_tokens(subject().text.generation_json, subject().model.recipe.vocab, "test");
  std::size_t seen = 0;
  for (const Json& how :
       {Json{{"temperature", 1.0}, {"best_of", 4}}, Json{{"temperature", 0}, {"beam_size", 4}}}) {
    const auto heard = run_well(
        subject(),
        prepared(job_of(
            {recording_of(sound_of(12, 4), "en",
                          with(how, {{"condition_on_previous_text", false}, {"no_repeat_ngram_size", 2}})),
             recording_of(sound_of(40.3, 1), "de",
                          with(how, {{"condition_on_previous_text", false}, {"no_repeat_ngram_size", 2}}))})),
        {.ranks = 2});
    for (const auto& request : heard.result.requests) {
      std::map<std::int64_t, std::vector<std::int32_t>> windows;
      for (const auto& segment : request.samples.at(0).transcript->segments) {
        auto& said = windows[segment.seek];
        said.insert(said.end(), segment.tokens.begin(), segment.tokens.end());
      }
      for (const auto& [seek, said] : windows) {
        SpeechRules rules;
        rules.suppress = tokens.suppress;
        rules.no_repeat_ngram = 2;
        for (std::size_t at = 0; at < said.size(); ++at) {
          std::vector<float> logits(static_cast<std::size_t>(subject().model.recipe.vocab), 0.0F);
          std::fill(logits.begin() + tokens.first_timestamp, logits.end(), -20.0F);
          apply_rules(logits, {}, std::span(said).first(at), tokens, rules);
          EXPECT_GT(logits[static_cast<std::size_t>(said[at])], -1e30F)
              << "window " << seek << ", token " << at;
          ++seen;
        }
      }
    }
  }
  EXPECT_GT(seen, 50U);
}

// Where a recording is shorter than a window, what is missing is silence that was there before its features.
TEST(Speech, a_short_recording_is_one_that_ends_in_silence) {
  auto filled = sound_of(9, 7);
  filled.samples.resize(30 * 16'000);
  const auto heard = run_well(
      subject(),
      prepared(job_of({recording_of(sound_of(9, 7), "en", greedy()), recording_of(filled, "en", greedy())})),
      {});
  const auto first_window = [&](std::size_t request) {
    std::vector<std::int32_t> said;
    double logprob = 0;
    for (const auto& segment : heard.result.requests[request].samples.at(0).transcript->segments) {
      if (segment.seek != 0) continue;
      said.insert(said.end(), segment.tokens.begin(), segment.tokens.end());
      logprob = segment.avg_logprob;
    }
    return std::pair(said, logprob);
  };
  EXPECT_FALSE(first_window(0).first.empty());
  EXPECT_EQ(first_window(0), first_window(1));
}

// One sequence that is watched, over `ranks`; its input is the first window of a recording.
Watched watch(std::vector<std::int32_t> prompt, const Sound& sound, std::int32_t ranks) {
  const auto& model = subject().model;
  const auto& tokens = parse_speech_tokens(subject().text.generation_json, model.recipe.vocab, "test");
  auto given = recording_of(sound, "", Json::object());
  given.input = Tokens{prompt};
  const auto request = prepared(job_of({given})).front();
  EXPECT_EQ(request.problem, "");
  auto sequence = make_sequence(request, 0, 0);
  sequence.max_new_tokens = 0;
  sequence.sampling.watched_ids = tokens.end;
  RunOptions options;
  options.chunk = 4;
  options.kv_pages = 64;
  for (const auto& head : tokens.alignment_heads) options.watched.push_back({head.layer, head.head});
  Watched watched;
  DriverEvents events;
  events.on_chosen = [](std::size_t, std::span<const ChosenToken>) { return Decision{}; };
  events.on_watched = [&](std::size_t, Watched seen) { watched = std::move(seen); };
  events.on_done = [](std::size_t, const std::vector<std::uint64_t>&, std::int64_t) {};
  LoopbackNetwork network(ranks, {.timeout = std::chrono::seconds(20), .fate = {}});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, transport = std::shared_ptr<Transport>(network.endpoint(rank))] {
      const auto backend = make_cpu_backend({.threads = 1, .compute = Compute::f32, .simd = {}});
      const auto plan = make_plan(model.recipe, model.checkpoint.headers(), ranks, "");
      Log log({}, true);
      SplitRun split(model.recipe, model.checkpoint, plan, *transport, *backend, log);
      if (transport->rank() == 0) {
        split.run({sequence}, options, events);
      } else {
        split.follow();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return watched;
}

TEST(Speech, what_is_watched_is_the_references) {
  std::ifstream file(std::filesystem::path(DIFFUSE_TEST_DATA) / "golden" / "speech" / "watched.json");
  const auto expected = Json::parse(file);
  const auto prompt = expected["prompt"].get<std::vector<std::int32_t>>();
  const auto weights = expected["weights"].get<std::vector<std::vector<std::vector<double>>>>();
  const auto likely = expected["likely"].get<std::vector<double>>();
  const auto step = expected["step"].get<std::size_t>();
  constexpr std::size_t kColumns = 1500;
  for (const auto ranks : {1, 3}) {
    const auto watched = watch(prompt, sound_of(40.3, 1), ranks);
    ASSERT_EQ(watched.likely.size(), likely.size());
    for (std::size_t i = 0; i < likely.size(); ++i)
      EXPECT_NEAR(static_cast<double>(watched.likely[i]), likely[i], 2e-5) << i;
    ASSERT_EQ(watched.weights.size(), weights.size() * prompt.size() * kColumns);
    for (std::size_t head = 0; head < weights.size(); ++head) {
      for (std::size_t row = 0; row < prompt.size(); ++row) {
        for (std::size_t column = 0; column < weights[head][row].size(); ++column) {
          const auto found = watched.weights[(head * prompt.size() + row) * kColumns + column * step];
          EXPECT_NEAR(static_cast<double>(found), weights[head][row][column], 2e-5) << head << ", " << row;
        }
      }
    }
  }
}

TEST(Speech, words_lie_within_the_recording) {
  const auto heard = run_well(
      subject(), prepared(job_of({recording_of(sound_of(12, 4), "en", {{"word_timestamps", true}})})), {});
  const auto& transcript = *heard.result.requests[0].samples.at(0).transcript;
  std::size_t words = 0;
  for (const auto& segment : transcript.segments) {
    for (const auto& word : segment.words) {
      EXPECT_LE(word.start, word.end);
      EXPECT_GE(word.probability, 0);
      EXPECT_LE(word.probability, 1);
      ++words;
    }
  }
  EXPECT_GT(words, 0U);
}

// That beams are asked for is not lost on the way.
TEST(Speech, beams_choose_otherwise_than_one) {
  const auto score = [](const Json& more) {
    const auto heard =
        run_well(subject(), prepared(job_of({recording_of(sound_of(9, 7), "en", with(greedy(), more))})), {});
    const auto& transcript = *heard.result.requests[0].samples.at(0).transcript;
    return transcript.segments.at(0).avg_logprob;
  };
  EXPECT_NE(score(Json::object()), score({{"beam_size", 8}, {"length_penalty", 0.0}}));
}

TEST(Speech, pieces_between_silences_run_side_by_side) {
  auto sound = sound_of(20, 1);
  std::fill(sound.samples.begin() + 8 * 16'000, sound.samples.begin() + 13 * 16'000, 0.0F);
  expect_identical(job_of({recording_of(sound, "en", with(greedy(), {{"batched", true}})),
                           recording_of(sound, "en", with(greedy(), {{"vad_filter", true}}))}),
                   {{.ranks = 3}});
}

TEST(Speech, pieces_have_one_language) {
  auto sound = sound_of(40, 1);
  for (const auto second : {8, 21}) std::fill_n(sound.samples.begin() + second * 16'000, 3 * 16'000, 0.0F);
  const Json batched = with(greedy(), {{"batched", true}, {"max_new_tokens", 20}, {"chunk_length", 12}});
  const auto languages = [&](const Json& more) {
    const auto heard =
        run_well(subject(), prepared(job_of({recording_of(sound, "", with(batched, more))})), {.ranks = 2});
    const auto& transcript = *heard.result.requests[0].samples.at(0).transcript;
    std::set<std::string> found = {transcript.language};
    for (const auto& segment : transcript.segments) found.insert(segment.language);
    return std::pair(found.size(), heard.report.encode_ns > 0 ? heard.report.encoded_rows / 1500 : 0);
  };
  const auto one = languages(Json::object());
  EXPECT_EQ(one.first, 1U);
  // Listening to more pieces takes their windows once more, but for the last of them.
  EXPECT_EQ(languages({{"language_detection_segments", 3}, {"language_detection_threshold", 1}}),
            std::pair(std::size_t{1}, one.second + 2));
  expect_identical(job_of({recording_of(sound, "", batched),
                           recording_of(sound, "",
                                        with(batched, {{"language_detection_segments", 2},
                                                       {"language_detection_threshold", 1}}))}),
                   {{.ranks = 3}});
}

TEST(Speech, clips_are_written_down_alone) {
  const auto seeks = [](const Json& more) {
    const auto heard =
        run_well(subject(), prepared(job_of({recording_of(sound_of(40, 1), "en", with(greedy(), more))})),
                 {.ranks = 2});
    std::set<std::int64_t> found;
    for (const auto& segment : heard.result.requests[0].samples.at(0).transcript->segments) {
      found.insert(segment.seek);
      EXPECT_GE(segment.start, 3);
      EXPECT_LT(segment.start, 21);
    }
    return found;
  };
  const auto seen = seeks({{"clip_timestamps", "3,6,18,21"}, {"without_timestamps", true}});
  EXPECT_EQ(seen, (std::set<std::int64_t>{300, 1800}));
  const auto pieces =
      seeks({{"clip_timestamps", "3,6,18,21"}, {"without_timestamps", true}, {"batched", true}});
  EXPECT_EQ(pieces, (std::set<std::int64_t>{0}));  // of their pieces
}

// The end of a clip is cut with zeros, not filled with what follows.
TEST(Speech, a_clip_hears_nothing_behind_its_end) {
  const auto said = [](double seconds) {
    auto sound = sound_of(9, 7);
    sound.samples.resize(static_cast<std::size_t>(seconds * 16'000));
    const auto heard = run_well(
        subject(),
        prepared(job_of({recording_of(sound, "en", with(greedy(), {{"clip_timestamps", "0,4"}}))})), {});
    return json_of(*heard.result.requests[0].samples.at(0).transcript)["segments"];
  };
  EXPECT_EQ(said(9), said(8.5));
}

TEST(Speech, silence_is_an_empty_transcript) {
  Sound silence;
  silence.rate = 8'000;
  silence.samples.resize(80'000);
  const auto heard = run_well(
      subject(), prepared(job_of({recording_of(silence, "en", {{"vad_filter", true}})})), {.ranks = 2});
  EXPECT_EQ(heard.result.requests[0].status, Status::done);
  EXPECT_EQ(heard.result.requests[0].samples.at(0).text, "");
  EXPECT_EQ(heard.sequences, 0U);
}

TEST(Speech, a_window_without_room_is_told) {
  const auto finish = [](const Json& more) {
    const auto heard =
        run_well(subject(), prepared(job_of({recording_of(sound_of(9, 7), "en", with(greedy(), more))})), {});
    return heard.result.requests[0].samples.at(0).finish;
  };
  EXPECT_EQ(finish({{"max_new_tokens", 3}}), Finish::length);
  // Where nothing may be said, nothing is, and the recording has its end.
  std::vector<std::int32_t> all(static_cast<std::size_t>(subject().model.recipe.vocab));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
  EXPECT_EQ(finish({{"suppress_tokens", all}}), Finish::end_of_text);
}

// Everything that a transcript says, words and log-probabilities among them.
std::vector<std::string> all_of(const Result& result) {
  std::vector<std::string> texts;
  for (const auto& request : result.requests)
    texts.push_back(json_of(request.samples.at(0).transcript.value()).dump());
  return texts;
}

// Stops a run again and again, goes on from the windows that were told of, with other ranks each time.
void expect_it_goes_on(const Job& job, std::size_t least_kept, std::uint64_t first_stop) {
  const auto requests = prepared(job);
  Setting setting;
  setting.options.trace = false;
  const auto whole = run_well(subject(), requests, setting);
  Hooks hooks;
  std::size_t stops = 0;
  std::size_t kept = 0;
  for (;; ++stops) {
    ASSERT_LT(stops, 40U) << "it does not get on";
    setting.ranks = 1 + static_cast<std::int32_t>(stops % 3);
    setting.threads = 1 + static_cast<int>(stops % 2);
    hooks.stop = [&](std::uint64_t tokens) { return tokens > first_stop + first_stop / 2 * stops; };
    const auto part = run_well(subject(), requests, setting, hooks);
    hooks.windows = part.windows;
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (part.result.requests[i].status == Status::done) hooks.kept[i] = part.result.requests[i];
    if (!part.report.stopped) {
      EXPECT_EQ(difference(whole.result, part.result), "");
      EXPECT_EQ(all_of(whole.result), all_of(part.result));
      break;
    }
    for (const auto& [index, pieces] : hooks.windows)
      for (const auto& [piece, windows] : pieces) kept = std::max(kept, windows.size() + piece);
  }
  EXPECT_GE(stops, 2U);
  EXPECT_GE(kept, least_kept);
}

TEST(Speech, a_stopped_recording_goes_on_from_its_last_window) {
  const Json hot = {{"temperature", {0, 0.8}}, {"best_of", 2},         {"beam_size", 2},
                    {"word_timestamps", true}, {"max_new_tokens", 24}, {"seed", 9}};
  expect_it_goes_on(job_of({recording_of(sound_of(71.5, 2), "en", hot),
                            recording_of(sound_of(65, 3), "", with(greedy(), {{"max_new_tokens", 30}}))}),
                    3, 50);
}

TEST(Speech, stopped_pieces_between_silences_go_on) {
  auto sound = sound_of(50, 1);
  for (const auto second : {8, 21, 33})
    std::fill_n(sound.samples.begin() + second * 16'000, 3 * 16'000, 0.0F);
  // Pieces of different lengths, so that they do not end together.
  const Json batched = with(greedy(), {{"batched", true}, {"max_new_tokens", 12}});
  expect_it_goes_on(job_of({recording_of(sound, "", batched),
                            recording_of(sound, "", with(batched, {{"chunk_length", 7}}))}),
                    2, 40);
}

TEST(Speech, windows_of_another_recording_are_refused) {
  const auto requests = prepared(job_of({recording_of(sound_of(40.3, 1), "en", greedy())}));
  const auto refused = [&](std::uint64_t piece, std::int64_t next, const std::string& language,
                           std::vector<std::int32_t> said = {}) {
    TranscriptWindow window;
    window.next = next;
    window.language = language;
    window.said = std::move(said);
    Hooks hooks;
    hooks.windows[0][piece] = {window};
    return run(subject(), requests, {}, hooks).errors.at(0);
  };
  EXPECT_THAT(refused(0, 1'000'000, "en"), testing::HasSubstr("--no-resume"));
  EXPECT_THAT(refused(0, 0, "en"), testing::HasSubstr("not this recording's"));
  EXPECT_THAT(refused(0, 50, "xx"), testing::HasSubstr("not this recording's"));
  EXPECT_THAT(refused(0, 50, "en", {1 << 20}), testing::HasSubstr("not this recording's"));
  EXPECT_THAT(refused(1, 50, "en"), testing::HasSubstr("no piece 1"));
}

TEST(Speech, a_stopped_run_reports_no_half_transcript) {
  const auto job =
      job_of({recording_of(sound_of(3, 5), "en", greedy()), recording_of(sound_of(71.5, 2), "en", greedy())});
  const auto requests = prepared(job);
  Hooks hooks;
  hooks.stop = [](std::uint64_t tokens) { return tokens > 40; };
  const auto stopped = run_well(subject(), requests, {.ranks = 2}, hooks);
  EXPECT_TRUE(stopped.report.stopped);
  EXPECT_EQ(stopped.result.requests[1].status, Status::unfinished);
  EXPECT_TRUE(stopped.result.requests[1].samples.empty());
}

// What is wrong with one request is said of it, and the others run.
TEST(Speech, bad_requests_are_told_apart) {
  auto texts = recording_of(sound_of(1, 1), "en", Json::object());
  texts.input = Prompt{"hello"};
  Request mute;
  mute.input = NoText{};
  auto spoiled = recording_of(sound_of(1, 1), "en", Json::object());
  spoiled.input = Unusable{"its sound has a sample that is NaN"};
  auto words = mute;
  words.input = Prompt{"hello"};
  auto given = recording_of(sound_of(1, 1), "", {{"beam_size", 2}});
  given.input = Tokens{{257}};
  const auto requests = prepared(
      job_of({texts, mute, recording_of(sound_of(1, 1), "klingon", Json::object()),
              recording_of(sound_of(1, 1), "fr", Json::object()),
              recording_of(sound_of(1, 1), "en", {{"beam_size", 100}}),
              recording_of(sound_of(1, 1), "en", {{"n", 2}}), recording_of(sound_of(1, 1), "en", greedy()),
              spoiled, words, given, recording_of(sound_of(1, 1), "en", {{"top_k", 2}})}));
  EXPECT_NE(requests[0].problem.find("initial_prompt"), std::string::npos);
  EXPECT_NE(requests[1].problem.find("`audio`"), std::string::npos);
  EXPECT_NE(requests[2].problem.find("klingon"), std::string::npos);
  EXPECT_NE(requests[3].problem.find("'fr'"), std::string::npos);
  EXPECT_NE(requests[4].problem.find("100"), std::string::npos);
  EXPECT_NE(requests[5].problem.find("`n`"), std::string::npos);
  EXPECT_EQ(requests[6].problem, "");
  EXPECT_NE(requests[7].problem.find("NaN"), std::string::npos);
  EXPECT_NE(requests[8].problem.find("holds none"), std::string::npos);
  EXPECT_NE(requests[9].problem.find("'beam_size'"), std::string::npos);
  EXPECT_NE(requests[10].problem.find("'top_k'"), std::string::npos);
}

}  // namespace
}  // namespace diffuse::test

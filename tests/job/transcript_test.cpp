#include "job/transcript.hpp"

#include <gmock/gmock.h>

#include "core/json.hpp"
#include "tests/job/support.hpp"

namespace diffuse::test {
namespace {

using testing::HasSubstr;

const std::filesystem::path kFolder = std::filesystem::path(DIFFUSE_TEST_DATA) / "job" / "transcript";

std::string wanted(const std::string& name) {
  return read_file(kFolder / name, 1U << 20);
}

// The transcript of openai-whisper's own JSON: what the files beside it were written of.
Transcript transcript_named(const std::string& name) {
  Json value = read_json(kFolder / (name + ".json"));
  value["language_probability"] = 1;
  value["duration"] = 10;
  value["with_words"] = name == "words";
  for (auto& segment : value["segments"]) {
    segment["language"] = value["language"];
    if (!segment.contains("words")) segment["words"] = Json::array();
  }
  return transcript_of(value, name);
}

TEST(TranscriptFiles, are_those_of_the_original) {
  for (const std::string name : {"words", "plain"}) {
    const auto transcript = transcript_named(name);
    EXPECT_EQ(transcript_text(transcript), wanted(name + ".txt"));
    EXPECT_EQ(transcript_srt(transcript), wanted(name + ".srt"));
    EXPECT_EQ(transcript_vtt(transcript), wanted(name + ".vtt"));
    EXPECT_EQ(transcript_tsv(transcript), wanted(name + ".tsv"));
    EXPECT_EQ(transcript_json(transcript), wanted(name + ".json"));
  }
}

TEST(TranscriptFiles, subtitles_are_laid_out_like_those_of_the_original) {
  const auto transcript = transcript_named("words");
  SubtitleOptions lines;
  lines.max_line_width = 16;
  lines.max_line_count = 2;
  EXPECT_EQ(transcript_srt(transcript, lines), wanted("lines.srt"));
  SubtitleOptions highlight;
  highlight.highlight_words = true;
  EXPECT_EQ(transcript_vtt(transcript, highlight), wanted("highlight.vtt"));
  SubtitleOptions three;
  three.max_words_per_line = 3;
  EXPECT_EQ(transcript_vtt(transcript, three), wanted("three.vtt"));
}

TEST(TranscriptFiles, of_nothing_are_empty) {
  EXPECT_EQ(transcript_text({}), "");
  EXPECT_EQ(transcript_srt({}), "");
  EXPECT_EQ(transcript_vtt({}), "WEBVTT\n\n");
  EXPECT_EQ(transcript_tsv({}), "start\tend\ttext\n");
  EXPECT_EQ(transcript_json({}), R"({"text": "", "segments": [], "language": ""})");
}

TEST(TranscriptFiles, numbers_are_written_as_python_does) {
  Transcript transcript;
  transcript.segments.push_back({});
  auto& segment = transcript.segments[0];
  const std::vector<std::pair<double, std::string>> cases = {
      {0, "0.0"},          {1, "1.0"},
      {-0.25, "-0.25"},    {0.1, "0.1"},
      {0.0001, "0.0001"},  {0.00001, "1e-05"},
      {1.5e-7, "1.5e-07"}, {123456789, "123456789.0"},
      {1e16, "1e+16"},     {2.0 / 3, "0.6666666666666666"}};
  for (const auto& [number, text] : cases) {
    segment.avg_logprob = number;
    EXPECT_THAT(transcript_json(transcript), HasSubstr("\"avg_logprob\": " + text + ","));
  }
}

TEST(Transcript, comes_back_from_its_json) {
  auto transcript = transcript_named("words");
  transcript.language_probability = 0.75;
  const auto value = json_of(transcript);
  EXPECT_EQ(json_of(transcript_of(value, "x")), value);
  EXPECT_EQ(transcript_json(transcript_of(value, "x")), transcript_json(transcript));
}

TEST(Transcript, what_is_none_is_named) {
  auto value = json_of(transcript_named("words"));
  const auto problem = [](const Json& json) {
    return error_of(ExitCode::bad_data, [&] { transcript_of(json, "the transcript"); });
  };
  EXPECT_THAT(problem(Json::array()), HasSubstr("the transcript: not an object"));
  auto broken = value;
  broken["segments"][1].erase("start");
  EXPECT_THAT(problem(broken), HasSubstr("segment 1: `start`"));
  broken = value;
  broken["segments"][0]["tokens"] = {"x"};
  EXPECT_THAT(problem(broken), HasSubstr("no id"));
  broken = value;
  broken["language"] = 5;
  EXPECT_THAT(problem(broken), HasSubstr("`language`"));
}

}  // namespace
}  // namespace diffuse::test

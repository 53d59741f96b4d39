#include "job/export.hpp"

#include <gmock/gmock.h>

#include <set>

#include "job/wav.hpp"
#include "tests/job/support.hpp"

namespace diffuse::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Two files of each picture.
std::vector<MediaFile> two_files(const MediaArray& media) {
  return {{".mp4", std::to_string(media.frames)}, {"/0001.png", "first"}};
}

class Export : public testing::Test {
 protected:
  Export() : result_(sample_result(8)) {
    const char* ids[] = {"plain", "a/b", "A_b", "../../up", "", "bad one", "later", "Grüße, \"quoted\""};
    for (std::size_t i = 0; i < 8; ++i) result_.requests[i].id = ids[i];
    result_.requests[7].samples.resize(1);
    for (auto& request : result_.requests)
      for (auto& sample : request.samples) {
        sample.transcript.reset();
        sample.media.reset();
        sample.latent.reset();
      }
  }
  std::string file(std::string_view name) const { return read_file(folder_ / "x" / name, 1U << 20); }

  TempFolder folder_;
  Result result_;
  static std::filesystem::path operator_path(const TempFolder& folder) { return folder / "x"; }
};

TEST_F(Export, writes_texts_lines_and_a_table) {
  const auto exported = export_result(result_, operator_path(folder_), two_files);
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "x"))
    names.insert(entry.path().filename());
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("plain.txt", "a_b-0.txt", "a_b-1.txt", "A_b-0~2.txt",
                                            "A_b-1~2.txt", "A_b-2.txt", "_.._.._up.txt", "_-0.txt", "_-1.txt",
                                            "Gr____e___quoted_.txt", "results.jsonl", "results.csv"));
  EXPECT_EQ(exported.texts, 10U);
  EXPECT_EQ(exported.unfinished, 2U);
  EXPECT_EQ(file("a_b-1.txt"), result_.requests[1].samples[1].text);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "up.txt"));

  std::vector<Json> lines;
  const std::string jsonl = file("results.jsonl");
  for (std::size_t at = 0; at < jsonl.size(); at = jsonl.find('\n', at) + 1)
    lines.push_back(Json::parse(jsonl.substr(at, jsonl.find('\n', at) - at)));
  ASSERT_EQ(lines.size(), 12U);
  EXPECT_EQ(lines[2]["id"], "a/b");
  EXPECT_EQ(lines[2]["sample"], 1);
  EXPECT_EQ(lines[2]["file"], "a_b-1.txt");
  EXPECT_EQ(lines[2]["text"], result_.requests[1].samples[1].text);
  EXPECT_EQ(lines[9]["status"], "bad");
  EXPECT_THAT(file("results.csv"), HasSubstr("\"Grüße, \"\"quoted\"\"\",0,done,"));
}

TEST_F(Export, a_transcript_gets_its_files) {
  Transcript transcript;
  transcript.segments.push_back({0, 1, 2.5, " Hello there.", {}, "en", 0, 0, 0, 0, {}});
  transcript.segments.push_back({0, 3, 4, " Bye.", {}, "en", 0, 0, 0, 0, {}});
  result_.requests[7].samples[0].transcript = transcript;
  result_.requests[7].samples[0].transcript->duration = 5;
  result_.requests[7].seconds = 2;
  EXPECT_THAT(show_text(result_),
              HasSubstr(", 5.0 s of sound, the request took 2.0 s, 2.50 times as fast as it plays)\n"));
  EXPECT_EQ(export_result(result_, operator_path(folder_), two_files).texts, 10U);
  EXPECT_EQ(file("Gr____e___quoted_.txt"), "Hello there.\nBye.\n");
  EXPECT_THAT(file("Gr____e___quoted_.srt"),
              HasSubstr("1\n00:00:01,000 --> 00:00:02,500\nHello there.\n\n2\n"));
  EXPECT_THAT(file("Gr____e___quoted_.vtt"), HasSubstr("00:03.000 --> 00:04.000\nBye.\n"));
  EXPECT_THAT(file("Gr____e___quoted_.tsv"), HasSubstr("3000\t4000\tBye.\n"));
  EXPECT_THAT(file("Gr____e___quoted_.json"), HasSubstr("\"seek\": 0, \"start\": 3.0"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x" / "plain.srt"));
  EXPECT_EQ(show_json(result_)["requests"][7]["samples"][0]["transcript"]["segments"][1]["end"], 4);
}

TEST_F(Export, a_sound_is_a_wav_file) {
  auto& sample = result_.requests[7].samples[0];
  const std::vector<float> samples = {0.5F, -1, 0.25F, 2};
  sample.media = sound_of(samples, 2, 8000);
  sample.text.clear();
  const auto exported = export_result(result_, operator_path(folder_), two_files);
  EXPECT_EQ(exported.texts, 9U);
  EXPECT_EQ(exported.media, 1U);
  EXPECT_EQ(file("Gr____e___quoted_.wav"), wav_file(samples, 2, 8000));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x" / "Gr____e___quoted_.txt"));
  EXPECT_THAT(file("results.csv"), HasSubstr(",Gr____e___quoted_.wav,"));
  EXPECT_THAT(file("results.jsonl"), HasSubstr("\"file\":\"Gr____e___quoted_.wav\""));
  const auto shown = show_json(result_)["requests"][7]["samples"][0]["media"];
  EXPECT_EQ(shown["kind"], "sound");
  EXPECT_EQ(shown["frames"], 2);
  EXPECT_EQ(shown["channels"], 2);
  EXPECT_EQ(shown["rate"], 8000);
  result_.requests[7].seconds = 0.5;
  const auto codes = std::to_string(result_.requests[7].samples[0].tokens.size());
  EXPECT_THAT(show_text(result_),
              HasSubstr("(" + codes +
                        " codes, sound, 0.00025 s, 8000 Hz, stereo, the request took 0.5 s, 0.00 times "
                        "as fast as it plays)\n"));
  EXPECT_THAT(show_text(result_), HasSubstr("1 sound of " + codes + " codes\n"));
}

TEST_F(Export, a_latent_is_a_npy_file) {
  auto& sample = result_.requests[0].samples[0];
  sample.text.clear();
  sample.latent =
      LatentArray{.channels = 3, .frames = 1, .height = 1, .width = 2, .values = {0, 1, 2, 3, 4, 5}};
  const auto exported = export_result(result_, operator_path(folder_), two_files);
  EXPECT_EQ(exported.media, 1U);
  EXPECT_THAT(file("results.jsonl"), HasSubstr("\"file\":\"plain.latent.npy\""));
  EXPECT_EQ(show_json(result_)["requests"][0]["samples"][0]["latent"]["channels"], 3);
  result_.requests[0].samples[0].tokens.clear();
  result_.requests[0].seconds = 1.25;
  EXPECT_THAT(show_text(result_), HasSubstr("== plain (latent, 3 x 1 x 1 x 2, the request took 1.2 s)\n"));
  EXPECT_THAT(show_text(result_), HasSubstr(", 1 latent\n"));
  const auto shown = show_json(result_)["requests"][0]["samples"][0];
  EXPECT_FALSE(shown.contains("tokens") || shown.contains("finish") || shown.contains("text")) << shown;
  export_result(result_, operator_path(folder_), two_files);
  EXPECT_THAT(file("results.csv"), testing::ContainsRegex("plain,0,done,,[0-9]+,,1.250,plain.latent.npy"));
  EXPECT_THAT(file("results.jsonl"),
              testing::Not(testing::ContainsRegex("\"finish\"[^\n]*plain.latent.npy")));
  const auto bytes = file("plain.latent.npy");
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\0", 8));
  EXPECT_THAT(bytes, HasSubstr("'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 1, 2), }"));
  EXPECT_EQ(bytes.size() % 64, 24U);
  float last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - sizeof last, sizeof last);
  EXPECT_EQ(last, 5);
}

TEST_F(Export, pictures_are_the_files_that_are_made_of_them) {
  result_.requests[0].samples[0].media = MediaArray{.kind = MediaKind::video,
                                                    .element = MediaElement::u8,
                                                    .frames = 2,
                                                    .height = 1,
                                                    .width = 1,
                                                    .channels = 3,
                                                    .rate = 16,
                                                    .bytes = std::vector<std::byte>(6)};
  result_.requests[0].samples[0].text.clear();
  const auto exported = export_result(result_, operator_path(folder_), two_files);
  EXPECT_EQ(exported.media, 1U);
  const auto folder = std::filesystem::path(operator_path(folder_));
  EXPECT_EQ(read_file(folder / "plain.mp4", 100), "2");
  EXPECT_EQ(read_file(folder / "plain" / "0001.png", 100), "first");
  EXPECT_THAT(read_file(folder / "results.csv", 100'000), HasSubstr("plain.mp4"));
}

TEST_F(Export, a_link_of_that_name_leads_nowhere) {
  write_bytes(folder_ / "precious", "precious");
  std::filesystem::create_directories(folder_ / "x");
  std::filesystem::create_symlink(folder_ / "precious", folder_ / "x" / "plain.txt");
  export_result(result_, folder_ / "x", two_files);
  EXPECT_EQ(read_file(folder_ / "precious", 100), "precious");
  EXPECT_EQ(file("plain.txt"), result_.requests[0].samples[0].text);
}

TEST_F(Export, a_folder_that_cannot_be_made_is_an_io_error) {
  write_bytes(folder_ / "x", "a file");
  error_of(ExitCode::io, [&] { export_result(result_, folder_ / "x", two_files); });
}

TEST_F(Export, show_is_a_summary_and_texts) {
  result_.requests[0].samples[0].text = "red \x1b[31m text";
  const std::string shown = show_text(result_);
  EXPECT_THAT(shown,
              AllOf(HasSubstr("8 requests: 6 done, 1 bad, 1 unfinished"), HasSubstr("== a/b, sample 1 ("),
                    HasSubstr("bad one: bad: the prompt is longer"), HasSubstr("compute: f32"),
                    HasSubstr("red \\x1b[31m text"), Not(HasSubstr("\x1b"))));
  const std::string one = show_text(result_, {true, "a/b", 6});
  EXPECT_THAT(one, AllOf(HasSubstr("answer…\n"), Not(HasSubstr("plain")), Not(HasSubstr("compute"))));
  EXPECT_THAT(show_text(result_, {false, "", 0}), Not(HasSubstr("answer")));
  error_of(ExitCode::usage, [&] { show_text(result_, {true, "nobody", 0}); });
}

TEST_F(Export, show_json_holds_everything) {
  const Json shown = show_json(result_);
  EXPECT_EQ(shown["requests"].size(), 8U);
  EXPECT_EQ(shown["requests"][1]["samples"][1]["text"], result_.requests[1].samples[1].text);
  EXPECT_EQ(shown["requests"][0]["samples"][0]["logprobs"]["top"], 2);
  EXPECT_EQ(shown["requests"][5]["message"], "the prompt is longer than the context");
  EXPECT_EQ(shown["requests"][0]["seed"], UINT64_MAX);
  EXPECT_EQ(shown["provenance"]["compute"], "f32");
}

}  // namespace
}  // namespace diffuse::test

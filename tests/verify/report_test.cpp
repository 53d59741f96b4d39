// The report: its verdict, and that Markdown, JSON and columns say what the plain data says.

#include "verify/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include "core/error.hpp"

namespace diffuse {
namespace {

using testing::HasSubstr;
using testing::Not;

const Counts kCounts{.requests = 8, .answered = 8, .samples = 8, .tokens = 512, .digests = 38400};

RunFigures run_over(std::int64_t ranks) {
  return {.ranks = ranks,
          .slices = "0-7,8-23",
          .threads = 2,
          .patches = 1,
          .groups = 3,
          .seconds = 1.234,
          .tokens_per_second = 33.25,
          .busy = 0.875};
}

VerificationReport make_report() {
  VerificationReport report;
  report.model = "models/Qwen2.5_0.5B";
  report.tensors_sha256 = "abcdef";
  report.shape = "autoregressive";
  report.depth = 24;
  report.compute_mode = "f32";
  report.simd_target = "AVX2";
  report.hosts = {"node1", "node2"};
  report.versions = {{"diffuse", "0.1.0"}, {"HDF5", "1.10.8"}};
  report.reference = run_over(1);
  for (const auto ranks : {2, 3, 6})
    report.rows.push_back(
        {.run = run_over(ranks), .compared = kCounts, .differences = 0, .first = {}, .notes = {}});
  return report;
}

Difference a_difference() {
  return {.request = "q|3",
          .sample = 0,
          .what = What::digest,
          .position = 12,
          .layer = 5,
          .count = 37,
          .whole = "0x1",
          .split = "0x2"};
}

void strike(SplitRow& row) {
  row.differences = 4;
  row.first = a_difference();
}

void expect_bad_data(const Json& json, const std::string& part) {
  try {
    report_from_json(json);
    FAIL() << "nothing was thrown for " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_data);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(Report, SaysThatSplittingChangedNothing) {
  const auto report = make_report();
  EXPECT_TRUE(proven(report));
  EXPECT_EQ(
      verdict(report),
      "Splitting changed nothing: the runs over 2 ranks, 3 ranks and 6 ranks gave the same bits as the whole "
      "run (1 rank), each in 8 requests, 512 tokens and 38,400 digests of layers.");
}

TEST(Report, StatesTheLeastThatAnyRunCompared) {
  auto report = make_report();
  report.rows[1].compared = {.requests = 7, .answered = 7, .samples = 7, .tokens = 500, .digests = 0};
  EXPECT_THAT(verdict(report), HasSubstr("each in 7 requests, 500 tokens and 0 digests"));
}

TEST(Report, NamesTheFirstDifference) {
  auto report = make_report();
  strike(report.rows[1]);
  EXPECT_FALSE(proven(report));
  EXPECT_EQ(
      verdict(report),
      "Splitting changed the answer: 1 of 3 split runs differ from the whole run, first over 3 ranks "
      "(request "
      "\"q|3\", sample 0: digest differs first at position 12, layer 5 (after block 4): 0x1 in the whole "
      "result, 0x2 in the split one (37 differ)).");
}

TEST(Report, NothingComparedIsNoProof) {
  auto report = make_report();
  report.rows[2].compared.answered = 0;
  EXPECT_FALSE(proven(report));
  EXPECT_THAT(verdict(report), HasSubstr("Nothing is proven"));
  report.rows[2].compared = {.requests = 8, .answered = 8, .samples = 8};
  EXPECT_FALSE(proven(report));
  EXPECT_FALSE(passed(report));
  EXPECT_THAT(verdict(report), HasSubstr("holds no token, no digest and no medium"));
  report.rows.clear();
  EXPECT_FALSE(proven(report));
  EXPECT_FALSE(passed(report));
  EXPECT_THAT(verdict(report), HasSubstr("Nothing is proven: no split run"));
}

TEST(Report, PatchesAloneProveNothingAndPass) {
  auto report = make_report();
  report.rows.clear();
  report.patched = {{.ranks = 1, .patches = 2, .settings = "", .error = {.pixels = 12}}};
  EXPECT_FALSE(proven(report));
  EXPECT_TRUE(passed(report));
  EXPECT_EQ(verdict(report), "No split was asked for.");
  report.patched[0].error.pixels = 0;
  EXPECT_FALSE(passed(report));
  EXPECT_THAT(to_markdown(report), HasSubstr("nothing compared"));
}

TEST(Report, PatchesAreNamed) {
  auto report = make_report();
  report.rows.resize(1);
  report.rows[0].run.patches = 4;
  EXPECT_THAT(verdict(report), HasSubstr("the runs over 2 ranks with 4 patches gave"));
}

TEST(Report, ARowTakesOverWhatWasCompared) {
  Comparison comparison;
  comparison.compared = kCounts;
  comparison.notes = {"note"};
  EXPECT_TRUE(make_row(run_over(2), comparison).identical());
  comparison.differences = {a_difference(), Difference{}};
  const auto row = make_row(run_over(2), comparison);
  EXPECT_EQ(row.run, run_over(2));
  EXPECT_EQ(row.compared, kCounts);
  EXPECT_EQ(row.differences, 2U);
  EXPECT_EQ(row.first, a_difference());
  EXPECT_EQ(row.notes, comparison.notes);
}

// Every line of the table has as many cells as its head, whatever a request is called.
TEST(Report, MarkdownIsATable) {
  auto report = make_report();
  strike(report.rows[1]);
  report.rows[2].notes = {"a\nb | c"};
  const auto text = to_markdown(report);
  EXPECT_THAT(text, testing::StartsWith("## Whole against split\n\n**Splitting changed the answer"));
  std::istringstream lines(text);
  std::size_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '|') continue;
    ++rows;
    std::size_t bars = 0;
    for (std::size_t i = 0; i < line.size(); ++i) bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
    EXPECT_EQ(bars, 15U) << line;
  }
  EXPECT_EQ(rows, 6U);
  EXPECT_THAT(text,
              HasSubstr("| whole | 1 | 0-7,8-23 | 2 | 1 | 3 | reference |  |  |  |  | 1.23 | 33.2 | 88 % |"));
  EXPECT_THAT(text, HasSubstr("| split | 2 | 0-7,8-23 | 2 | 1 | 3 | yes | 8 | 512 | 38,400 |  | 1.23"));
  EXPECT_THAT(
      text,
      HasSubstr("| **no** | 8 | 512 | 38,400 | digest: request \"q\\|3\", sample 0, position 12, layer 5 "
                "(after block 4) | 1.23"));
  EXPECT_THAT(
      text,
      HasSubstr("- Model: models/Qwen2.5\\_0.5B, autoregressive, 24 blocks; SHA-256 of the tensors abcdef"));
  EXPECT_THAT(
      text,
      HasSubstr("- Compute mode f32, SIMD target AVX2\n- Hosts: node1 and node2\n- Versions: HDF5 1.10.8 "
                "and diffuse 0.1.0\n"));
  EXPECT_THAT(text, HasSubstr("- 3 ranks: 4 differences, the first: request"));
  EXPECT_THAT(text, HasSubstr("- 6 ranks: a b \\| c\n"));
  EXPECT_THAT(text, Not(HasSubstr("transformers")));
}

TEST(Report, MarkdownTellsOfTransformers) {
  auto report = make_report();
  AgainstTransformers against{.version = "4.57",
                              .dtype = "float32",
                              .margin = 1e-3,
                              .judged = 509,
                              .equal = 509,
                              .close = 3,
                              .requests = 8,
                              .requests_equal = 8,
                              .first_difference = {}};
  report.transformers = against;
  EXPECT_THAT(
      to_markdown(report),
      HasSubstr(
          "### Against transformers 4.57 (float32)\n\n**The tokens are equal.** Fed with transformers' "
          "tokens, the best one is the same at 509 of 509 positions (3 more have two best logits closer "
          "than 0.001 and are not judged). Running freely, 8 of 8 requests have the same tokens up to "
          "the first such position.\n"));
  report.transformers->equal = 508;
  report.transformers->first_difference = "request \"a\" at 7";
  EXPECT_FALSE(report.transformers->tokens_equal());
  EXPECT_THAT(to_markdown(report), HasSubstr("**The tokens are not equal.**"));
  EXPECT_THAT(to_markdown(report), HasSubstr("\nFirst difference: request \"a\" at 7\n"));
  report.transformers = against;
  report.transformers->requests_equal = 7;
  EXPECT_FALSE(report.transformers->tokens_equal());
  report.transformers->judged = report.transformers->equal = 0;
  EXPECT_THAT(to_markdown(report), HasSubstr("**Nothing was compared with transformers.**"));
}

TEST(Report, JsonComesBackEqual) {
  auto report = make_report();
  EXPECT_EQ(report_from_json(parse_json(to_json(report).dump(), "it")), report);
  strike(report.rows[1]);
  report.rows[0].notes = {"x", "y"};
  report.rows[0].run.seconds = 0.1 + 0.2;
  report.transformers = AgainstTransformers{.version = "4.57",
                                            .dtype = "float32",
                                            .margin = 1e-3,
                                            .judged = 5,
                                            .equal = 4,
                                            .close = 3,
                                            .requests = 2,
                                            .requests_equal = 1,
                                            .first_difference = "d"};
  const Json json = to_json(report);
  EXPECT_EQ(report_from_json(parse_json(json.dump(), "it")), report);
  EXPECT_EQ(json["verdict"], verdict(report));
  EXPECT_EQ(json["proven"], false);
}

TEST(Report, NumbersThatAreNotFiniteSurvive) {
  auto report = make_report();
  report.rows[0].run.tokens_per_second = std::numeric_limits<double>::infinity();
  report.rows[0].run.busy = std::numeric_limits<double>::quiet_NaN();
  const Json json = to_json(report);
  EXPECT_TRUE(json["rows"][0]["run"]["tokens_per_second"].is_null());
  EXPECT_TRUE(json["rows"][0]["run"]["busy"].is_null());
  const auto read = report_from_json(json);
  EXPECT_TRUE(std::isnan(read.rows[0].run.tokens_per_second));
  EXPECT_TRUE(std::isnan(read.rows[0].run.busy));
  EXPECT_THAT(to_markdown(report), HasSubstr("| 1.23 | - | - |"));
}

// Takes away, and then spoils, every member at every depth.
TEST(Report, JsonThatLacksOrSpoilsAMemberIsRefusedByName) {
  auto report = make_report();
  report.rows.resize(1);
  strike(report.rows[0]);
  report.transformers = AgainstTransformers{};
  const Json good = to_json(report);
  const std::vector<std::pair<std::string, std::string>> objects = {
      {"", "verification report"},
      {"/reference", "verification report.reference"},
      {"/rows/0", "verification report.rows[0]"},
      {"/rows/0/run", "verification report.rows[0].run"},
      {"/rows/0/compared", "verification report.rows[0].compared"},
      {"/rows/0/first_difference", "verification report.rows[0].first_difference"},
      {"/transformers", "verification report.transformers"},
  };
  for (const auto& [pointer, path] : objects) {
    for (const auto& [key, value] : good[Json::json_pointer(pointer)].items()) {
      if (pointer.empty() && (key == "verdict" || key == "proven" || key == "passed"))
        continue;  // said anew from the rest
      Json damaged = good;
      damaged[Json::json_pointer(pointer)].erase(key);
      expect_bad_data(damaged, path + "." + key + ": missing");
      damaged[Json::json_pointer(pointer)][key] = value.is_string() ? Json(1) : Json("x");
      expect_bad_data(damaged, path + "." + key + ": not ");
    }
  }
}

TEST(Report, JsonThatContradictsItselfOrIsNewerIsRefused) {
  const Json good = to_json(make_report());
  Json damaged = good;
  damaged["rows"][1]["identical"] = false;
  expect_bad_data(damaged, "rows[1]: 'identical'");
  damaged = good;
  damaged["rows"][1]["first_difference"] = to_json(a_difference());
  expect_bad_data(damaged, "rows[1]: 'identical'");
  damaged = good;
  damaged["format_version"] = 2;
  expect_bad_data(damaged, "format_version: not 1");
  damaged = good;
  damaged["rows"][0]["compared"]["tokens"] = -1;
  expect_bad_data(damaged, "compared.tokens: not a count");
  damaged = good;
  damaged["depth"] = std::numeric_limits<std::uint64_t>::max();
  expect_bad_data(damaged, "depth: not an integer");
  damaged = good;
  damaged["hosts"] = Json::array({1});
  expect_bad_data(damaged, "hosts: not a list of strings");
  damaged = good;
  damaged["versions"]["diffuse"] = 1;
  expect_bad_data(damaged, "versions.diffuse: not a string");
  expect_bad_data(Json::array(), "verification report: not an object");
}

TEST(Report, ColumnsHoldARowEach) {
  auto report = make_report();
  strike(report.rows[1]);
  report.rows[2].run = {.ranks = 6,
                        .slices = "s",
                        .threads = 4,
                        .patches = 5,
                        .groups = 7,
                        .seconds = 8,
                        .tokens_per_second = 9,
                        .busy = 0.5};
  report.rows[2].compared = {.requests = 11, .answered = 12, .samples = 13, .tokens = 14, .digests = 15};
  const auto table = columns(report);
  using testing::ElementsAre;
  EXPECT_THAT(table.ranks, ElementsAre(2, 3, 6));
  EXPECT_THAT(table.slices, ElementsAre("0-7,8-23", "0-7,8-23", "s"));
  EXPECT_THAT(table.threads, ElementsAre(2, 2, 4));
  EXPECT_THAT(table.patches, ElementsAre(1, 1, 5));
  EXPECT_THAT(table.groups, ElementsAre(3, 3, 7));
  EXPECT_THAT(table.identical, ElementsAre(1, 0, 1));
  EXPECT_THAT(table.requests, ElementsAre(8, 8, 11));
  EXPECT_THAT(table.answered, ElementsAre(8, 8, 12));
  EXPECT_THAT(table.samples, ElementsAre(8, 8, 13));
  EXPECT_THAT(table.tokens, ElementsAre(512, 512, 14));
  EXPECT_THAT(table.digests, ElementsAre(38400, 38400, 15));
  EXPECT_THAT(table.differences, ElementsAre(0, 4, 0));
  EXPECT_THAT(table.first_request, ElementsAre("", "q|3", ""));
  EXPECT_THAT(table.first_what, ElementsAre("", "digest", ""));
  EXPECT_THAT(table.first_sample, ElementsAre(-1, 0, -1));
  EXPECT_THAT(table.first_position, ElementsAre(-1, 12, -1));
  EXPECT_THAT(table.first_layer, ElementsAre(-1, 5, -1));
  EXPECT_THAT(table.seconds, ElementsAre(1.234, 1.234, 8));
  EXPECT_THAT(table.tokens_per_second, ElementsAre(33.25, 33.25, 9));
  EXPECT_THAT(table.busy, ElementsAre(0.875, 0.875, 0.5));
}

// Pictures have no tokens, and codes of sound are none.
TEST(Report, EachKindHasItsOwnLabels) {
  auto pictures = make_report();
  for (auto& row : pictures.rows) {
    row.compared.tokens = 0;
    row.compared.media = 12288;
    row.run.tokens_per_second = 0;
  }
  const auto seen = to_markdown(pictures);
  EXPECT_THAT(seen, HasSubstr("8 requests, 38,400 digests of layers and 12,288 elements of media."));
  EXPECT_THAT(seen, HasSubstr("| requests | elements | digests | first difference | seconds | busy |"));
  EXPECT_THAT(seen, HasSubstr("| yes | 8 | 12,288 | 38,400 |"));
  EXPECT_THAT(seen, Not(HasSubstr("token")));
  pictures.rows.clear();
  pictures.patched = {PatchedRow()};
  EXPECT_THAT(to_markdown(pictures), Not(HasSubstr("tokens/s")));
  auto sounds = make_report();
  for (auto& row : sounds.rows) row.compared.media = 640;
  const auto heard = to_markdown(sounds);
  EXPECT_THAT(heard, HasSubstr("8 requests, 512 codes, 38,400 digests of layers and 640 elements of media."));
  EXPECT_THAT(heard,
              HasSubstr("| requests | codes | digests | first difference | seconds | positions/s | busy |"));
  EXPECT_THAT(heard, HasSubstr("| yes | 8 | 512 | 38,400 |"));
  EXPECT_THAT(heard, Not(HasSubstr("token")));
}

}  // namespace
}  // namespace diffuse

// Beam search through the pipeline: the beams are transformers' (tests/data/beams.json: its generate() on the
// golden checkpoints, with ends that come early), and the same however the run is cut.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "support.hpp"
#include "verify/compare.hpp"

namespace diffuse::test {
namespace {

std::vector<Json> cases_of(const std::string& model) {
  std::ifstream file(std::filesystem::path(DIFFUSE_TEST_DATA) / "beams.json");
  std::vector<Json> cases;
  for (const auto& each : Json::parse(file))
    if (each["model"] == model) cases.push_back(each);
  return cases;
}

class Beams : public testing::TestWithParam<const char*> {
 protected:
  Beams() : subject_(std::filesystem::path(DIFFUSE_TEST_DATA) / "golden" / GetParam()) {}

  std::vector<PreparedRequest> prepared(const Job& job) const {
    return prepare(job, subject_.text, limits_of(subject_.model.recipe, 1 << 20));
  }

  Subject subject_;
};

TEST_P(Beams, are_the_references) {
  const auto cases = cases_of(GetParam());
  ASSERT_FALSE(cases.empty());
  for (const auto& each : cases) {
    subject_.text.generation.eos_ids = each["ends"].get<std::vector<std::int32_t>>();
    const auto job = job_of({request_of(each["tokens"].get<std::vector<std::int32_t>>(), each["generate"])});
    for (const auto ranks : {1, 2}) {
      const auto heard = run_well(subject_, prepared(job), {.ranks = ranks});
      std::vector<std::vector<std::int32_t>> found;
      for (const auto& sample : heard.result.requests[0].samples) found.push_back(sample.tokens);
      EXPECT_EQ(found, each["expected"].get<decltype(found)>()) << each.dump();
    }
  }
}

TEST_P(Beams, are_the_same_however_they_are_cut) {
  std::mt19937 random(5);
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i) {
    Json generate = {{"num_beams", 1 + i % 4}, {"max_new_tokens", 3 + random() % 80}};
    if (i % 3 == 0 && i % 4 > 0) generate["early_stopping"] = true;
    if (i % 4 == 3) generate["n"] = 2;
    if (i % 2 == 1) generate["repetition_penalty"] = 1.4;
    requests.push_back(
        request_of(random_ids(random, 60, 1 + static_cast<std::int64_t>(random() % 30)), generate));
  }
  const auto all = prepared(job_of(std::move(requests)));
  for (const auto& request : all) ASSERT_EQ(request.problem, "");
  const auto whole = run_well(subject_, all, {});
  auto settings = random_settings(11, subject_.model.recipe.depth(), 8);
  for (auto& setting : settings) {
    setting.options.kv_pages = setting.options.kv_pages < 100 ? 24 : 4096;
    EXPECT_EQ(difference(whole.result, run_well(subject_, all, setting).result), "") << to_text(setting);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Beams, testing::Values("t5", "bart", "marian", "qwen2"));

class BeamRules : public testing::TestWithParam<const char*> {};

// Rules hold for a model without an encoder too (the first, whose context ends before its tokens do), and
// where they leave no token (the second) the answer ends.
TEST_P(BeamRules, may_leave_no_token) {
  Subject subject(std::filesystem::path(DIFFUSE_TEST_DATA) / "golden" / GetParam());
  subject.text.generation.eos_ids.clear();
  for (const auto beams : {1, 3}) {
    const Json generate = {{"no_repeat_ngram_size", 1}, {"max_new_tokens", 2000}, {"num_beams", beams}};
    const auto all = prepare(job_of({request_of({5, 6}, generate)}), subject.text,
                             limits_of(subject.model.recipe, 1 << 20));
    ASSERT_EQ(all[0].problem, "");
    const auto heard = run_well(subject, all, {.ranks = 2});
    ASSERT_EQ(heard.result.requests[0].status, Status::done) << heard.result.requests[0].message;
    ASSERT_EQ(heard.result.requests[0].samples.size(), 1U);
    auto tokens = heard.result.requests[0].samples.at(0).tokens;
    EXPECT_GT(tokens.size(), 100U);
    std::sort(tokens.begin(), tokens.end());
    EXPECT_EQ(std::adjacent_find(tokens.begin(), tokens.end()), tokens.end());
  }
}
INSTANTIATE_TEST_SUITE_P(Golden, BeamRules, testing::Values("qwen2", "t5"));

TEST(BeamRequests, that_contradict_themselves_are_told) {
  const Subject subject(std::filesystem::path(DIFFUSE_TEST_DATA) / "golden" / "bart");
  const auto problem_of = [&](const Json& generate) {
    return prepare(job_of({request_of({5, 6}, generate)}), subject.text,
                   limits_of(subject.model.recipe, 1 << 20))
        .front()
        .problem;
  };
  EXPECT_EQ(problem_of({{"num_beams", 3}}), "");
  EXPECT_NE(problem_of({{"num_beams", 3}, {"temperature", 1}}).find("'temperature'"), std::string::npos);
  EXPECT_NE(problem_of({{"num_beams", 3}, {"logprobs", 1}}).find("'logprobs'"), std::string::npos);
  EXPECT_NE(problem_of({{"num_beams", 3}, {"n", 4}}).find("'n'"), std::string::npos);
  EXPECT_NE(problem_of({{"num_beams", 65}}).find("64"), std::string::npos);
}

}  // namespace
}  // namespace diffuse::test

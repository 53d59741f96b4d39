#include "job/merge.hpp"

#include <gmock/gmock.h>

#include "tests/job/support.hpp"

namespace diffuse::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

RequestResult request(const std::string& id, Status status, const std::string& text = {}) {
  RequestResult made;
  made.id = id;
  made.status = status;
  if (status == Status::done) {
    made.samples.emplace_back();
    made.samples[0].text = text;
    made.samples[0].tokens = {static_cast<std::int32_t>(text.size())};
  }
  return made;
}

Part part(const std::string& name, const std::string& job, std::vector<RequestResult> requests) {
  Part made{name, {}};
  made.result.requests = std::move(requests);
  made.result.provenance = {{"job_sha256", job}, {"compute", "f32"}, {"hosts", {name}}};
  made.result.timing = {{"seconds", 1}};
  return made;
}

std::vector<std::string> ids(const Result& result) {
  std::vector<std::string> found;
  for (const auto& request : result.requests) found.push_back(request.id);
  return found;
}

TEST(merge, parts_of_different_jobs_follow_each_other) {
  const std::vector<Part> parts = {part("a", "1", {request("x", Status::done, "one")}),
                                   part("b", "2", {request("y", Status::bad), request("z", Status::done)})};
  const Result merged = merge(parts);
  EXPECT_THAT(ids(merged), ElementsAre("x", "y", "z"));
  EXPECT_EQ(merged.requests[0].samples[0].text, "one");
  EXPECT_EQ(merged.provenance["compute"], "f32");
  EXPECT_FALSE(merged.provenance.contains("hosts"));
  EXPECT_EQ(merged.provenance["parts"][1]["name"], "b");
  EXPECT_EQ(merged.provenance["parts"][1]["hosts"][0], "b");
  EXPECT_EQ(merged.timing["parts"].size(), 2U);
}

TEST(merge, ids_that_repeat_are_named_after_their_part) {
  const std::vector<Part> parts = {part("a", "1", {request("0", Status::done), request("q", Status::done)}),
                                   part("b", "2", {request("0", Status::done)})};
  EXPECT_THAT(ids(merge(parts)), ElementsAre("a/0", "a/q", "b/0"));
}

TEST(merge, sounds_of_one_request_must_be_the_same) {
  const auto with = [](const std::string& name, float sample, const std::string& codec) {
    auto made = part(name, "1", {request("x", Status::done)});
    made.result.requests[0].samples[0].media = sound_of(std::vector<float>{0.5F, sample}, 1, 8000);
    made.result.provenance["codec"] = codec;
    return made;
  };
  const std::vector<Part> same = {with("a", 1, "cpu, avx2"), with("b", 1, "cpu, avx2")};
  EXPECT_EQ(merge(same).requests[0].samples[0].media->frames, 2);
  const std::vector<Part> differ = {same[0], with("b", 0.75F, "cpu, avx2")};
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { merge(differ); }), HasSubstr("with different answers"));
  const std::vector<Part> targets = {same[0], with("b", 1, "cpu, avx512")};
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { merge(targets); }), HasSubstr("differ in codec"));
}

TEST(merge, parts_of_one_job_are_laid_over_each_other) {
  const std::vector<Part> parts = {
      part("a", "1",
           {request("0", Status::done, "zero"), request("1", Status::unfinished), request("2", Status::bad)}),
      part("b", "1",
           {request("0", Status::done, "zero"), request("1", Status::done, "one"),
            request("2", Status::unfinished)})};
  const Result merged = merge(parts);
  EXPECT_THAT(ids(merged), ElementsAre("0", "1", "2"));
  EXPECT_EQ(merged.requests[1].samples[0].text, "one");
  EXPECT_EQ(merged.requests[2].status, Status::bad);
}

TEST(merge, contradictions_are_refused) {
  const std::vector<Part> answers = {part("a", "1", {request("0", Status::done, "yes")}),
                                     part("b", "1", {request("0", Status::done, "no")})};
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { merge(answers); }),
              AllOf(HasSubstr("'0'"), HasSubstr("'a'"), HasSubstr("'b'")));
  for (const auto key :
       {provenance_key::kConfig, provenance_key::kTensors, provenance_key::kCompute, provenance_key::kSimd}) {
    std::vector<Part> models = {part("a", "1", {}), part("b", "2", {})};
    models[0].result.provenance[std::string(key)] = "one";
    models[1].result.provenance[std::string(key)] = "two";
    EXPECT_THAT(error_of(ExitCode::bad_data, [&] { merge(models); }), HasSubstr(std::string(key)));
  }
  error_of(ExitCode::usage, [] { merge({}); });
}

}  // namespace
}  // namespace diffuse::test

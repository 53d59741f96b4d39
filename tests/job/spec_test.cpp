#include "job/spec.hpp"

#include <gmock/gmock.h>

#include <limits>

#include "tests/job/support.hpp"

namespace diffuse::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void known_generate(const Json& object, const std::string& what) {
  for (const auto& [key, value] : object.items())
    if (key != "seed" && key != "temperature") throw_bad_data(what + ": unknown key '" + key + "'");
}

// A sound reader for names alone: "loud.wav" is three samples, others are missing.
Sound loud_or_none(const std::filesystem::path& path) {
  if (path.filename() != "loud.wav") throw_missing("sound file '" + path.string() + "' cannot be opened");
  return {{0.5F, -0.5F, 0.25F}, 16000};
}

// The same of a latent: "good.latent" has two elements, "shaped.latent" is a batch of one, "table.latent" has
// two dimensions, the second element of "nan.latent" is none.
LatentFile latent_or_none(const std::filesystem::path& path) {
  if (path.filename() == "good.latent") return {{2}, {1, -2}};
  if (path.filename() == "shaped.latent") return {{1, 1, 1, 2, 1}, {1, -2}};
  if (path.filename() == "table.latent") return {{2, 1}, {1, -2}};
  if (path.filename() == "nan.latent") return {{2}, {1, std::numeric_limits<float>::quiet_NaN()}};
  throw_bad_data("no such file");
}

const FileReaders readers = {loud_or_none, latent_or_none};

class Spec : public testing::Test {
 protected:
  Job read(const std::string& text, const std::string& name = "spec.json", const std::string& model = {}) {
    write_bytes(folder_ / name, text);
    return read_spec(folder_ / name, model, known_generate, readers);
  }
  std::string error(const std::string& text, const std::string& name = "spec.json") {
    return error_of(ExitCode::bad_data, [&] { read(text, name); });
  }
  // The error for a spec of one request.
  std::string request_error(const std::string& request) { return error("{\"requests\": [" + request + "]}"); }

  TempFolder folder_;
};

TEST_F(Spec, holds_prompts_messages_and_tokens) {
  const Job job = read(R"({"model": "../m", "generate": {"temperature": 0.5}, "requests": [
    {"prompt": "Grüße"}, {"id": "chat", "messages": [{"role": "user", "content": "Hi"}], "generate": {"seed": 3}},
    {"tokens": [0, 2147483647]}, "plain"]})");
  EXPECT_EQ(job.model, (folder_.path().parent_path() / "m").string());
  EXPECT_EQ(job.generate["temperature"], 0.5);
  ASSERT_EQ(job.requests.size(), 4U);
  EXPECT_EQ(std::get<Prompt>(job.requests[0].input).text, "Grüße");
  EXPECT_EQ(job.requests[0].id, "0");
  EXPECT_EQ(job.requests[1].id, "chat");
  EXPECT_EQ(std::get<Messages>(job.requests[1].input).value[0]["content"], "Hi");
  EXPECT_EQ(job.requests[1].generate["seed"], 3);
  EXPECT_EQ(std::get<Tokens>(job.requests[2].input).ids, (std::vector<std::int32_t>{0, 2147483647}));
  EXPECT_EQ(std::get<Prompt>(job.requests[3].input).text, "plain");
}

TEST_F(Spec, json_lines_hold_strings_and_objects) {
  const Job job = read("\"one\"\r\n\n{\"prompt\": \"two\", \"id\": \"b\"}\n\"three\"", "p.jsonl", "m");
  EXPECT_EQ(job.model, (std::filesystem::current_path() / "m").string());
  ASSERT_EQ(job.requests.size(), 3U);
  EXPECT_EQ(std::get<Prompt>(job.requests[0].input).text, "one");
  EXPECT_EQ(job.requests[1].id, "b");
  EXPECT_EQ(job.requests[2].id, "2");
  EXPECT_THAT(error("\"one\"\n\n{\"promt\": \"x\"}\n", "p.jsonl"),
              AllOf(HasSubstr("line 3, request 1"), HasSubstr("'prompt'")));
  EXPECT_THAT(error("\"one\"\n{\n", "p.jsonl"), HasSubstr("line 2"));
}

TEST_F(Spec, the_examples_are_read) {
  const auto jobs = std::filesystem::path(DIFFUSE_TEST_DATA) / ".." / ".." / "jobs";
  const auto any_generate = [](const Json&, const std::string&) {};
  EXPECT_EQ(read_spec(jobs / "chat.json", "", any_generate, readers).requests.size(), 4U);
  EXPECT_EQ(read_spec(jobs / "prompts.jsonl", "m", any_generate, readers).requests.size(), 4U);
}

TEST_F(Spec, none_and_empty_requests_are_fine) {
  EXPECT_TRUE(read(R"({"requests": []})").requests.empty());
  EXPECT_TRUE(read("", "p.jsonl").requests.empty());
  EXPECT_EQ(std::get<Prompt>(read(R"({"requests": [""]})").requests[0].input).text, "");
  EXPECT_TRUE(std::get<Tokens>(read(R"({"requests": [{"tokens": []}]})").requests[0].input).ids.empty());
  EXPECT_TRUE(read(R"({"requests": []})").model.empty());
}

TEST_F(Spec, broken_bytes_are_repaired) {
  const Job job = read("{\"requests\": [\"a\xFFz\"]}");
  EXPECT_EQ(std::get<Prompt>(job.requests[0].input).text, "a\xEF\xBF\xBDz");
}

TEST_F(Spec, an_unknown_key_names_the_nearest) {
  EXPECT_THAT(error(R"({"modle": "m", "requests": []})"),
              HasSubstr("unknown key 'modle'; the nearest known one is 'model'"));
  EXPECT_THAT(request_error(R"({"promt": "x", "id": "mine"})"),
              AllOf(HasSubstr("request 0 ('mine')"), HasSubstr("'prompt'")));
  EXPECT_THAT(request_error(R"({"prompt": "x", "generat": {}})"), HasSubstr("'generate'"));
  EXPECT_THAT(request_error(R"({"messages": [{"role": "user", "contnet": "x"}]})"),
              AllOf(HasSubstr("message 0"), HasSubstr("'content'")));
  EXPECT_THAT(
      request_error(R"({"messages": [{"role": "user", "content": [{"type": "text", "txet": "x"}]}]})"),
      AllOf(HasSubstr("part 0"), HasSubstr("'text'")));
}

TEST_F(Spec, the_callers_check_sees_every_generate) {
  EXPECT_THAT(error(R"({"generate": {"top": 1}, "requests": []})"), HasSubstr("generate: unknown key 'top'"));
  EXPECT_THAT(request_error(R"({"prompt": "x", "generate": {"top": 1}})"),
              HasSubstr("request 0: generate: unknown"));
  EXPECT_THAT(request_error(R"({"prompt": "x", "generate": 5})"), HasSubstr("`generate` is not an object"));
}

TEST_F(Spec, exactly_one_input) {
  EXPECT_THAT(request_error(R"({"id": "x"})"), HasSubstr("it has none of"));
  EXPECT_THAT(request_error(R"({"prompt": "x", "tokens": [1]})"), HasSubstr("it has 2 of"));
}

TEST_F(Spec, media_is_known_and_refused) {
  EXPECT_THAT(request_error(R"({"prompt": "x", "image": "a.png"})"),
              HasSubstr("this build reads no pictures or videos yet"));
  EXPECT_THAT(
      request_error(R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "a"}]}]})"),
      HasSubstr("this build reads no pictures or videos yet"));
  EXPECT_THAT(request_error(R"({"prompt": "x", "prompt_2": "de"})"), HasSubstr("does not run yet"));
}

TEST_F(Spec, a_picture_has_what_to_stay_away_from_and_where_to_start) {
  const Job job = read(R"({"requests": [
    {"prompt": "x", "negative_prompt": "de", "latent": "good.latent"}, {"prompt": "y", "negative_prompt": ""}]})");
  EXPECT_EQ(job.requests[0].negative_prompt, "de");
  EXPECT_EQ(job.requests[0].latent, (std::vector<float>{1, -2}));
  EXPECT_EQ(job.requests[1].negative_prompt, "");
  EXPECT_TRUE(job.requests[1].latent.empty());
  EXPECT_TRUE(job.requests[0].latent_shape.empty());
  const Job shaped = read(R"({"requests": [{"prompt": "x", "latent": "shaped.latent"}]})");
  EXPECT_EQ(shaped.requests[0].latent_shape, (std::vector<std::int64_t>{1, 1, 2, 1}));
  EXPECT_THAT(request_error(R"({"prompt": "x", "latent": "table.latent"})"), HasSubstr("the shape [2, 1]"));
  EXPECT_THAT(request_error(R"({"prompt": "x", "latent": "nan.latent"})"),
              AllOf(HasSubstr("`latent`"), HasSubstr("NaN (number 1)")));
  EXPECT_THAT(request_error(R"({"prompt": "x", "latent": "none"})"), HasSubstr("`latent`: no such file"));
  EXPECT_THAT(request_error(R"({"prompt": "x", "negative_prompt": 5})"), HasSubstr("is not a text"));
  const Job left_out = read(
      R"({"requests": [{"prompt": "x", "negative_prompt": null, "latent": null, "language": null, "task": null}]})");
  EXPECT_EQ(left_out.requests[0].language, "");
  EXPECT_TRUE(left_out.requests[0].latent.empty());
}

TEST_F(Spec, sound_stands_alone_or_beside_text) {
  const Job job = read(R"({"requests": [
    {"id": "a", "audio": "loud.wav", "language": "German", "task": "translate", "generate": {"seed": 3}},
    {"prompt": "x", "audio": "some/loud.wav"}, "plain", {"prompt": "x", "language": "fr_XX"}]})");
  ASSERT_EQ(job.requests.size(), 4U);
  EXPECT_EQ(job.requests[3].language, "fr_XX");
  EXPECT_TRUE(std::holds_alternative<NoText>(job.requests[0].input));
  ASSERT_TRUE(job.requests[0].audio);
  EXPECT_EQ(job.requests[0].audio->samples, (std::vector<float>{0.5F, -0.5F, 0.25F}));
  EXPECT_EQ(job.requests[0].language, "German");
  EXPECT_EQ(job.requests[0].task, "translate");
  EXPECT_EQ(std::get<Prompt>(job.requests[1].input).text, "x");
  EXPECT_TRUE(job.requests[1].audio);
  EXPECT_FALSE(job.requests[2].audio);
}

TEST_F(Spec, sound_is_sought_beside_the_spec) {
  EXPECT_THAT(error_of(ExitCode::missing_input,
                       [&] { read(R"({"requests": [{"id": "x", "audio": "in/none.wav"}]})"); }),
              AllOf(HasSubstr("request 0 ('x'): `audio`: sound file"),
                    HasSubstr((folder_ / "in/none.wav").string())));
}

TEST_F(Spec, speech_keys_are_checked) {
  EXPECT_THAT(request_error(R"({"audio": 5})"), HasSubstr("`audio` is not a text"));
  EXPECT_THAT(request_error(R"({"audio": "loud.wav", "task": "sing"})"),
              HasSubstr("transcribe and translate"));
  EXPECT_THAT(request_error(R"({"audio": "loud.wav", "language": ""})"),
              HasSubstr("`language` is not a text"));
  EXPECT_THAT(request_error(R"({"prompt": "x", "task": "translate"})"), HasSubstr("it has none"));
  EXPECT_THAT(request_error(R"({"audio": "loud.wav", "prompt": "x", "tokens": [1]})"),
              HasSubstr("it has 2 of"));
  EXPECT_THAT(request_error(R"({"audoi": "loud.wav"})"), HasSubstr("'audio'"));
}

TEST_F(Spec, types_are_checked) {
  for (const char* request :
       {"5",
        R"({"prompt": 5})",
        R"({"tokens": "x"})",
        R"({"tokens": [-1]})",
        R"({"tokens": [2147483648]})",
        R"({"tokens": [18446744073709551615]})",
        R"({"tokens": [1.5]})",
        R"({"messages": {}})",
        R"({"messages": ["x"]})",
        R"({"messages": [{"content": "x"}]})",
        R"({"messages": [{"role": "user"}]})",
        R"({"messages": [{"role": "user", "content": 5}]})",
        R"({"messages": [{"role": 1, "content": "x"}]})",
        R"({"messages": [{"role": "user", "content": ["x"]}]})",
        R"({"messages": [{"role": "user", "content": [{"text": "x"}]}]})",
        R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})",
        R"({"messages": [{"role": "user", "content": [{"type": "txt", "text": "x"}]}]})",
        R"({"prompt": "x", "id": 5})",
        R"({"prompt": "x", "id": ""})",
        R"({"prompt": "x", "id": "a\nb"})"})
    EXPECT_THAT(request_error(request), HasSubstr("request 0")) << request;
  for (const char* spec :
       {"[]", "{}", R"({"requests": {}})", R"({"model": 5, "requests": []})",
        R"({"model": "", "requests": []})", R"({"requests": [], "requests": []})", "{", ""})
    EXPECT_THAT(error(spec), HasSubstr("job spec")) << spec;
  EXPECT_THAT(request_error("{\"prompt\": \"x\", \"id\": \"" + std::string(201, 'i') + "\"}"),
              HasSubstr("longer than 200"));
}

TEST_F(Spec, ids_are_unique) {
  EXPECT_THAT(error(R"({"requests": [{"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"}]})"),
              HasSubstr("two requests have the id 'a'"));
  EXPECT_THAT(error(R"({"requests": [{"id": "1", "prompt": "x"}, {"prompt": "y"}]})"),
              HasSubstr("the id '1'"));
}

TEST_F(Spec, depth_is_bounded) {
  EXPECT_THAT(request_error(std::string(100000, '[') + std::string(100000, ']')), HasSubstr("nests deeper"));
}

TEST_F(Spec, a_missing_file_is_missing_input) {
  error_of(ExitCode::missing_input, [&] { read_spec(folder_ / "none.json", "", known_generate, readers); });
}

}  // namespace
}  // namespace diffuse::test

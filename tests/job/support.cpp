#include "tests/job/support.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <limits>

#include "job/wire.hpp"

namespace diffuse::test {
namespace {

template <typename T>
std::string encoded(const T& value) {
  wire::Writer out;
  wire::write(out, value);
  return out.bytes();
}

Sample sample_of(std::size_t seed) {
  Sample sample;
  sample.text = "answer " + std::to_string(seed) + ": Füße, 東京, 🦉\n\ttab";
  for (std::size_t i = 0; i < 3 + seed % 5; ++i)
    sample.tokens.push_back(static_cast<std::int32_t>(seed * 31 + i));
  sample.finish = static_cast<Finish>(1 + seed % 3);
  if (seed % 2 == 0) {
    sample.logprobs.top = 2;
    for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
      sample.logprobs.chosen.push_back(-0.25F * static_cast<float>(i));
      for (int k = 0; k < 2; ++k) {
        sample.logprobs.top_ids.push_back(static_cast<std::int32_t>(i) * 2 + k);
        sample.logprobs.top_values.push_back(-0.5F * static_cast<float>(k));
      }
    }
  }
  if (seed % 4 == 1) {
    Transcript transcript;
    transcript.text = " Grüße an alle";
    transcript.language = "de";
    transcript.language_probability = 0.75;
    transcript.with_words = true;
    transcript.duration = 2.5;
    transcript.segments.push_back(
        {100, 1, 2.5, " Grüße an alle", {1, 2}, "de", 0.2, -0.25, 0.875, 0.125, {}});
    transcript.segments[0].words.push_back({" Grüße", 1, 1.5, 0.5});
    sample.transcript = transcript;
  }
  if (seed % 5 == 2) {
    std::vector<float> samples;
    for (std::size_t i = 0; i < 2 * (1 + seed % 4); ++i)
      samples.push_back(0.125F * static_cast<float>(i) - 1);
    sample.media = sound_of(samples, 2, 32000);
  }
  if (seed % 7 == 3) {
    sample.latent = LatentArray{.channels = 2, .frames = 1, .height = 1, .width = 3, .values = {}};
    for (std::size_t i = 0; i < 6; ++i) sample.latent->values.push_back(0.25F * static_cast<float>(i + seed));
  }
  if (seed % 3 == 0) {
    sample.trace = {3, 2, {1, 2, 3, 4, 5, std::numeric_limits<std::uint64_t>::max()}};
  }
  return sample;
}

}  // namespace

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "diffuse-job-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw_errno("making a folder for a test");
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

Job sample_job() {
  Job job;
  job.model = "/models/some model";
  job.generate = {{"max_new_tokens", 8}, {"stop", {"\n"}}};
  job.requests.push_back({"first", Prompt{std::string("Grüße\0 aus 東京 🦉", 24)}, Json::object()});
  job.requests.push_back(
      {"1",
       Messages{{{{"role", "system"}, {"content", "Be kind."}}, {{"role", "user"}, {"content", "Hi"}}}},
       {{"temperature", 0.5}}});
  job.requests.push_back({"ids/3", Tokens{{0, 5, std::numeric_limits<std::int32_t>::max()}}, Json::object()});
  job.requests.push_back({"empty", Prompt{""}, Json::object()});
  job.requests.push_back({"no tokens", Tokens{}, {{"seed", 7}}});
  job.requests.push_back(
      {"speech", NoText{}, {{"beam_size", 2}}, Sound{{0.5F, -0.25F, 0, 1}, 8000}, "de", "translate"});
  job.requests.push_back({"text and sound", Prompt{"What is said?"}, Json::object(), Sound{{0.125F}, 16000}});
  job.requests.push_back({"translated", Prompt{"Good day"}, Json::object(), {}, "fr_XX"});
  return job;
}

Result sample_result(std::size_t requests) {
  Result result;
  for (std::size_t i = 0; i < requests; ++i) {
    RequestResult request;
    request.id = "request " + std::to_string(i);
    request.status = i % 7 == 5 ? Status::bad : i % 7 == 6 ? Status::unfinished : Status::done;
    request.seed = std::numeric_limits<std::uint64_t>::max() - i;
    if (request.status == Status::bad) request.message = "the prompt is longer than the context";
    if (request.status == Status::done) {
      request.prompt_tokens = static_cast<std::int64_t>(4 + i);
      request.sha256 = std::string(64, static_cast<char>('a' + i % 6));
      request.seconds = 0.125 * static_cast<double>(i);
      for (std::size_t n = 0; n <= i % 3; ++n) request.samples.push_back(sample_of(i + n));
    }
    result.requests.push_back(std::move(request));
  }
  result.timing = {{"decode_seconds", 1.5}, {"bubble", {0.1, 0.2}}};
  result.provenance = {{"command", "diffuse run"}, {"compute", "f32"}, {"job_sha256", "ab"}};
  result.verification = {{"identical", true}};
  return result;
}

std::string bytes_of(const Job& job) {
  return encoded(job);
}
std::string bytes_of(const Result& result) {
  return encoded(result);
}
std::string bytes_of(const RequestResult& request) {
  return encoded(request);
}

std::string error_of(ExitCode code, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

std::string run_python(const std::string& script) {
  const TempFolder folder;
  write_bytes(folder / "script.py", script);
  const std::string command = "/usr/bin/python3 " + (folder / "script.py").string() + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw_errno("starting python3");
  std::string output;
  std::array<char, 4096> buffer{};
  for (std::size_t got = 0; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    output.append(buffer.data(), got);
  EXPECT_EQ(pclose(pipe), 0) << output;
  return output;
}

bool have_h5py() {
  return std::system("/usr/bin/python3 -c 'import h5py' 2>/dev/null") == 0;
}

}  // namespace diffuse::test

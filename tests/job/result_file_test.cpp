#include "job/result_file.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <ctime>

#include "job/h5.hpp"
#include "job/job_file.hpp"
#include "tests/job/support.hpp"

namespace diffuse::test {
namespace {

using testing::HasSubstr;

class ResultFile : public testing::Test {
 protected:
  // The error for a written result in which one dataset is replaced.
  template <typename T>
  std::string error_with(const std::string& group, const std::string& name, const std::vector<T>& values) {
    write_result(path_, sample_result(10));
    {
      const h5::Handle file(H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose, "test");
      const h5::Handle opened(H5Gopen2(file.get(), group.c_str(), H5P_DEFAULT), H5Gclose, "test");
      h5::check(H5Ldelete(opened.get(), name.c_str(), H5P_DEFAULT), "test");
      h5::write_array<T>(opened.get(), name, std::span<const T>(values));
    }
    return error_of(ExitCode::bad_data, [&] { read_result(path_); });
  }

  TempFolder folder_;
  std::filesystem::path path_ = folder_ / "out.h5";
};

TEST_F(ResultFile, comes_back_as_it_was_written) {
  for (const std::size_t requests : {0U, 1U, 2U, 20U}) {
    const Result result = sample_result(requests);
    write_result(path_, result);
    EXPECT_EQ(bytes_of(read_result(path_)), bytes_of(result));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}),
            1);  // no part file is left
}

// Media of bytes, beside samples without any.
Result with_videos() {
  auto result = sample_result(4);
  for (auto& request : result.requests)
    for (auto& sample : request.samples) sample.media.reset();
  for (const std::int64_t frames : {1, 3}) {
    auto& media = result.requests[static_cast<std::size_t>(frames)].samples[0].media.emplace();
    media = {.kind = frames == 1 ? MediaKind::picture : MediaKind::video,
             .element = MediaElement::u8,
             .frames = frames,
             .height = 2,
             .width = 5,
             .channels = 3,
             .rate = frames == 1 ? 0 : 12.5,
             .bytes = {}};
    for (std::int64_t i = 0; i < frames * 30; ++i) media.bytes.push_back(static_cast<std::byte>(i * 7));
  }
  return result;
}

TEST_F(ResultFile, media_of_bytes_come_back) {
  const auto result = with_videos();
  write_result(path_, result);
  const auto read = read_result(path_);
  EXPECT_EQ(bytes_of(read), bytes_of(result));
  EXPECT_EQ(read.requests[3].samples[0].media, result.requests[3].samples[0].media);
}

TEST_F(ResultFile, h5py_reads_media) {
  if (!have_h5py()) GTEST_SKIP() << "python3-h5py is not installed";
  write_result(path_, sample_result(10));
  const auto python = [&](const std::string& script) {
    return run_python("import h5py\nf = h5py.File('" + path_.string() + "')\n" + script);
  };
  // Of the seeds of sample_of, 2 (twice) and 7 have a sound.
  EXPECT_EQ(python(R"(
m = f["media"]; o, c = m["offsets"][:], m["channels"][:]
sounds = [m["samples"][a:b].reshape(-1, n) if n else None for a, b, n in zip(o, o[1:], c)]
print([s.shape for s in sounds if s is not None], sounds[list(m["kind"]).index(1)][0].tolist(), set(m["rate"][:].tolist()))
)"),
            "[(3, 2), (3, 2), (4, 2)] [-1.0, -0.875] {0.0, 32000.0}\n");
  write_result(path_, with_videos());
  EXPECT_EQ(python(R"(
m = f["media"]; o = m["offsets"][:]; i = list(m["kind"]).index(3)
video = m["pixels"][o[i]:o[i + 1]].reshape(m["frames"][i], m["height"][i], m["width"][i], m["channels"][i])
print(video.shape, video[0, 0, 1].tolist(), m["rate"][i])
)"),
            "(3, 2, 5, 3) [21, 28, 35] 12.5\n");
}

TEST_F(ResultFile, h5py_reads_latents) {
  const auto result = sample_result(5);
  write_result(path_, result);
  ASSERT_TRUE(result.requests[3].samples[0].latent);
  EXPECT_EQ(read_result(path_).requests[3].samples[0].latent, result.requests[3].samples[0].latent);
  if (!have_h5py()) GTEST_SKIP() << "python3-h5py is not installed";
  EXPECT_EQ(run_python("import h5py\nf = h5py.File('" + path_.string() + "')\n" + R"(
l = f["latent"]; o = l["offsets"][:]; i = list(f["sample/request"]).index(3)
x = l["data"][o[i]:o[i + 1]].reshape([l[k][i] for k in ("channels", "frames", "height", "width")])
print(x.shape, x.dtype, x[1, 0, 0].tolist(), l["frames"][0])
)"),
            "(2, 1, 1, 3) float32 [1.5, 1.75, 2.0] 0\n");
}

TEST_F(ResultFile, many_requests_are_fast) {
  const Result result = sample_result(20000);
  const auto start = std::clock();  // of the processor: other work on the machine must not fail this
  write_result(path_, result);
  EXPECT_EQ(bytes_of(read_result(path_)), bytes_of(result));
  EXPECT_LT(std::clock() - start, 6 * CLOCKS_PER_SEC);
}

TEST_F(ResultFile, three_lines_of_h5py_read_it) {
  if (!have_h5py()) GTEST_SKIP() << "python3-h5py is not installed";
  const Result result = sample_result(10);
  write_result(path_, result);
  std::string expected;
  for (const auto& request : result.requests)
    for (const auto& sample : request.samples) expected += Json(sample.text).dump(-1, ' ', true) + "\n";
  EXPECT_EQ(run_python("import h5py\nf = h5py.File('" + path_.string() + R"(')
o, d = f["text/offsets"][:], f["text/data"][:].tobytes()
texts = [d[a:b].decode() for a, b in zip(o, o[1:])]
import json
for text in texts: print(json.dumps(text))
assert json.loads(f["provenance"][()])["compute"] == "f32"
assert list(f["request/id"].asstr()[:2]) == ["request 0", "request 1"]
assert f["request/status"][5] == 1 and f["sample/request"][1] == 1
assert f["trace/digests"].dtype == "u8" and f["logprobs/chosen"].dtype == "f4" and f["tokens/data"].dtype == "i4"
)"),
            expected);
}

TEST_F(ResultFile, contradictions_are_refused) {
  using Bytes = std::vector<std::uint8_t>;
  using U64 = std::vector<std::uint64_t>;
  using I64 = std::vector<std::int64_t>;
  EXPECT_THAT(error_with("request", "status", Bytes(10, 3)), HasSubstr("stands for no status"));
  EXPECT_THAT(error_with("request", "status", Bytes(9, 0)), HasSubstr("has 9 entries and should have 10"));
  EXPECT_THAT(error_with("request", "seed", U64(11, 0)), HasSubstr("has 11 entries"));
  EXPECT_THAT(error_with("request", "prompt_tokens", I64(10, -1)), HasSubstr("negative"));
  std::size_t samples = 0;
  for (const auto& request : sample_result(10).requests) samples += request.samples.size();
  EXPECT_THAT(error_with("sample", "finish", Bytes(samples, 4)), HasSubstr("no way to finish"));
  EXPECT_THAT(error_with("sample", "request", U64(samples, 10)), HasSubstr("a request that is not there"));
  U64 back(samples, 1);
  back[1] = 0;
  EXPECT_THAT(error_with("sample", "request", back), HasSubstr("goes back"));
  EXPECT_THAT(error_with("logprobs", "top", I64(samples, 1)), HasSubstr("longer than `top` says"));
  EXPECT_THAT(error_with("logprobs", "top", I64(samples, 1LL << 62)), HasSubstr("ends too early"));
  EXPECT_THAT(error_with("logprobs", "top", I64(samples, INT64_MAX)),
              testing::AllOf(testing::StartsWith("result file '"), HasSubstr("overflows")));
  EXPECT_THAT(error_with("trace", "layers", I64(samples, 2)),
              HasSubstr("a digest for each layer and position"));
  EXPECT_THAT(error_with("media", "kind", Bytes(samples, 4)), HasSubstr("media of no known kind"));
  EXPECT_THAT(error_with("media", "kind", Bytes(samples, 0)),
              HasSubstr("has none for a sample that has media"));
  EXPECT_THAT(error_with("media", "kind", Bytes(1, 0)), HasSubstr("has 1 entries"));
  EXPECT_THAT(error_with("media", "frames", I64(samples, 3)), HasSubstr("other elements than its sizes say"));
  EXPECT_THAT(error_with("media", "channels", I64(samples, 0)), HasSubstr("a size below 1"));
  EXPECT_THAT(error_with("media", "height", I64(samples, INT64_MAX)), HasSubstr("overflows"));
  EXPECT_THAT(error_with("media", "rate", std::vector<double>(samples, 0)), HasSubstr("a rate that is none"));
  EXPECT_THAT(error_with("media", "offsets", U64(samples + 1, 0)), HasSubstr("end"));
  EXPECT_THAT(error_with("tokens", "data", I64{1}), HasSubstr("but 1 are there"));
  EXPECT_THAT(error_with("tokens", "data", I64{1LL << 40}), HasSubstr("more than 32 bits"));
}

TEST_F(ResultFile, a_job_is_no_result_nor_the_other_way_round) {
  write_job(path_, sample_job());
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { read_result(path_); }), HasSubstr("not a result"));
  write_result(path_, sample_result(1));
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { read_job(path_); }), HasSubstr("a result and not a job"));
}

TEST_F(ResultFile, a_full_disk_is_an_io_error_and_leaves_the_old_file) {
  write_result(path_, sample_result(2));
  const auto before = read_file(path_, 1U << 20);
  rlimit unlimited{};
  getrlimit(RLIMIT_FSIZE, &unlimited);
  const rlimit tight{4096, unlimited.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &tight);
  error_of(ExitCode::io, [&] { write_result(path_, sample_result(200)); });
  setrlimit(RLIMIT_FSIZE, &unlimited);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(path_, 1U << 20), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}),
            1);  // no part file is left
  write_result(path_, sample_result(200));
  EXPECT_EQ(read_result(path_).requests.size(), 200U);
}

TEST_F(ResultFile, values_that_contradict_each_other_are_not_written) {
  Result result = sample_result(1);
  result.requests[0].samples[0].logprobs.top_ids.pop_back();
  error_of(ExitCode::internal, [&] { write_result(path_, result); });
  result = sample_result(1);
  result.requests[0].samples[0].trace.positions = 5;
  error_of(ExitCode::internal, [&] { write_result(path_, result); });
  result = sample_result(1);
  result.requests[0].samples[0].logprobs.chosen.pop_back();
  error_of(ExitCode::internal, [&] { write_result(path_, result); });
  result = with_videos();
  result.requests[3].samples[0].media->bytes.pop_back();
  error_of(ExitCode::internal, [&] { write_result(path_, result); });
  result = with_videos();
  result.requests[0].samples[0].media = sound_of(std::vector<float>{0.5F}, 1, 8000);
  EXPECT_THAT(error_of(ExitCode::internal, [&] { write_result(path_, result); }),
              HasSubstr("floats and of bytes"));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace diffuse::test

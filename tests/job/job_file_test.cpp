#include "job/job_file.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <ctime>
#include <limits>

#include "core/hash.hpp"
#include "job/h5.hpp"
#include "tests/job/support.hpp"

namespace diffuse::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class JobFile : public testing::Test {
 protected:
  // A file made by hand, as a stranger might.
  Job read_made(const std::function<void(hid_t)>& make) {
    auto file = h5::create_file(path_);
    make(file.get());
    file.close("test");
    return read_job(path_);
  }
  std::string error(const std::function<void(hid_t)>& make) {
    return error_of(ExitCode::bad_data, [&] { read_made(make); });
  }
  static void prompts(hid_t file, const std::vector<std::string>& texts) {
    h5::write_strings(file, "prompts", texts);
  }
  static void tokens(hid_t file, const std::vector<std::uint64_t>& offsets,
                     const std::vector<std::int64_t>& ids) {
    const auto group = h5::create_group(file, "tokens");
    h5::write_array<std::uint64_t>(group.get(), "offsets", offsets);
    h5::write_array<std::int64_t>(group.get(), "ids", ids);
  }
  static std::string why(const Job& job, std::size_t index) {
    return std::get<Unusable>(job.requests[index].input).why;
  }

  TempFolder folder_;
  std::filesystem::path path_ = folder_ / "job.h5";
};

TEST_F(JobFile, comes_back_as_it_was_written) {
  Job job = sample_job();
  write_job(path_, job);
  const Job read = read_job(path_);
  const auto whole = read_file(path_, 1U << 20);
  EXPECT_EQ(read.sha256, sha256_hex(std::as_bytes(std::span(whole))));
  job.sha256 = read.sha256;
  EXPECT_EQ(bytes_of(read), bytes_of(job));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}),
            1);  // no part file is left
}

TEST_F(JobFile, each_kind_alone_and_none_come_back) {
  const Job all = sample_job();
  for (std::size_t kept = 0; kept <= all.requests.size(); ++kept) {
    Job job;
    if (kept < all.requests.size()) job.requests.push_back(all.requests[kept]);
    write_job(path_, job);
    Job read = read_job(path_);
    read.sha256.clear();
    EXPECT_EQ(bytes_of(read), bytes_of(job));
  }
}

TEST_F(JobFile, has_the_same_bytes_each_time) {
  write_job(path_, sample_job());
  sleep(1);  // HDF5's time stamps count seconds
  write_job(folder_ / "again.h5", sample_job());
  EXPECT_EQ(read_file(path_, 1U << 20), read_file(folder_ / "again.h5", 1U << 20));
}

TEST_F(JobFile, twenty_thousand_prompts_are_fast) {
  Job job;
  for (int i = 0; i < 20000; ++i)
    job.requests.push_back({std::to_string(i), Prompt{"prompt number " + std::to_string(i)}, Json::object()});
  const auto start = std::clock();  // of the processor: other work on the machine must not fail this
  write_job(path_, job);
  EXPECT_EQ(read_job(path_).requests.size(), 20000U);
  EXPECT_LT(std::clock() - start, 3 * CLOCKS_PER_SEC);
}

TEST_F(JobFile, what_cannot_be_written_leaves_the_old_file) {
  write_job(path_, sample_job());
  const auto before = read_file(path_, 1U << 20);
  Job job = sample_job();
  job.requests[1].id = job.requests[0].id;
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { write_job(path_, job); }), HasSubstr("two requests"));
  job = sample_job();
  job.requests[1].input = Unusable{"it is broken"};
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { write_job(path_, job); }), HasSubstr("it is broken"));
  EXPECT_EQ(read_file(path_, 1U << 20), before);
  error_of(ExitCode::missing_input, [&] { write_job(folder_ / "no/such/job.h5", sample_job()); });
  error_of(ExitCode::io, [&] { write_job(folder_.path(), sample_job()); });
}

TEST_F(JobFile, three_lines_of_h5py_make_one) {
  if (!have_h5py()) GTEST_SKIP() << "python3-h5py is not installed";
  run_python("import h5py\nf = h5py.File('" + path_.string() +
             "', 'w')\nf['prompts'] = ['Grüße', '', 'third']\nf.attrs['generate'] = '{\"seed\": "
             "1}'\nf.attrs['model'] = 'm'\n");
  const Job job = read_job(path_);
  ASSERT_EQ(job.requests.size(), 3U);
  EXPECT_EQ(std::get<Prompt>(job.requests[0].input).text, "Grüße");
  EXPECT_EQ(std::get<Prompt>(job.requests[1].input).text, "");
  EXPECT_EQ(job.requests[2].id, "2");
  EXPECT_EQ(job.model, "m");
  EXPECT_EQ(job.generate["seed"], 1);
  EXPECT_EQ(job.format_version, 1);
}

TEST_F(JobFile, the_example_of_h5py_makes_one) {
  if (!have_h5py()) GTEST_SKIP() << "python3-h5py is not installed";
  const auto script = std::filesystem::path(DIFFUSE_TEST_DATA) / ".." / ".." / "jobs" / "make_job.py";
  run_python("import sys\nsys.argv = ['make_job.py', '" + path_.string() + "']\n" + read_file(script, 10000));
  EXPECT_EQ(read_job(path_).requests.size(), 3U);
}

// Made by h5py 3.7: f["prompts"] = ["Grüße", "", "third"]. Read where h5py is missing, too.
TEST_F(JobFile, a_kept_file_of_h5py_is_read) {
  const Job job = read_job(std::filesystem::path(DIFFUSE_TEST_DATA) / "job" / "by-h5py.h5");
  ASSERT_EQ(job.requests.size(), 3U);
  EXPECT_EQ(std::get<Prompt>(job.requests[0].input).text, "Grüße");
  EXPECT_EQ(std::get<Prompt>(job.requests[1].input).text, "");
}

TEST_F(JobFile, other_ways_of_h5py_are_read) {
  if (!have_h5py()) GTEST_SKIP() << "python3-h5py is not installed";
  run_python("import h5py, numpy as np, json\nP = '" + folder_.path().string() + R"(/'
f = h5py.File(P + 'fixed.h5', 'w'); f['prompts'] = np.array([b'ab', b'c', b'long one']); f.close()
f = h5py.File(P + 'scalar.h5', 'w'); f['prompts'] = 'only one'; f.close()
f = h5py.File(P + 'empty.h5', 'w'); f['prompts'] = []; f.close()
f = h5py.File(P + 'zip.h5', 'w')
f.create_dataset('prompts', data=['x' * 50] * 9000, compression='gzip', chunks=(1000,)); f.close()
f = h5py.File(P + 'tokens.h5', 'w')
f['tokens/offsets'] = [0, 2, 2, 3]; f['tokens/ids'] = np.array([7, 8, 9], 'u2')
f['id'] = ['a', '', 'c']; f['generate'] = ['{"n": 2}', '', '{}']; f.close()
f = h5py.File(P + 'messages.h5', 'w')
f['messages'] = [json.dumps([{'role': 'user', 'content': 'Hi'}]), 'no json', '[{"role": "user"}]']
f['generate'] = ['', '', '5']; f.close()
f = h5py.File(P + 'packed.h5', 'w')
f['prompts/offsets'] = [0, 1, 4]; f['prompts/data'] = np.frombuffer(b'a\xffbc', 'u1'); f.close()
)");
  const auto text = [](const Job& job, std::size_t i) {
    return std::get<Prompt>(job.requests[i].input).text;
  };
  const Job fixed = read_job(folder_ / "fixed.h5");
  ASSERT_EQ(fixed.requests.size(), 3U);
  EXPECT_EQ(text(fixed, 1), "c");
  EXPECT_EQ(text(fixed, 2), "long one");
  EXPECT_EQ(text(read_job(folder_ / "scalar.h5"), 0), "only one");
  EXPECT_TRUE(read_job(folder_ / "empty.h5").requests.empty());
  const Job zipped = read_job(folder_ / "zip.h5");
  ASSERT_EQ(zipped.requests.size(), 9000U);
  EXPECT_EQ(text(zipped, 8999), std::string(50, 'x'));
  const Job tokens = read_job(folder_ / "tokens.h5");
  ASSERT_EQ(tokens.requests.size(), 3U);
  EXPECT_EQ(std::get<Tokens>(tokens.requests[0].input).ids, (std::vector<std::int32_t>{7, 8}));
  EXPECT_EQ(tokens.requests[1].id, "1");
  EXPECT_EQ(tokens.requests[2].id, "c");
  EXPECT_EQ(tokens.requests[0].generate["n"], 2);
  const Job messages = read_job(folder_ / "messages.h5");
  ASSERT_EQ(messages.requests.size(), 3U);
  EXPECT_EQ(std::get<Messages>(messages.requests[0].input).value[0]["content"], "Hi");
  EXPECT_THAT(why(messages, 1), HasSubstr("not valid JSON"));
  EXPECT_THAT(why(messages, 2), HasSubstr("not a JSON object"));
  const Job packed = read_job(folder_ / "packed.h5");
  EXPECT_EQ(text(packed, 1),
            "\xEF\xBF\xBD"
            "bc");
}

TEST_F(JobFile, a_spoiled_request_does_not_spoil_the_others) {
  const Job job = read_made([](hid_t file) { tokens(file, {0, 1, 2, 3}, {5, -1, 1LL << 31}); });
  EXPECT_EQ(std::get<Tokens>(job.requests[0].input).ids, std::vector<std::int32_t>{5});
  EXPECT_THAT(why(job, 1), HasSubstr("token id -1"));
  EXPECT_THAT(why(job, 2), HasSubstr("token id 2147483648"));
  const Job chat = read_made([](hid_t file) {
    h5::write_strings(file, "messages",
                      {R"([{"role": "user", "content": "x"}])", std::string(100, '['), "{}"});
  });
  EXPECT_TRUE(std::holds_alternative<Messages>(chat.requests[0].input));
  EXPECT_THAT(why(chat, 1), HasSubstr("nests deeper"));
  EXPECT_THAT(why(chat, 2), HasSubstr("not a list"));
}

TEST_F(JobFile, offsets_are_checked) {
  const auto with = [&](const std::vector<std::uint64_t>& offsets) {
    return error([&](hid_t file) { tokens(file, offsets, {1, 2, 3}); });
  };
  EXPECT_THAT(with({0, 2, 1, 3}), HasSubstr("goes back"));
  EXPECT_THAT(with({0, 4}), HasSubstr("ends at 4, but 3 are there"));
  EXPECT_THAT(with({0, 2}), HasSubstr("ends at 2"));
  EXPECT_THAT(with({1, 3}), HasSubstr("does not begin with 0"));
  EXPECT_THAT(with({}), HasSubstr("is empty"));
  EXPECT_THAT(error([](hid_t file) {
                const auto group = h5::create_group(file, "prompts");
                h5::write_array<std::int64_t>(group.get(), "offsets", std::vector<std::int64_t>{-1, 1});
                h5::write_array<std::uint8_t>(group.get(), "data", std::vector<std::uint8_t>{65});
              }),
              HasSubstr("negative"));
}

TEST_F(JobFile, names_are_checked) {
  EXPECT_THAT(error([](hid_t file) { h5::write_strings(file, "prompt", {"x"}); }), HasSubstr("'prompts'"));
  EXPECT_THAT(error([](hid_t file) {
                prompts(file, {"x"});
                h5::write_attribute(file, "modle", "m");
              }),
              HasSubstr("'model'"));
  EXPECT_THAT(error([](hid_t file) { h5::write_strings(file, "image", {"x"}); }),
              HasSubstr("reads no pictures or videos yet"));
  EXPECT_THAT(error([](hid_t) {}), HasSubstr("none of"));
  EXPECT_THAT(error([](hid_t file) {
                tokens(file, {0, 1}, {1});
                prompts(file, {"x"});
              }),
              HasSubstr("no `kind`"));
  EXPECT_THAT(error([](hid_t file) {
                const auto group = h5::create_group(file, "tokens");
                h5::write_array<std::uint64_t>(group.get(), "offsets", std::vector<std::uint64_t>{0});
              }),
              HasSubstr("'tokens/ids' is missing"));
}

TEST_F(JobFile, kinds_are_checked) {
  const auto with = [&](const std::vector<std::uint8_t>& kinds) {
    return error([&](hid_t file) {
      prompts(file, {"x", "y"});
      tokens(file, {0, 1}, {1});
      h5::write_array<std::uint8_t>(file, "kind", kinds);
    });
  };
  EXPECT_THAT(with({0, 0, 0}), HasSubstr("more requests of a kind"));
  EXPECT_THAT(with({0, 2}), HasSubstr("leaves out"));
  EXPECT_THAT(with({0, 0, 4}), HasSubstr("other than 0, 1, 2 and 3"));
  EXPECT_THAT(with({0, 0, 3}), HasSubstr("leaves out"));
}

class SpeechJob : public JobFile {
 protected:
  // A file of sound alone, as a stranger might make it.
  static void sound(hid_t file, const std::vector<std::uint64_t>& offsets, const std::vector<float>& data,
                    const std::vector<std::int64_t>& rates) {
    const auto group = h5::create_group(file, "audio");
    if (!offsets.empty()) h5::write_array<std::uint64_t>(group.get(), "offsets", offsets);
    h5::write_array<float>(group.get(), "data", data);
    h5::write_array<std::int64_t>(group.get(), "rate", rates);
  }
};

TEST_F(SpeechJob, sound_is_read_at_any_stated_rate) {
  const Job job = read_made([](hid_t file) {
    sound(file, {0, 2, 3}, {0.5F, -0.5F, 0.25F}, {8000, 44100});
    h5::write_strings(file, "language", {"de", ""});
    h5::write_strings(file, "task", {"", "translate"});
  });
  ASSERT_EQ(job.requests.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<NoText>(job.requests[0].input));
  EXPECT_EQ(job.requests[0].audio->samples, (std::vector<float>{0.5F, -0.5F}));
  EXPECT_EQ(job.requests[0].audio->rate, 8000);
  EXPECT_EQ(job.requests[0].language, "de");
  EXPECT_EQ(job.requests[1].audio->rate, 44100);
  EXPECT_EQ(job.requests[1].task, "translate");
}

TEST_F(SpeechJob, one_recording_needs_no_offsets_and_one_rate_serves_all) {
  EXPECT_EQ(read_made([](hid_t file) {
              sound(file, {}, {1, 2, 3}, {16000});
            })
                .requests[0]
                .audio->samples.size(),
            3U);
  const Job two = read_made([](hid_t file) { sound(file, {0, 1, 3}, {1, 2, 3}, {16000}); });
  EXPECT_EQ(two.requests[1].audio->rate, 16000);
  EXPECT_EQ(two.requests[1].audio->samples.size(), 2U);
}

TEST_F(SpeechJob, spoiled_sound_spoils_its_request_alone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Job job = read_made([&](hid_t file) {
    sound(file, {0, 2, 4, 4, 5, 6, 6}, {1, 1, 1, nan, 1, 1}, {16000, 16000, 16000, 5, -3, 0});
  });
  EXPECT_TRUE(job.requests[0].audio);
  EXPECT_THAT(why(job, 1), HasSubstr("NaN (number 1)"));
  EXPECT_THAT(why(job, 2), HasSubstr("no samples"));
  EXPECT_THAT(why(job, 3), HasSubstr("a rate of 5"));
  EXPECT_THAT(why(job, 4), HasSubstr("a rate of -3"));
  EXPECT_THAT(why(job, 5), HasSubstr("neither text nor sound"));
  const Job tasks = read_made([](hid_t file) {
    sound(file, {0, 1}, {1}, {16000});
    h5::write_strings(file, "task", {"sing"});
  });
  EXPECT_THAT(why(tasks, 0), HasSubstr("transcribe and translate"));
}

// A slight overshoot is sound; integers that were only made floating-point are not.
TEST_F(SpeechJob, samples_of_another_scale_spoil_their_request) {
  const Job job = read_made([&](hid_t file) {
    sound(file, {0, 2, 4, 6}, {0.5F, -1.5F, 3, -32768, 0.25F, 120}, {16000, 16000, 16000});
  });
  EXPECT_TRUE(job.requests[0].audio);
  EXPECT_THAT(why(job, 1), AllOf(HasSubstr("-32768 (number 1)"), HasSubstr("divide by 32768")));
  EXPECT_THAT(why(job, 2), HasSubstr("120 (number 1)"));
}

// HDF5 keeps attributes beside any data; none but the root's is read.
TEST_F(SpeechJob, what_stands_in_an_attribute_is_told) {
  const auto with = [](const char* at, const char* name) {
    return [=](hid_t file) {
      sound(file, {0, 1}, {1}, {16000});
      const h5::Handle object(H5Oopen(file, at, H5P_DEFAULT), H5Oclose, "test");
      h5::write_attribute(object.get(), name, std::int64_t{44100});
    };
  };
  EXPECT_THAT(error(with("audio", "rate")),
              AllOf(HasSubstr("'audio'"), HasSubstr("attribute `rate`"), HasSubstr("audio/rate")));
  EXPECT_THAT(error(with("audio/data", "rate")), AllOf(HasSubstr("'audio/data'"), HasSubstr("`rate`")));
  EXPECT_THAT(error(with("audio/data", "sample_rate")), HasSubstr("`sample_rate`"));
  EXPECT_THAT(error(with("audio/rate", "generate")), HasSubstr("`generate`"));
  EXPECT_EQ(read_made(with("audio/data", "remark")).requests.size(), 1U);
  EXPECT_THAT(error([](hid_t file) {
                prompts(file, {"x"});
                const h5::Handle object(H5Oopen(file, "prompts", H5P_DEFAULT), H5Oclose, "test");
                h5::write_attribute(object.get(), "model", std::string("m"));
              }),
              HasSubstr("attribute `model`"));
}

TEST_F(SpeechJob, shapes_are_checked) {
  EXPECT_THAT(error([](hid_t file) { sound(file, {0, 2}, {1}, {16000}); }), HasSubstr("ends at 2"));
  EXPECT_THAT(error([](hid_t file) {
                sound(file, {0, 1, 1, 1}, {1}, {16000, 16000});
              }),
              HasSubstr("2 entries for 3 recordings"));
  EXPECT_THAT(error([](hid_t file) {
                prompts(file, {"x", "y"});
                sound(file, {0, 1}, {1}, {16000});
              }),
              HasSubstr("1 recordings for 2 requests"));
  EXPECT_THAT(error([](hid_t file) { h5::write_array<float>(file, "audio", std::vector<float>{1}); }),
              HasSubstr("should be a group"));
  EXPECT_THAT(error([](hid_t file) {
                const auto group = h5::create_group(file, "audio");
                h5::write_array<std::int32_t>(group.get(), "data", std::vector<std::int32_t>{1});
              }),
              HasSubstr("floating-point"));
}

TEST_F(SpeechJob, what_cannot_be_written_is_named) {
  Job job;
  job.requests.push_back({"mute", NoText{}, Json::object()});
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { write_job(path_, job); }), HasSubstr("'mute' has neither"));
  job.requests[0].audio = Sound{{}, 16000};
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { write_job(path_, job); }), HasSubstr("no samples"));
}

TEST_F(SpeechJob, h5py_writes_one) {
  if (!have_h5py()) GTEST_SKIP() << "python3-h5py is not installed";
  run_python("import h5py, numpy as np\nf = h5py.File('" + path_.string() +
             "', 'w')\nf['audio/data'] = np.sin(np.arange(8000) / 9)\nf['audio/rate'] = 8000\n");
  const Job job = read_job(path_);
  ASSERT_EQ(job.requests.size(), 1U);
  ASSERT_EQ(job.requests[0].audio->samples.size(), 8000U);
  EXPECT_NEAR(job.requests[0].audio->samples[9], 0.841471F, 1e-6);
}

TEST_F(SpeechJob, what_pictures_start_from_is_written_and_read) {
  Job job;
  job.requests.push_back({"a", Prompt{"x"}, Json::object()});
  job.requests.push_back({"b", Prompt{"y"}, Json::object()});
  job.requests[0].negative_prompt = "blurry";
  job.requests[1].latent = {0.5F, -3};
  write_job(path_, job);
  const Job read = read_job(path_);
  EXPECT_EQ(read.requests[0].negative_prompt, "blurry");
  EXPECT_TRUE(read.requests[0].latent.empty());
  EXPECT_EQ(read.requests[1].negative_prompt, "");
  EXPECT_EQ(read.requests[1].latent, (std::vector<float>{0.5F, -3}));
  EXPECT_TRUE(read.requests[1].latent_shape.empty());
  job.requests.push_back({"c", Prompt{"z"}, Json::object()});
  job.requests[2].latent = {1, 2, 3};
  job.requests[2].latent_shape = {1, 3, 1, 1};
  write_job(path_, job);
  const Job shaped = read_job(path_);
  EXPECT_TRUE(shaped.requests[0].latent_shape.empty());
  EXPECT_TRUE(shaped.requests[1].latent_shape.empty());
  EXPECT_EQ(shaped.requests[2].latent_shape, job.requests[2].latent_shape);
  job.requests[2].latent_shape = {1, 2, 1, 1};
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { write_job(path_, job); }),
              AllOf(HasSubstr("'c'"), HasSubstr("[1, 2, 1, 1]")));
  job.requests.pop_back();
  job.requests[1].latent[1] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { write_job(path_, job); }),
              AllOf(HasSubstr("'b'"), HasSubstr("infinite (number 1)")));
}

TEST_F(SpeechJob, latents_of_a_stranger_are_checked) {
  const auto latent = [](hid_t file, const std::vector<std::uint64_t>& offsets,
                         const std::vector<float>& data) {
    prompts(file, {"x", "y"});
    const auto group = h5::create_group(file, "latent");
    h5::write_array<std::uint64_t>(group.get(), "offsets", offsets);
    h5::write_array<float>(group.get(), "data", data);
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Job job = read_made([&](hid_t file) { latent(file, {0, 1, 3}, {1, 2, nan}); });
  EXPECT_EQ(job.requests[0].latent.size(), 1U);
  EXPECT_THAT(why(job, 1), HasSubstr("latent has an element that is NaN (number 1)"));
  EXPECT_THAT(error([&](hid_t file) {
                latent(file, {0, 2}, {1, 2});
              }),
              HasSubstr("1 latents for 2 requests"));
  EXPECT_THAT(error([&](hid_t file) { latent(file, {0, 1, 4}, {1, 2}); }), HasSubstr("ends at 4"));
  EXPECT_THAT(error([](hid_t file) {
                prompts(file, {"x"});
                h5::write_array<float>(file, "latent", std::vector<float>{1});
              }),
              HasSubstr("should be a group"));
}

TEST_F(SpeechJob, the_dimensions_of_h5pys_latents_are_theirs) {
  if (!have_h5py()) GTEST_SKIP() << "python3-h5py is not installed";
  const auto made = [&](const std::string& lines) {
    run_python("import h5py, numpy as np\nf = h5py.File('" + path_.string() + "', 'w')\n" + lines);
    return read_job(path_);
  };
  const Job one = made("f['prompts'] = ['x']\nf['latent/data'] = np.arange(24.0).reshape(2, 3, 2, 2)\n");
  EXPECT_EQ(one.requests[0].latent_shape, (std::vector<std::int64_t>{2, 3, 2, 2}));
  EXPECT_EQ(one.requests[0].latent[23], 23);
  const Job two =
      made("f['prompts'] = ['x', 'y']\nf['latent/data'] = np.arange(48.0).reshape(2, 2, 3, 2, 2)\n");
  EXPECT_EQ(two.requests[1].latent_shape, (std::vector<std::int64_t>{2, 3, 2, 2}));
  EXPECT_EQ(two.requests[1].latent[0], 24);
  const auto bad = [&](const std::string& lines) {
    return error_of(ExitCode::bad_data, [&] { made("f['prompts'] = ['x']\n" + lines); });
  };
  EXPECT_THAT(bad("f['latent/data'] = np.ones((2, 3))\n"), HasSubstr("2 dimensions"));
  EXPECT_THAT(bad("f['latent/data'] = np.ones((0, 1, 2, 2, 2))\n"), HasSubstr("a dimension of 0"));
  EXPECT_THAT(bad("f['latent/data'] = np.ones((1, 2, 2, 2))\nf['latent/offsets'] = [0, 8]\n"),
              HasSubstr("leave those out"));
  EXPECT_THAT(bad("f['latent/data'] = np.ones(8)\nf['latent/channels'] = [8]\n"), HasSubstr("all or none"));
  const Job odd = made(
      "f['prompts'] = ['x']\nf['latent/data'] = np.ones(8)\nfor name in "
      "('channels', 'frames', 'height', 'width'): f['latent/' + name] = [3]\n");
  EXPECT_THAT(why(odd, 0), HasSubstr("[3, 3, 3, 3]"));
}

TEST_F(JobFile, entries_are_one_a_request) {
  EXPECT_THAT(error([](hid_t file) {
                prompts(file, {"x", "y"});
                h5::write_strings(file, "id", {"a"});
              }),
              HasSubstr("1 entries for 2 requests"));
  EXPECT_THAT(error([](hid_t file) {
                prompts(file, {"x", "y"});
                h5::write_strings(file, "id", {"1", ""});
              }),
              HasSubstr("two requests have the id '1'"));
}

TEST_F(JobFile, versions_are_checked) {
  EXPECT_THAT(error([](hid_t file) { h5::write_attribute(file, "format_version", std::int64_t{2}); }),
              HasSubstr("newer than this program's 1"));
  EXPECT_THAT(error([](hid_t file) { h5::write_attribute(file, "format_version", std::int64_t{0}); }),
              HasSubstr("never used"));
  EXPECT_THAT(error([](hid_t file) { h5::write_attribute(file, "format_version", "1"); }),
              HasSubstr("whole number"));
}

TEST_F(JobFile, types_are_checked) {
  EXPECT_THAT(error([](hid_t file) { h5::write_array<float>(file, "prompts", std::vector<float>{1}); }),
              HasSubstr("should hold strings"));
  EXPECT_THAT(error([](hid_t file) {
                prompts(file, {"x"});
                h5::write_attribute(file, "generate", "[]");
              }),
              HasSubstr("not a JSON object"));
  EXPECT_THAT(error([](hid_t file) {
                prompts(file, {"x"});
                h5::write_attribute(file, "generate", "{\"n\": 1, \"n\": 2}");
              }),
              HasSubstr("twice"));
  EXPECT_THAT(error([](hid_t file) {
                prompts(file, {"x"});
                h5::write_attribute(file, "model", std::int64_t{1});
              }),
              HasSubstr("should be one string"));
}

TEST_F(JobFile, data_of_other_files_is_not_read) {
  EXPECT_THAT(error([](hid_t file) {
                H5Lcreate_external("/etc/other.h5", "/prompts", file, "prompts", H5P_DEFAULT, H5P_DEFAULT);
              }),
              HasSubstr("is a link to somewhere else"));
  const auto raw = (folder_ / "raw").string();
  write_bytes(raw, "secret");
  EXPECT_THAT(error([&](hid_t file) {
                const auto group = h5::create_group(file, "prompts");
                h5::write_array<std::uint64_t>(group.get(), "offsets", std::vector<std::uint64_t>{0, 6});
                const h5::Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "test");
                h5::check(H5Pset_external(list.get(), raw.c_str(), 0, 6), "test");
                const hsize_t size = 6;
                const h5::Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose, "test");
                const h5::Handle set(H5Dcreate2(group.get(), "data", H5T_NATIVE_UINT8, space.get(),
                                                H5P_DEFAULT, list.get(), H5P_DEFAULT),
                                     H5Dclose, "test");
              }),
              HasSubstr("takes its data from another file"));
  EXPECT_THAT(error([](hid_t file) {
                const auto group = h5::create_group(file, "prompts");
                h5::write_array<std::uint64_t>(group.get(), "offsets", std::vector<std::uint64_t>{0, 6});
                const h5::Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "test");
                const hsize_t size = 6;
                const h5::Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose, "test");
                h5::check(H5Pset_virtual(list.get(), space.get(), "/etc/other.h5", "x", space.get()), "test");
                const h5::Handle set(H5Dcreate2(group.get(), "data", H5T_NATIVE_UINT8, space.get(),
                                                H5P_DEFAULT, list.get(), H5P_DEFAULT),
                                     H5Dclose, "test");
              }),
              HasSubstr("takes its data from another file"));
}

TEST_F(JobFile, a_dataset_that_only_claims_its_size_is_refused) {
  EXPECT_THAT(
      error([](hid_t file) {
        const auto group = h5::create_group(file, "prompts");
        h5::write_array<std::uint64_t>(group.get(), "offsets", std::vector<std::uint64_t>{0, 1ULL << 40});
        const h5::Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "test");
        const hsize_t chunk = 4096;
        h5::check(H5Pset_chunk(list.get(), 1, &chunk), "test");
        const hsize_t size = 1ULL << 40;
        const h5::Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose, "test");
        const h5::Handle set(H5Dcreate2(group.get(), "data", H5T_NATIVE_UINT8, space.get(), H5P_DEFAULT,
                                        list.get(), H5P_DEFAULT),
                             H5Dclose, "test");
      }),
      HasSubstr("unpacks to more data"));
}

}  // namespace
}  // namespace diffuse::test

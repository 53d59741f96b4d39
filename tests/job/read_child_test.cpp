#include "job/read_child.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <csignal>
#include <cstdlib>

#include "job/child_process.hpp"
#include "job/job_file.hpp"
#include "job/result_file.hpp"
#include "tests/job/support.hpp"

namespace diffuse::test {
namespace {

using job_detail::run_self;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

TEST(run_self, hands_back_what_the_child_wrote) {
  const auto answer = run_self({"__test-child", "say"}, seconds(20), 100);
  EXPECT_EQ(answer.bytes, "hello");
  EXPECT_EQ(answer.fate, "");
  EXPECT_FALSE(answer.too_long || answer.too_large);
}

TEST(run_self, says_how_a_child_ended) {
  EXPECT_THAT(
      run_self({"__test-child", "crash"}, seconds(20), 100).fate,
      testing::AnyOf(HasSubstr("signal 11"), HasSubstr("exit code")));  // ASan turns signals into exits
  EXPECT_EQ(run_self({"__test-child", "exit"}, seconds(20), 100).fate, "ended with exit code 9");
}

// srun and a shell's `timeout` tell every process of a run; what it means is for the one that waits to say.
TEST(run_self, a_child_goes_on_where_the_run_is_told_to_stop) {
  const auto answer = run_self({"__test-child", "stopped"}, seconds(20), 100);
  EXPECT_EQ(answer.fate, "");
  EXPECT_EQ(answer.bytes, "goes on");
}

TEST(run_self, kills_a_child_that_is_silent) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(run_self({"__test-child", "hang"}, milliseconds(300), 100).too_long);
  EXPECT_THAT(run_self({"__test-child", "hang-after-closing"}, milliseconds(300), 100).fate,
              HasSubstr("signal 9"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
}

TEST(run_self, kills_a_child_that_writes_too_much) {
  const auto answer = run_self({"__test-child", "flood"}, seconds(20), 1'000'000);
  EXPECT_TRUE(answer.too_large);
  EXPECT_LE(answer.bytes.size(), 1'000'000U);
}

TEST(run_self, a_bounded_child_ends) {
  EXPECT_THAT(run_self({"__test-child", "spin"}, seconds(30), 100).fate, HasSubstr("CPU time"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_EQ(run_self({"__test-child", "eat"}, seconds(30), 100).bytes, "refused");
#endif
}

TEST(run_self, keeps_mpi_and_open_files_away_from_the_child) {
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  setenv("PMIX_RANK", "0", 1);
  setenv("SLURM_PROCID", "0", 1);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int leaked = fcntl(null, F_DUPFD, 20);  // not close-on-exec, as a library might have it
  close(null);
  sigset_t usr2;
  sigset_t before;
  sigemptyset(&usr2);
  sigaddset(&usr2, SIGUSR2);
  sigprocmask(SIG_BLOCK, &usr2, &before);
  const auto answer = run_self({"__test-child", "surroundings"}, seconds(20), 10000);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  close(leaked);
  EXPECT_THAT(answer.bytes, HasSubstr("env DIFFUSE_CHILD\n"));
  EXPECT_THAT(answer.bytes, HasSubstr("fd 3\n"));
  EXPECT_THAT(answer.bytes, Not(HasSubstr("OMPI")));
  EXPECT_THAT(answer.bytes, Not(HasSubstr("PMIX")));
  EXPECT_THAT(answer.bytes, Not(HasSubstr("SLURM")));
  EXPECT_THAT(answer.bytes, Not(HasSubstr("fd " + std::to_string(leaked) + "\n")));
  EXPECT_THAT(answer.bytes, Not(HasSubstr("USR2")));
}

TEST(run_self, works_where_the_standard_descriptors_are_closed) {
  const int saved_input = dup(0);
  const int saved_output = dup(1);
  close(0);
  close(1);  // the pipe's ends become 0 and 1
  const auto answer = run_self({"__test-child", "say"}, seconds(20), 100);
  dup2(saved_input, 0);
  dup2(saved_output, 1);
  close(saved_input);
  close(saved_output);
  EXPECT_EQ(answer.bytes, "hello");
}

TEST(run_self, does_not_start_itself_over_and_over) {
  EXPECT_THAT(run_self({"__test-child", "again"}, seconds(20), 1000).bytes,
              HasSubstr("does not hand __read-h5 on"));
}

TEST(read_child, a_missing_file_is_missing_input) {
  const TempFolder folder;
  error_of(ExitCode::missing_input, [&] { read_job(folder / "none.h5"); });
  error_of(ExitCode::missing_input, [&] { read_result(folder / "none.h5"); });
  error_of(ExitCode::missing_input, [&] { read_job(folder.path()); });
}

TEST(read_child, what_is_no_hdf5_is_bad_data) {
  const TempFolder folder;
  write_bytes(folder / "job.json", "{\"requests\": []}");
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { read_job(folder / "job.json"); }),
              HasSubstr("diffuse pack"));
  write_bytes(folder / "empty.h5", "");
  error_of(ExitCode::bad_data, [&] { read_job(folder / "empty.h5"); });
}

// Found by the fuzz tests; HDF5 1.10.8 ends with a segmentation fault on it.
TEST(read_child, a_file_that_crashes_hdf5_is_bad_data) {
  const auto path = std::filesystem::path(DIFFUSE_TEST_DATA) / "job" / "crashes-hdf5-1.10.h5";
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { read_job(path); }),
              testing::AllOf(HasSubstr("crashes-hdf5-1.10.h5"), HasSubstr("the process that read it"),
                             HasSubstr("Make the file again")));
}

TEST(read_child, its_data_is_bounded) {
  const TempFolder folder;
  Job job;
  job.requests.push_back({"0", Prompt{std::string(100000, 'x')}, Json::object()});
  write_job(folder / "job.h5", job);
  const ReadLimits tight{50000, 0, {}};
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { read_job(folder / "job.h5", tight); }),
              HasSubstr("unpacks to"));
  EXPECT_EQ(read_job(folder / "job.h5").requests.size(), 1U);
}

TEST(read_child, waits_no_longer_than_it_may) {
  const TempFolder folder;
  Job job;
  for (int i = 0; i < 100000; ++i) job.requests.push_back({std::to_string(i), Prompt{"x"}, {{"seed", i}}});
  write_job(folder / "job.h5", job);
  EXPECT_THAT(error_of(ExitCode::bad_data,
                       [&] {
                         read_job(folder / "job.h5", {0, 0, milliseconds(1)});
                       }),
              HasSubstr("took longer"));
}

TEST(read_child, its_limits_grow_with_the_file) {
  const auto limits = effective_limits({}, 64U << 20);
  EXPECT_EQ(limits.cpu_seconds, 64U);
  EXPECT_EQ(limits.silence, seconds(316));
  EXPECT_EQ(limits.data_bytes, (1U << 30) + (256U << 20));
  EXPECT_EQ(effective_limits({1, 2, milliseconds(3)}, 64U << 20).silence, milliseconds(3));
}

TEST(read_child, refuses_another_command_line) {
  std::string name = "x";
  std::string command = "__read-h5";
  std::string kind = "jobs";
  std::string path = "p";
  std::string number = "1";
  char* argv[] = {name.data(),   command.data(), kind.data(), path.data(),
                  number.data(), number.data(),  nullptr};
  EXPECT_TRUE(is_read_h5_command(6, argv));
  EXPECT_EQ(read_h5_child(6, argv), 2);
  EXPECT_EQ(read_h5_child(3, argv), 2);
  EXPECT_FALSE(is_read_h5_command(1, argv));
}

}  // namespace
}  // namespace diffuse::test

#include "job/journal.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "job/result_file.hpp"
#include "job/wire.hpp"
#include "tests/job/support.hpp"

namespace diffuse::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const Json kIdentity = {{"job", "aa"}, {"compute", "f32"}, {"patches", {{"count", 4}, {"whole", {1, 2}}}}};

class JournalTest : public testing::Test {
 protected:
  Journal open(const Json& identity = kIdentity) { return Journal::open_or_create(path_, identity); }
  std::string bytes() const { return read_file(path_, 1U << 30); }
  // A journal of `requests` finished requests; returns the file's size after each record.
  std::vector<std::size_t> fill(std::size_t requests) {
    std::vector<std::size_t> sizes;
    auto journal = open();
    sizes.push_back(std::filesystem::file_size(path_));
    journal.write_seeds(std::vector<std::uint64_t>{7, 8, 9});
    sizes.push_back(std::filesystem::file_size(path_));
    for (std::size_t i = 0; i < requests; ++i) {
      journal.append(i, result_.requests[i]);
      sizes.push_back(std::filesystem::file_size(path_));
    }
    return sizes;
  }

  // Every place near the start of a record, some of those within one.
  static bool telling(std::size_t at, const std::vector<std::size_t>& sizes) {
    return at < 24 || at % 29 == 0 ||
           std::ranges::any_of(sizes, [&](auto size) { return at + 2 >= size && at < size + 40; });
  }

  TempFolder folder_;
  std::filesystem::path path_ = Journal::path_of(folder_ / "out.h5");
  Result result_ = sample_result(8);
};

TEST_F(JournalTest, tells_its_identity_before_it_is_opened) {
  fill(1);
  EXPECT_EQ(Journal::identity_of(path_), kIdentity);
  const auto whole = bytes();
  write_bytes(path_, whole.substr(0, 60));
  EXPECT_TRUE(Journal::identity_of(path_).is_null());
  write_bytes(path_, "something else");
  EXPECT_TRUE(Journal::identity_of(path_).is_null());
}

TranscriptWindow sample_window(std::int64_t next) {
  TranscriptSegment segment;
  segment.seek = 7;
  segment.start = 0.02;
  segment.end = 1.1;
  segment.text = "Ünd";
  segment.tokens = {3, 4};
  segment.avg_logprob = -0.7000000000000001;
  segment.words = {{" a", 0.1, 0.7, 1e-300}};
  TranscriptWindow window;
  window.next = next;
  window.clip = 1;
  window.language = "en";
  window.language_probability = 0.1 + 0.2;
  window.forget = true;
  window.cut = true;
  window.last_speech = 1.0 / 3;
  window.said = {1, 2, 50365};
  window.segments = {segment};
  return window;
}

std::string bytes_of_window(const TranscriptWindow& window) {
  wire::Writer out;
  wire::write(out, window);
  return out.bytes();
}

TEST_F(JournalTest, gives_back_windows_of_recordings_that_were_under_way) {
  {
    auto journal = open();
    for (const std::uint64_t number : {0, 1, 2, 1})
      journal.append_window(3, 0, number, sample_window(100 + 7 * static_cast<std::int64_t>(number)));
    journal.append_window(3, 2, 0, sample_window(50));
    journal.append_window(4, 0, 0, sample_window(60));
    journal.append(4, result_.requests[4]);  // then its windows are no longer needed
  }
  {
    auto journal = open();
    const auto windows = journal.take_windows();
    ASSERT_EQ(windows.size(), 1U);
    const auto& pieces = windows.at(3);
    ASSERT_EQ(pieces.size(), 2U);
    ASSERT_EQ(pieces.at(0).size(), 2U);  // the second that came as number 1, and nothing behind it
    EXPECT_EQ(bytes_of_window(pieces.at(0)[1]), bytes_of_window(sample_window(107)));
    EXPECT_EQ(pieces.at(0)[1].segments[0].words[0].probability, 1e-300);
    EXPECT_EQ(bytes_of_window(pieces.at(2)[0]), bytes_of_window(sample_window(50)));
    EXPECT_TRUE(journal.take_windows().empty());
    journal.append_window(3, 0, 5, sample_window(1));
  }
  EXPECT_THAT([&] { open(); }, testing::ThrowsMessage<Error>(HasSubstr("before number 5 are missing")));
}

TEST_F(JournalTest, a_torn_window_is_dropped) {
  std::uintmax_t before = 0;
  {
    auto journal = open();
    journal.append_window(0, 0, 0, sample_window(100));
    before = std::filesystem::file_size(path_);
    journal.append_window(0, 0, 1, sample_window(200));
  }
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 3);
  auto journal = open();
  EXPECT_GT(journal.dropped_bytes(), 0U);
  EXPECT_EQ(std::filesystem::file_size(path_), before);
  EXPECT_EQ(journal.take_windows().at(0).at(0).size(), 1U);
}

TEST_F(JournalTest, gives_back_what_was_finished) {
  EXPECT_EQ(path_.filename(), "out.h5.journal");
  {
    auto journal = open();
    EXPECT_FALSE(journal.resumed());
    EXPECT_TRUE(journal.locked());
    journal.write_seeds(std::vector<std::uint64_t>{1, 2, 3, UINT64_MAX});
    EXPECT_EQ(journal.seeds().size(), 4U);
    for (const std::size_t i : {3U, 0U, 5U}) journal.append(i, result_.requests[i]);
  }
  {
    auto journal = open();
    EXPECT_TRUE(journal.resumed());
    EXPECT_EQ(journal.seeds(), (std::vector<std::uint64_t>{1, 2, 3, UINT64_MAX}));
    const auto finished = journal.take_finished();
    ASSERT_EQ(finished.size(), 3U);
    for (const auto& [index, request] : finished)
      EXPECT_EQ(bytes_of(request), bytes_of(result_.requests[index]));
    EXPECT_TRUE(journal.take_finished().empty());
    journal.append(1, result_.requests[1]);
    journal.append(0, result_.requests[2]);  // again: the later one counts
  }
  auto journal = open();
  EXPECT_EQ(journal.dropped_bytes(), 0U);
  const auto finished = journal.take_finished();
  ASSERT_EQ(finished.size(), 4U);
  EXPECT_EQ(bytes_of(finished.at(0)), bytes_of(result_.requests[2]));
}

TEST_F(JournalTest, cut_anywhere_it_keeps_the_whole_records) {
  const auto sizes = fill(4);
  const std::string whole = bytes();
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    if (!telling(cut, sizes)) continue;
    write_bytes(path_, whole.substr(0, cut));
    const auto records =
        static_cast<std::size_t>(std::ranges::count_if(sizes, [&](auto size) { return size <= cut; }));
    auto journal = open();
    ASSERT_EQ(journal.resumed(), records >= 1) << cut;
    ASSERT_EQ(journal.seeds().size(), records >= 2 ? 3U : 0U) << cut;
    ASSERT_EQ(journal.take_finished().size(), records >= 3 ? records - 2 : 0U) << cut;
    journal.append(6, result_.requests[6]);
  }
  EXPECT_EQ(open().take_finished().size(), 5U);
}

TEST_F(JournalTest, what_is_cut_off_is_counted_and_gone) {
  const auto sizes = fill(2);
  std::filesystem::resize_file(path_, sizes.back() - 3);
  EXPECT_EQ(open().dropped_bytes(), sizes[3] - sizes[2] - 3);
  EXPECT_EQ(std::filesystem::file_size(path_), sizes[2]);
  std::ofstream(path_, std::ios::app | std::ios::binary)
      << std::string(500, '\0');  // as a power failure leaves it
  EXPECT_EQ(open().dropped_bytes(), 500U);
  EXPECT_EQ(open().dropped_bytes(), 0U);
}

TEST_F(JournalTest, damage_in_the_middle_is_bad_data) {
  const auto sizes = fill(3);
  const std::string whole = bytes();
  for (std::size_t at = 0; at < sizes[3]; ++at) {  // each byte before the last record
    if (!telling(at, sizes)) continue;
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write_bytes(path_, damaged);
    ASSERT_THAT(error_of(ExitCode::bad_data, [&] { open(); }), HasSubstr("journal")) << "byte " << at;
    ASSERT_EQ(bytes(), damaged) << "a refused journal is left as it is";
  }
  std::string damaged = whole;
  damaged[sizes[3] + 100] =
      static_cast<char>(damaged[sizes[3] + 100] ^ 1);  // the last record's payload: torn
  write_bytes(path_, damaged);
  EXPECT_EQ(open().take_finished().size(), 2U);
}

TEST_F(JournalTest, names_each_key_that_changed) {
  open();
  const Json changed = {
      {"job", "bb"}, {"compute", "f32"}, {"patches", {{"count", 4}, {"whole", {1, 3}}}}, {"simd", "avx2"}};
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { open(changed); }),
              AllOf(HasSubstr("job: was \"aa\", is \"bb\""), HasSubstr("patches.whole: was [1,2], is [1,3]"),
                    HasSubstr("simd: was missing, is \"avx2\""), Not(HasSubstr("compute")),
                    Not(HasSubstr("count")), HasSubstr("--no-resume")));
  EXPECT_THAT(error_of(ExitCode::bad_data,
                       [&] {
                         open({{"job", "aa"}, {"compute", "f32"}});
                       }),
              HasSubstr("patches.count: was 4, is missing"));
  EXPECT_TRUE(open().resumed());
}

TEST_F(JournalTest, other_files_are_left_alone) {
  write_bytes(path_, "precious notes\n");
  EXPECT_THAT(error_of(ExitCode::bad_data, [&] { open(); }), HasSubstr("no journal"));
  EXPECT_EQ(bytes(), "precious notes\n");
}

TEST_F(JournalTest, two_runs_do_not_share_one) {
  const auto journal = open();
  EXPECT_THAT(error_of(ExitCode::io, [&] { open(); }), HasSubstr("another run"));
  EXPECT_THAT(error_of(ExitCode::io, [&] { Journal::move_aside(path_); }), HasSubstr("another run"));
}

TEST_F(JournalTest, is_moved_aside_and_removed) {
  EXPECT_FALSE(Journal::move_aside(path_));
  fill(1);
  EXPECT_TRUE(Journal::move_aside(path_));
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out.h5.journal_prev"));
  fill(2);
  EXPECT_TRUE(Journal::move_aside(path_));  // replaces the older one
  auto journal = open();
  EXPECT_FALSE(journal.resumed());
  journal.remove();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(JournalTest, a_full_disk_is_an_io_error_and_leaves_whole_records) {
  auto journal = open();
  journal.append(0, result_.requests[0]);
  const auto size = std::filesystem::file_size(path_);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{size + 40, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &tight);
  error_of(ExitCode::io, [&] { journal.append(1, result_.requests[1]); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(std::filesystem::file_size(path_), size);
  journal.append(1, result_.requests[1]);
  journal = Journal::open_or_create(folder_ / "other.journal", kIdentity);
  EXPECT_EQ(open().take_finished().size(), 2U);
}

// Kills a process that appends without end, again and again: what append() acknowledged is there.
TEST_F(JournalTest, survives_kill_9) {
  std::uint64_t acknowledged = 0;
  for (int round = 0; round < 12; ++round) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    std::string name = "test";
    std::string command = "__test-child";
    std::string behaviour = "journal";
    std::string path = path_.string();
    char* argv[] = {name.data(), command.data(), behaviour.data(), path.data(), nullptr};
    pid_t pid = 0;
    ASSERT_EQ(posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    std::string output;
    char buffer[256];
    while (std::ranges::count(output, '\n') < 3 + round) {
      const auto got = read(ends[0], buffer, sizeof buffer);
      ASSERT_GT(got, 0);
      output.append(buffer, static_cast<std::size_t>(got));
    }
    usleep(static_cast<useconds_t>(137 * round));
    kill(pid, SIGKILL);
    for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
      output.append(buffer, static_cast<std::size_t>(got));
    close(ends[0]);
    waitpid(pid, nullptr, 0);
    const auto end = output.rfind('\n');
    const auto start = output.rfind('\n', end - 1);
    acknowledged = std::stoull(output.substr(start == std::string::npos ? 0 : start + 1)) + 1;
    auto journal = open({{"job", "j"}});
    EXPECT_TRUE(journal.resumed());
    const auto finished = journal.take_finished();
    EXPECT_GE(finished.size(), acknowledged);
    EXPECT_LE(finished.size(), acknowledged + 1);
    for (const auto& [index, request] : finished)
      ASSERT_EQ(bytes_of(request), bytes_of(sample_result(1).requests[0])) << index;
  }
  EXPECT_GT(acknowledged, 36U);
}

TEST_F(JournalTest, a_result_is_rebuilt_from_it) {
  fill(8);
  Result rebuilt = result_;
  rebuilt.requests.clear();
  for (auto& [index, request] : open().take_finished()) rebuilt.requests.push_back(std::move(request));
  write_result(folder_ / "out.h5", rebuilt);
  EXPECT_EQ(bytes_of(read_result(folder_ / "out.h5")), bytes_of(result_));
}

}  // namespace
}  // namespace diffuse::test

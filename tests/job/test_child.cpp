#include "tests/job/test_child.hpp"

#include <dirent.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <new>
#include <string>
#include <string_view>

#include "job/child_process.hpp"
#include "job/journal.hpp"
#include "tests/job/support.hpp"

namespace diffuse::test {
namespace {

void say(const std::string& text) {
  if (write(job_detail::kAnswerFd, text.data(), text.size()) < 0) _exit(3);
}

// Names of the environment and open descriptors, one a line.
void report_surroundings() {
  std::string text;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view entry = *variable;
    text += "env " + std::string(entry.substr(0, entry.find('='))) + "\n";
  }
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder))
    if (entry->d_name[0] != '.' && std::stoi(entry->d_name) != dirfd(folder))
      text += "fd " + std::string(entry->d_name) + "\n";
  closedir(folder);
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, nullptr, &blocked);
  if (sigismember(&blocked, SIGUSR2) != 0) text += "USR2 is blocked\n";
  say(text);
}

// Appends until it is killed; says each index once append() has returned.
[[noreturn]] void write_journal(const std::string& path) {
  auto journal = Journal::open_or_create(path, {{"job", "j"}});
  for (std::uint64_t i = journal.take_finished().size();; ++i) {
    journal.append(i, sample_result(1).requests[0]);
    std::cout << i << std::endl;
  }
}

}  // namespace

bool is_test_child(int argc, char** argv) {
  return argc > 2 && std::string_view(argv[1]) == "__test-child";
}

int run_test_child(int argc, char** argv) {
  const std::string_view behaviour = argv[2];
  if (behaviour == "crash") raise(SIGSEGV);
  if (behaviour == "hang") pause();
  if (behaviour == "hang-after-closing") {
    close(job_detail::kAnswerFd);
    pause();
  }
  if (behaviour == "flood")
    while (true) say(std::string(65536, 'x'));
  if (behaviour == "spin") {
    job_detail::bound_this_process(1U << 30, 1);
    while (true) std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  if (behaviour == "eat") {
    job_detail::bound_this_process(1U << 28, 10);
    try {
      std::string(1U << 29, 'x').back() = 'y';
      say("enough");
    } catch (const std::bad_alloc&) {
      say("refused");
    }
  }
  if (behaviour == "exit") _exit(9);
  if (behaviour == "stopped") {
    raise(SIGUSR1);
    raise(SIGTERM);
    say("goes on");
  }
  if (behaviour == "say") say("hello");
  if (behaviour == "surroundings") report_surroundings();
  if (behaviour == "again") {
    try {
      job_detail::run_self({"__test-child", "say"}, std::chrono::seconds(5), 100);
    } catch (const Error& error) {
      say(error.what());
    }
  }
  if (behaviour == "journal" && argc > 3) write_journal(argv[3]);
  _exit(0);
}

}  // namespace diffuse::test

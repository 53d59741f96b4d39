#include "job/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>

#include "core/error.hpp"
#include "core/size.hpp"
#include "job/fd.hpp"

namespace diffuse::job_detail {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kBoundMemory = false;  // their shadow memory takes terabytes of address space
#else
constexpr bool kBoundMemory = true;
#endif

constexpr std::size_t kPipeBytes = 1U << 20;

constexpr std::array<std::string_view, 9> kKeptVariables = {
    "PATH=",         "HOME=",          "TMPDIR=",      "LANG=", "LC_", "LD_LIBRARY_PATH=",
    "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS="};

std::vector<std::string> child_environment() {
  std::vector<std::string> kept;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (std::ranges::any_of(kKeptVariables, [&](auto prefix) { return text.starts_with(prefix); }))
      kept.emplace_back(text);
  }
  kept.push_back(std::string(kChildMark) + "=1");
  kept.emplace_back("HDF5_PLUGIN_PRELOAD=::");  // a file may name a filter: it must not load code for it
  return kept;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (auto& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

void check_spawn(int failed, const char* doing) {
  if (failed == 0) return;
  errno = failed;
  throw Error(ExitCode::io, std::string("starting the process that reads HDF5 files: ") + doing + ": " +
                                std::strerror(failed));
}

class SpawnPlan {
 public:
  explicit SpawnPlan(int answer) {
    check_spawn(posix_spawn_file_actions_init(&actions_), "file actions");
    check_spawn(posix_spawnattr_init(&attributes_), "attributes");
    check_spawn(posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0), "standard input");
    check_spawn(posix_spawn_file_actions_addopen(&actions_, 1, "/dev/null", O_WRONLY, 0), "standard output");
    check_spawn(posix_spawn_file_actions_addopen(&actions_, 2, "/dev/null", O_WRONLY, 0), "standard error");
    check_spawn(posix_spawn_file_actions_adddup2(&actions_, answer, kAnswerFd), "the answer's pipe");
    check_spawn(posix_spawn_file_actions_addclosefrom_np(&actions_, kAnswerFd + 1), "closing descriptors");
    // What tells a run to stop reaches all its processes under srun, and this one's end would pass for a
    // damaged file.
    sigset_t stops;
    sigset_t all;
    sigemptyset(&stops);
    sigaddset(&stops, SIGUSR1);
    sigaddset(&stops, SIGTERM);
    sigfillset(&all);
    check_spawn(posix_spawnattr_setsigmask(&attributes_, &stops), "signal mask");
    check_spawn(posix_spawnattr_setsigdefault(&attributes_, &all), "signal handlers");
    check_spawn(posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF),
                "flags");
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  pid_t spawn(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "diffuse");
    auto environment = child_environment();
    pid_t pid = -1;
    check_spawn(posix_spawn(&pid, "/proc/self/exe", &actions_, &attributes_, pointers(arguments).data(),
                            pointers(environment).data()),
                "/proc/self/exe");
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Kills (where it still runs) and waits, whatever happens in between.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (pid_ < 0) return;
    stop();
    wait(std::chrono::steady_clock::now());
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void stop() { kill(pid_, SIGKILL); }

  // It has nothing left to do: what is not over by the deadline is killed.
  std::string wait(std::chrono::steady_clock::time_point deadline) {
    int status = 0;
    pid_t got = 0;
    while ((got = waitpid(pid_, &status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
      if (std::chrono::steady_clock::now() >= deadline) stop();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    pid_ = -1;
    if (got < 0) return {};  // somebody ignores SIGCHLD: the answer's checksum alone decides
    if (WIFSIGNALED(status)) {
      const int number = WTERMSIG(status);
      return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
    }
    const int code = WEXITSTATUS(status);
    return code == 0 ? std::string() : "ended with exit code " + std::to_string(code);
  }

 private:
  pid_t pid_;
};

// `grace` beyond it the limit is hard. A tighter one that the user set stays.
void bound(decltype(RLIMIT_AS) resource, std::uint64_t value, std::uint64_t grace = 0) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return;
  limit = {std::min<rlim_t>(limit.rlim_cur, value), std::min<rlim_t>(limit.rlim_max, value + grace)};
  setrlimit(resource, &limit);
}

std::uint64_t mapped_bytes() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

int milliseconds_until(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
}

}  // namespace

ChildAnswer run_self(const std::vector<std::string>& arguments, std::chrono::milliseconds silence,
                     std::uint64_t max_bytes) {
  if (std::getenv(kChildMark) != nullptr)
    throw_internal(
        "this program was started to read an HDF5 file and did something else: its main() does not hand "
        "__read-h5 on (see job/read_child.hpp)");
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("making a pipe for the process that reads HDF5 files");
  const Fd from(ends[0]);
  Fd to(ends[1]);
  if (to.get() <= kAnswerFd) {  // it would be overwritten, or left close-on-exec, on its way to kAnswerFd
    to = Fd(fcntl(to.get(), F_DUPFD_CLOEXEC, kAnswerFd + 1));
    if (to.get() < 0) throw_errno("making a pipe for the process that reads HDF5 files");
  }
  fcntl(from.get(), F_SETPIPE_SZ, kPipeBytes);  // fewer turns; where refused, the pipe is smaller

  Child child(SpawnPlan(to.get()).spawn(arguments));
  to.reset();
  ChildAnswer answer;
  std::vector<char> buffer(kPipeBytes);
  auto deadline = std::chrono::steady_clock::now() + silence;
  while (true) {
    pollfd waiting{from.get(), POLLIN, 0};
    const int ready = poll(&waiting, 1, milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) throw_errno("waiting for the process that reads HDF5 files");
    if (ready == 0) {
      if (std::chrono::steady_clock::now() < deadline) continue;
      answer.too_long = true;
      break;
    }
    const ssize_t got = read(from.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("reading from the process that reads HDF5 files");
    if (got == 0) break;
    if (answer.bytes.size() + static_cast<std::size_t>(got) > max_bytes) {
      answer.too_large = true;
      break;
    }
    answer.bytes.append(buffer.data(), static_cast<std::size_t>(got));
    deadline = std::chrono::steady_clock::now() + silence;
  }
  if (answer.too_long || answer.too_large) child.stop();
  answer.fate = child.wait(deadline);
  return answer;
}

void bound_this_process(std::uint64_t memory_bytes, std::uint64_t cpu_seconds) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  bound(RLIMIT_CORE, 0);
  bound(RLIMIT_CPU, cpu_seconds, 1);  // SIGXCPU first, which names the reason
  if (kBoundMemory) bound(RLIMIT_AS, (CheckedSize(mapped_bytes()) + memory_bytes).value());
}

}  // namespace diffuse::job_detail

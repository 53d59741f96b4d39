#pragma once
// Starts this program again and takes what it writes to descriptor 3.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace diffuse::job_detail {

inline constexpr int kAnswerFd = 3;
// Stands in the child's environment, so that a program that does not know the hidden command cannot start
// itself over and over.
inline constexpr const char* kChildMark = "DIFFUSE_CHILD";

struct ChildAnswer {
  std::string bytes;  // everything it wrote
  std::string
      fate;  // how it ended, where not with exit code 0: "was killed by signal 11 (Segmentation fault)"
  bool too_long = false;   // killed here: it was silent for too long
  bool too_large = false;  // killed here: it wrote more than it may
};

// Runs /proc/self/exe with `arguments`. Safe after MPI_Init: posix_spawn (no fork handlers run, no page is
// copied), every descriptor but the answer's is closed, signals are at their defaults and unblocked (but for
// USR1 and TERM, which tell a run to stop: that is for the parent to hear, which ends its child), and of the
// environment only what the loader, the locale and the sanitizers need goes along: nothing by which it
// could join an MPI job. Kills the child where it is silent for longer than `silence` or writes more than
// `max_bytes`; it is always waited for. Throws I/O where it cannot be started.
ChildAnswer run_self(const std::vector<std::string>& arguments, std::chrono::milliseconds silence,
                     std::uint64_t max_bytes);

// What the child does first. It ends with its parent, leaves no core dump, and takes no more memory (beyond
// what is mapped already; not bounded under a sanitizer) and no more computing time than this.
void bound_this_process(std::uint64_t memory_bytes, std::uint64_t cpu_seconds);

}  // namespace diffuse::job_detail

#include "core/log.hpp"

#include <unistd.h>

#include <cstdio>

namespace diffuse {

Log::Log(std::string prefix, bool quiet)
    : prefix_(std::move(prefix)),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) == 1),
      // In a log file the first state is worth a line only when the work turns out to be long.
      last_(terminal_ ? std::chrono::steady_clock::time_point() : std::chrono::steady_clock::now()) {}

void Log::clear_progress() {
  if (drawn_) std::fputs("\r\x1b[2K", stderr);
  drawn_ = false;
}

void Log::line(const std::string& text) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  clear_progress();
  std::fprintf(stderr, "%s%s\n", prefix_.c_str(), text.c_str());
}

void Log::warn(const std::string& text) {
  const std::lock_guard lock(mutex_);
  clear_progress();
  std::fprintf(stderr, "%swarning: %s\n", prefix_.c_str(), text.c_str());
}

void Log::progress(const std::string& text) {
  using namespace std::chrono_literals;
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000))) return;
  last_ = now;
  if (terminal_) {
    std::fprintf(stderr, "\r\x1b[2K%s%s", prefix_.c_str(), text.c_str());
    std::fflush(stderr);
    drawn_ = true;
  } else {
    std::fprintf(stderr, "%s%s\n", prefix_.c_str(), text.c_str());
  }
}

void Log::end_progress() {
  const std::lock_guard lock(mutex_);
  clear_progress();
}

std::string rank_prefix(int rank, int ranks, const std::string& host) {
  return "[rank " + std::to_string(rank) + "/" + std::to_string(ranks) + " " + host + "] ";
}

}  // namespace diffuse

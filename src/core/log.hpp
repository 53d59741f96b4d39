#pragma once
// What a rank says while it works: lines on stderr with "[rank 2/4 node3]" in front, and a progress line that
// is redrawn on a terminal and printed now and then in a log file.

#include <chrono>
#include <mutex>
#include <string>

namespace diffuse {

// Thread-safe. One object a rank, passed to whoever speaks; nothing global.
class Log {
 public:
  // `prefix` stands in front of every line; empty for a command without ranks.
  explicit Log(std::string prefix = {}, bool quiet = false);

  void line(const std::string& text);  // a plain line
  void warn(const std::string& text);  // the same behind "warning: "; not silenced by quiet

  // State of long work, e.g. "decoding 37/80 requests, 412 tokens/s". On a terminal the last line is redrawn
  // at most ten times a second; elsewhere a line is printed at most every ten seconds.
  void progress(const std::string& text);
  void end_progress();

 private:
  void clear_progress();

  std::mutex mutex_;
  std::string prefix_;
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

// "[rank 2/4 node3] " for this host.
std::string rank_prefix(int rank, int ranks, const std::string& host);

}  // namespace diffuse

#pragma once
// Errors of the program: one exception type that carries the exit code the job ends with.
//
// A message says what was being done, to which file or tensor, what was found there and what to do about it.
// main() is the one place that catches; it prints the message once and ends the job on all ranks.

#include <stdexcept>
#include <string>

namespace diffuse {

enum class ExitCode : int {
  done = 0,
  difference = 1,      // the verification found a difference
  usage = 2,           // the command line is wrong
  bad_data = 65,       // a file or request holds something that cannot be used
  missing_input = 66,  // a file that was named does not exist or cannot be opened
  refused = 69,        // the model is one that this program refuses, or cannot run yet
  internal = 70,       // a promise of the program itself is broken
  io = 74,             // reading, writing or talking to a peer failed
  stopped = 75,        // stopped on request: the same command goes on
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Each throws an Error of its code.
[[noreturn]] void throw_usage(const std::string& message);
[[noreturn]] void throw_bad_data(const std::string& message);
[[noreturn]] void throw_missing(const std::string& message);
[[noreturn]] void throw_refused(const std::string& message);
[[noreturn]] void throw_internal(const std::string& message);
[[noreturn]] void throw_io(const std::string& message);

// For a failed system call: appends the text of errno. `doing` reads like "opening weights file 'x'".
[[noreturn]] void throw_errno(const std::string& doing);

}  // namespace diffuse

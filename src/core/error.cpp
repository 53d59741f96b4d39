#include "core/error.hpp"

#include <cerrno>
#include <system_error>

namespace diffuse {

void throw_usage(const std::string& message) {
  throw Error(ExitCode::usage, message);
}
void throw_bad_data(const std::string& message) {
  throw Error(ExitCode::bad_data, message);
}
void throw_missing(const std::string& message) {
  throw Error(ExitCode::missing_input, message);
}
void throw_refused(const std::string& message) {
  throw Error(ExitCode::refused, message);
}
void throw_internal(const std::string& message) {
  throw Error(ExitCode::internal, message);
}
void throw_io(const std::string& message) {
  throw Error(ExitCode::io, message);
}

void throw_errno(const std::string& doing) {
  const int number = errno;
  const auto code = number == ENOENT ? ExitCode::missing_input : ExitCode::io;
  throw Error(code, doing + ": " + std::generic_category().message(number));
}

}  // namespace diffuse

#include <exception>

#include "transport/mpi.hpp"
#include "transport/mpi_thread.hpp"

namespace diffuse {

MpiSession::MpiSession(std::chrono::nanoseconds timeout)
    : exceptions_(std::uncaught_exceptions()), thread_(std::make_unique<MpiThread>(timeout)) {}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() > exceptions_ || thread_->broken())
    thread_->abort(static_cast<int>(ExitCode::internal));
}

int MpiSession::rank() const {
  return thread_->rank();
}
int MpiSession::size() const {
  return thread_->size();
}
bool MpiSession::timed_out() const {
  return thread_->timed_out();
}
const std::vector<std::string>& MpiSession::hosts() const {
  return thread_->hosts();
}

std::string MpiSession::library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string version(text, static_cast<std::size_t>(length));
  return version.substr(0, version.find(", package"));
}

void MpiSession::abort_all(ExitCode code, const std::string& message) {
  thread_->say_once(message);
  thread_->abort(static_cast<int>(code));
}

void MpiSession::abort_all_after(std::chrono::nanoseconds patience, ExitCode code,
                                 const std::string& message) {
  thread_->abort_after(patience, static_cast<int>(code), message);
}

}  // namespace diffuse

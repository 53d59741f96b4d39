#include <unistd.h>

#include <exception>
#include <limits>
#include <numeric>

#include "transport/mpi.hpp"
#include "transport/mpi_thread.hpp"

namespace diffuse {

namespace {

// Posts a nonblocking collective and tests it until it is done.
template <class Post>
void run_collective(MpiThread& thread, std::chrono::nanoseconds timeout, const std::string& doing,
                    const Post& post) {
  MPI_Request request = MPI_REQUEST_NULL;
  bool posted = false;
  thread.run(
      [&] {
        if (!posted) check_mpi(post(&request), doing);
        posted = true;
        int done = 0;
        check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), doing);
        return done != 0;
      },
      timeout, doing);
}

int to_count(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw_internal("a collective of more than 2 GiB");
  return static_cast<int>(bytes);
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

}  // namespace

MpiSession::MpiSession(std::chrono::nanoseconds timeout)
    : timeout_(timeout), exceptions_(std::uncaught_exceptions()), thread_(std::make_unique<MpiThread>()) {
  thread_->set_hosts(all_gather(host_name()));
}

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

std::vector<std::vector<std::byte>> MpiSession::all_gather(std::span<const std::byte> mine) {
  const auto ranks = static_cast<std::size_t>(size());
  const MPI_Comm communicator = thread_->communicator();
  const int count = to_count(mine.size());
  std::vector<int> counts(ranks);
  run_collective(*thread_, timeout_, "gathering sizes", [&](MPI_Request* request) {
    return MPI_Iallgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, communicator, request);
  });
  std::vector<int> offsets(ranks);
  std::size_t total = 0;
  for (std::size_t i = 0; i < ranks; ++i) {
    offsets[i] = to_count(total);
    total += static_cast<std::size_t>(counts[i]);
  }
  std::vector<std::byte> all(total);
  run_collective(*thread_, timeout_, "gathering from all ranks", [&](MPI_Request* request) {
    return MPI_Iallgatherv(mine.data(), count, MPI_BYTE, all.data(), counts.data(), offsets.data(), MPI_BYTE,
                           communicator, request);
  });
  std::vector<std::vector<std::byte>> parts;
  for (std::size_t i = 0; i < ranks; ++i)
    parts.emplace_back(all.begin() + offsets[i], all.begin() + offsets[i] + counts[i]);
  return parts;
}

std::vector<std::string> MpiSession::all_gather(const std::string& mine) {
  std::vector<std::string> texts;
  for (const auto& part : all_gather(std::as_bytes(std::span(mine)))) {
    std::string text(part.size(), '\0');
    for (std::size_t i = 0; i < part.size(); ++i) text[i] = static_cast<char>(part[i]);
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<std::byte> MpiSession::broadcast(std::span<const std::byte> mine, int root) {
  if (root < 0 || root >= size()) throw_internal("a broadcast from a rank that there is not");
  const MPI_Comm communicator = thread_->communicator();
  int count = rank() == root ? to_count(mine.size()) : 0;
  run_collective(*thread_, timeout_, "spreading a size", [&](MPI_Request* request) {
    return MPI_Ibcast(&count, 1, MPI_INT, root, communicator, request);
  });
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  if (rank() == root) bytes.assign(mine.begin(), mine.end());
  run_collective(*thread_, timeout_, "spreading from rank " + std::to_string(root),
                 [&](MPI_Request* request) {
                   return MPI_Ibcast(bytes.data(), count, MPI_BYTE, root, communicator, request);
                 });
  return bytes;
}

void MpiSession::barrier() {
  run_collective(*thread_, timeout_, "meeting at a barrier",
                 [&](MPI_Request* request) { return MPI_Ibarrier(thread_->communicator(), request); });
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

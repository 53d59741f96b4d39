#include "transport/mpi_start.hpp"

#include <unistd.h>

#include <array>
#include <cstddef>
#include <memory>

namespace diffuse {

namespace {

constexpr std::size_t kName = 256;
using Name = std::array<char, kName>;  // ends with a zero

Name host_name() {
  Name name{};
  if (gethostname(name.data(), name.size() - 1) != 0) name = {"?"};
  return name;
}

// Of rank 0: everybody's name comes to it, and all of them go out from it in the collective that follows.
struct Arrival {
  std::vector<Name> names;
  std::vector<MPI_Request> requests;  // a rank each; the own is null
  MPI_Request spread = MPI_REQUEST_NULL;
  bool posted = false;
  bool gathered = false;

  std::string missing() const {
    std::string text;
    for (std::size_t rank = 0; rank < requests.size(); ++rank)
      if (requests[rank] != MPI_REQUEST_NULL) text += (text.empty() ? "" : ", ") + std::to_string(rank);
    return text;
  }
};

void post(Arrival& arrival, const MpiThread& thread) {
  const auto own = static_cast<std::size_t>(thread.rank());
  arrival.names[own] = host_name();
  if (own > 0) {
    check_mpi(MPI_Isend(arrival.names[own].data(), kName, MPI_CHAR, 0, 0, thread.communicator(),
                        &arrival.requests[0]),
              "telling this host's name");
    return;
  }
  for (std::size_t rank = 1; rank < arrival.names.size(); ++rank)
    check_mpi(MPI_Irecv(arrival.names[rank].data(), kName, MPI_CHAR, static_cast<int>(rank), 0,
                        thread.communicator(), &arrival.requests[rank]),
              "gathering the hosts' names");
}

bool test(MPI_Request& request, const std::string& doing) {
  int done = 0;
  check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), doing);
  return done != 0;
}

bool advance(Arrival& arrival, const MpiThread& thread) {
  if (!arrival.posted) post(arrival, thread);
  arrival.posted = true;
  if (!arrival.gathered) {
    bool all = true;
    for (auto& request : arrival.requests) all = test(request, "gathering the hosts' names") && all;
    if (!all) return false;
    arrival.gathered = true;
    check_mpi(MPI_Ibcast(arrival.names.data(), static_cast<int>(kName * arrival.names.size()), MPI_CHAR, 0,
                         thread.communicator(), &arrival.spread),
              "spreading the hosts' names");
  }
  return test(arrival.spread, "spreading the hosts' names");
}

}  // namespace

std::vector<std::string> gather_hosts(MpiThread& thread, std::chrono::nanoseconds timeout) {
  const auto ranks = static_cast<std::size_t>(thread.size());
  auto arrival = std::make_shared<Arrival>();
  arrival->names.resize(ranks);
  arrival->requests.resize(ranks, MPI_REQUEST_NULL);
  thread.keep(arrival);
  thread.run([&] { return advance(*arrival, thread); }, timeout,
             [&]() -> std::string {
               if (thread.rank() > 0)
                 return "rank 0 (or one that it waits for): the start of the job, where ranks exchange their "
                        "hosts' names";
               return "rank " + arrival->missing() +
                      ": the start of the job, where ranks exchange their hosts' names";
             });
  std::vector<std::string> hosts;
  for (const auto& name : arrival->names) hosts.emplace_back(name.data());
  return hosts;
}

MPI_Comm new_communicator(MpiThread& thread, std::chrono::nanoseconds timeout) {
  struct Making {
    MPI_Comm communicator = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    bool posted = false;
  };
  const auto making = std::make_shared<Making>();
  const std::string doing = "making a communicator";
  thread.keep(making);
  thread.run(
      [&] {
        if (!making->posted)
          check_mpi(MPI_Comm_idup(thread.communicator(), &making->communicator, &making->request), doing);
        making->posted = true;
        if (!test(making->request, doing)) return false;
        check_mpi(MPI_Comm_set_errhandler(making->communicator, MPI_ERRORS_RETURN),
                  "choosing how errors are reported");
        return true;
      },
      timeout, [&] { return "all ranks, of which MPI does not say who is missing: " + doing; });
  return making->communicator;
}

}  // namespace diffuse

#pragma once
// The ranks of a command: MPI where mpirun or srun started it, one rank without MPI else. The one place that
// catches an error on a rank and ends the job on all of them.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/log.hpp"
#include "transport/transport.hpp"

namespace diffuse {

class MpiSession;
class MpiTransport;
class NcclTransport;
class LoopbackNetwork;

class Ranks {
 public:
  explicit Ranks(double timeout_seconds);  // starts MPI where a launcher did; with_ranks does the rest
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const;
  int size() const;
  bool root() const { return rank() == 0; }
  const std::vector<std::string>& hosts() const { return hosts_; }
  int ranks_on_this_host() const;
  std::string mpi_version() const;  // "none" without MPI
  Log& log() { return *log_; }
  Transport& transport();

  // Collective: hidden rows go from card to card from here on, over NCCL; nothing where one rank is all.
  void link_devices(void* compute_stream);
  std::string carried_by() const;  // "nccl 2.28.9", "mpi"; "none" where one rank is all

  // Collective; every rank gets rank 0's value, or everybody's. Before and after the pipeline, never inside.
  // `what` is what the value is, for the message when a rank does not come.
  std::string broadcast(const std::string& mine, const std::string& what);
  std::vector<std::string> all_gather(const std::string& mine, const std::string& what);

  // Collective: runs `body`, which is not, on every rank. Where it throws an Error on some of them, the first
  // of these speaks for all, and the job ends: what every rank meets (a missing model) is said once. `doing`
  // is what the body does.
  template <class Body>
  auto together(const std::string& doing, const Body& body) {
    std::optional<decltype(body())> value;
    std::optional<Error> problem;
    try {
      value.emplace(body());
    } catch (const Error& caught) {
      problem = caught;
    }
    agree(problem, doing);
    return std::move(*value);
  }

 private:
  friend int with_ranks(double timeout_seconds, const std::function<int(Ranks&)>& body);
  void agree(const std::optional<Error>& problem, const std::string& doing);
  void meet();            // collective: what needs a rank to be heard by the others, after the constructor
  void unlink_devices();  // collective
  void part();            // collective, at the end: what fails in it is still told
  std::chrono::nanoseconds timeout_;
  std::unique_ptr<MpiSession> mpi_;
  std::unique_ptr<LoopbackNetwork> loopback_;
  std::unique_ptr<Transport> transport_;
  MpiTransport* mpi_transport_ = nullptr;  // the same, where it is one
  std::unique_ptr<NcclTransport> links_;
  std::unique_ptr<Log> log_;
  std::vector<std::string> hosts_;
};

// Runs `body` on every rank and returns rank 0's exit code on all of them. An Error of any rank is printed
// once and ends the job with its code.
int with_ranks(double timeout_seconds, const std::function<int(Ranks&)>& body);

}  // namespace diffuse

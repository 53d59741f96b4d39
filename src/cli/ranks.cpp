#include "cli/ranks.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/error.hpp"
#include "transport/collectives.hpp"
#include "transport/loopback.hpp"
#include "transport/mpi.hpp"
#include "transport/nccl.hpp"

namespace diffuse {
namespace {

bool started_by_mpi() {
  for (const auto* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  // Tasks that do not know of each other would each run the whole job, over one another's output.
  const auto* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (tasks != nullptr && std::strcmp(tasks, "1") != 0) {
    throw_usage(std::string("srun started ") + tasks + " tasks without MPI; add --mpi=pmix");
  }
  return false;
}

std::chrono::nanoseconds to_duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

Ranks::Ranks(double timeout_seconds) : timeout_(to_duration(timeout_seconds)) {
  if (started_by_mpi()) mpi_ = std::make_unique<MpiSession>(timeout_);
  log_ = std::make_unique<Log>(size() > 1 ? rank_prefix(rank(), size(), host_name()) : std::string());
}

void Ranks::meet() {
  if (mpi_) {
    auto transport = make_mpi_transport(*mpi_, {.timeout = timeout_});
    mpi_transport_ = transport.get();
    transport_ = std::move(transport);
    hosts_ = mpi_->hosts();
  } else {
    loopback_ = std::make_unique<LoopbackNetwork>(1, LoopbackOptions{.timeout = timeout_, .fate = {}});
    transport_ = loopback_->endpoint(0);
    hosts_ = {host_name()};
  }
}

Ranks::~Ranks() = default;

int Ranks::rank() const {
  return mpi_ ? mpi_->rank() : 0;
}
int Ranks::size() const {
  return mpi_ ? mpi_->size() : 1;
}

int Ranks::ranks_on_this_host() const {
  return static_cast<int>(std::count(hosts_.begin(), hosts_.end(), hosts_[static_cast<std::size_t>(rank())]));
}

void Ranks::link_devices(void* compute_stream) {
  if (size() > 1) links_ = make_nccl_transport(*mpi_, *mpi_transport_, {.compute_stream = compute_stream});
}

void Ranks::unlink_devices() {
  if (links_) links_->close();
  links_.reset();
}

void Ranks::part() {
  if (mpi_transport_ != nullptr) mpi_transport_->close();
}

std::string Ranks::carried_by() const {
  if (size() == 1) return "none";
  return links_ ? "nccl " + nccl_version() : "mpi";
}

Transport& Ranks::transport() {
  return links_ ? *links_ : *transport_;
}

std::string Ranks::mpi_version() const {
  return mpi_ ? MpiSession::library_version() : "none";
}

std::string Ranks::broadcast(const std::string& mine, const std::string& what) {
  const auto bytes = diffuse::broadcast(*transport_, std::as_bytes(std::span(mine)), 0, what);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> Ranks::all_gather(const std::string& mine, const std::string& what) {
  return diffuse::all_gather(*transport_, mine, what);
}

namespace {

// Thrown on a rank that another one speaks for.
struct SpokenFor {};

}  // namespace

void Ranks::agree(const std::optional<Error>& problem, const std::string& doing) {
  const auto failed = all_gather(problem ? "failed" : "", "how each rank fared: " + doing);
  const auto first = std::find(failed.begin(), failed.end(), "failed") - failed.begin();
  if (first == static_cast<std::ptrdiff_t>(failed.size())) return;
  if (first != rank()) throw SpokenFor();
  throw *problem;
}

int with_ranks(double timeout_seconds, const std::function<int(Ranks&)>& body) {
  Ranks ranks(timeout_seconds);
  const auto end_all = [&](ExitCode code, const std::string& message) {
    if (!ranks.mpi_) throw Error(code, message);
    // Where several ranks lose the same peer at once, the lowest speaks for them. A launcher needs seconds to
    // end ranks of which one has stopped.
    const int first = ranks.mpi_->timed_out() ? 4000 : 400;
    if (!ranks.root())
      std::this_thread::sleep_for(std::chrono::milliseconds(first + 200 * std::min(ranks.rank(), 8)));
    const auto prefix = rank_prefix(ranks.rank(), ranks.size(), host_name());
    ranks.mpi_->abort_all(code, "diffuse: " + (ranks.size() > 1 ? prefix : std::string()) + message);
  };
  try {
    ranks.meet();
    const int own = body(ranks);
    ranks.unlink_devices();
    const int code = std::stoi(ranks.broadcast(std::to_string(own), "the exit code"));
    ranks.part();
    return code;
  } catch (const SpokenFor&) {
    // That rank ends us; if it does not, this one ends alone.
    std::this_thread::sleep_for(std::chrono::seconds(10));
    ranks.mpi_->abort_all(ExitCode::io, "");
  } catch (const Error& problem) {
    end_all(problem.code(), problem.what());
  } catch (const std::bad_alloc&) {
    end_all(ExitCode::internal, "out of memory");
  } catch (const std::exception& problem) {
    end_all(ExitCode::internal, std::string("internal error: ") + problem.what());
  }
  return static_cast<int>(ExitCode::internal);
}

}  // namespace diffuse

#include "cli/ranks.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/error.hpp"
#include "transport/loopback.hpp"
#include "transport/mpi.hpp"

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

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

int default_threads(const Ranks& ranks) {
  const int cores = usable_cores();
  const int machine = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  // A launcher that bound this rank has shared the cores out already.
  return cores < machine ? cores : std::max(1, cores / ranks.ranks_on_this_host());
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

// The first target of ours that every rank has too; lists are best first.
std::string common_target(const std::vector<std::string>& lists, const std::string& wanted) {
  const auto mine = cpu_simd_targets();
  const auto on_all = [&](const std::string& target) {
    return std::all_of(lists.begin(), lists.end(), [&](const std::string& list) {
      return ("," + list + ",").find("," + target + ",") != std::string::npos;
    });
  };
  if (!wanted.empty()) {
    if (!on_all(wanted))
      throw_usage("--simd " + wanted + ": not every rank has it; this one has " + join(mine));
    return wanted;
  }
  for (const auto& target : mine) {
    if (on_all(target)) return target;
  }
  throw_usage("the ranks have no SIMD target in common; this one has " + join(mine));
}

}  // namespace

Ranks::Ranks(double timeout_seconds) {
  if (started_by_mpi()) {
    mpi_ = std::make_unique<MpiSession>(to_duration(timeout_seconds));
    hosts_ = mpi_->hosts();
    transport_ = make_mpi_transport(*mpi_, {.timeout = to_duration(timeout_seconds)});
  } else {
    loopback_ = std::make_unique<LoopbackNetwork>(
        1, LoopbackOptions{.timeout = to_duration(timeout_seconds), .fate = {}});
    transport_ = loopback_->endpoint(0);
    hosts_ = {host_name()};
  }
  log_ = std::make_unique<Log>(
      size() > 1 ? rank_prefix(rank(), size(), hosts_[static_cast<std::size_t>(rank())]) : std::string());
}

Ranks::~Ranks() = default;

int Ranks::rank() const {
  return transport_->rank();
}
int Ranks::size() const {
  return transport_->size();
}

int Ranks::ranks_on_this_host() const {
  return static_cast<int>(std::count(hosts_.begin(), hosts_.end(), hosts_[static_cast<std::size_t>(rank())]));
}

std::string Ranks::mpi_version() const {
  return mpi_ ? MpiSession::library_version() : "none";
}

std::string Ranks::broadcast(const std::string& mine) {
  if (!mpi_) return mine;
  const auto bytes = mpi_->broadcast(std::as_bytes(std::span(mine)), 0);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> Ranks::all_gather(const std::string& mine) {
  if (!mpi_) return {mine};
  return mpi_->all_gather(mine);
}

namespace {

// Thrown on a rank that another one speaks for.
struct SpokenFor {};

}  // namespace

void Ranks::agree(const std::optional<Error>& problem) {
  const auto failed = all_gather(problem ? "failed" : "");
  const auto first = std::find(failed.begin(), failed.end(), "failed") - failed.begin();
  if (first == static_cast<std::ptrdiff_t>(failed.size())) return;
  if (first != rank()) throw SpokenFor();
  throw *problem;
}

int with_ranks(double timeout_seconds, const std::function<int(Ranks&)>& body) {
  Ranks ranks(timeout_seconds);
  const auto end_all = [&](ExitCode code, const std::string& message) {
    if (!ranks.mpi_) throw Error(code, message);
    // Where several ranks lose the same peer at once, rank 0 speaks for them.
    if (!ranks.root()) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const auto prefix =
        rank_prefix(ranks.rank(), ranks.size(), ranks.hosts()[static_cast<std::size_t>(ranks.rank())]);
    ranks.mpi_->abort_all(code, "diffuse: " + (ranks.size() > 1 ? prefix : std::string()) + message);
  };
  try {
    return std::stoi(ranks.broadcast(std::to_string(body(ranks))));
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

std::unique_ptr<Backend> make_backend(ComputeFlags& flags, Ranks& ranks) {
  const auto targets = ranks.all_gather(join(cpu_simd_targets()));
  return ranks.together([&] {
    if (flags.device == "cuda") return make_cuda_backend({});
    CpuOptions options;
    if (flags.threads == 0) flags.threads = default_threads(ranks);
    options.threads = flags.threads;
    options.compute = flags.compute_mode();
    options.simd = common_target(targets, flags.simd);
    if (options.threads > usable_cores()) {
      ranks.log().warn(std::to_string(options.threads) + " threads share " + std::to_string(usable_cores()) +
                       " cores; with mpirun, --bind-to none lets a rank use all of its host's");
    }
    return make_cpu_backend(options);
  });
}

std::uint64_t kv_bytes(const ComputeFlags& flags, const Ranks& ranks) {
  if (!flags.kv_memory.empty()) return parse_bytes(flags.kv_memory);
  const auto memory = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
  return memory / 4 / static_cast<std::uint64_t>(ranks.ranks_on_this_host());
}

}  // namespace diffuse

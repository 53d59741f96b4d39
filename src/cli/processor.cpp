#include "cli/processor.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "core/error.hpp"
#include "slice/device_bytes.hpp"
#include "transport/nccl.hpp"

namespace diffuse {
namespace {

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

std::string name_of(const Ranks& ranks, std::size_t rank) {
  return "rank " + std::to_string(rank) + " (host " + ranks.hosts()[rank] + ")";
}

std::unique_ptr<Backend> make_cpu(ComputeFlags& flags, Ranks& ranks) {
  const auto targets =
      ranks.all_gather(join(cpu_simd_targets()), "the SIMD targets of the ranks' processors");
  return ranks.together("making the CPU backend", [&] {
    CpuOptions options;
    if (flags.threads == 0) flags.threads = default_threads(ranks);
    options.threads = flags.threads;
    options.compute = flags.compute_mode(Compute::f32);
    options.simd = common_target(targets, flags.simd);
    if (options.threads > usable_cores()) {
      ranks.log().warn(std::to_string(options.threads) + " threads share " + std::to_string(usable_cores()) +
                       " cores; with mpirun, --bind-to none lets a rank use all of its host's");
    }
    return make_cpu_backend(options);
  });
}

// The ranks before this one on its host: its number among the cards there.
int local_rank(const Ranks& ranks) {
  const auto& hosts = ranks.hosts();
  const auto mine = hosts.begin() + ranks.rank();
  return static_cast<int>(std::count(hosts.begin(), mine, *mine));
}

// Whether all ranks take CUDA. Collective; where some could and others could not, `line` says why not.
bool choose_cuda(const ComputeFlags& flags, Ranks& ranks, std::string& line) {
  if (flags.device == "cpu") return false;
  const auto reason = why_no_cuda();
  if (flags.device == "cuda") {
    return ranks.together("looking for a card", [&] {
      if (!reason.empty()) throw_refused("--device cuda: " + reason);
      return true;
    });
  }
  const auto reasons = ranks.all_gather(reason, "which ranks have a card");
  const auto lacking =
      std::find_if(reasons.begin(), reasons.end(), [](const auto& each) { return !each.empty(); });
  const auto some = std::find(reasons.begin(), reasons.end(), "");
  if (lacking != reasons.end() && some != reasons.end())
    line = "; " + name_of(ranks, static_cast<std::size_t>(lacking - reasons.begin())) + ": " + *lacking;
  return lacking == reasons.end();
}

// What every rank says of its card.
struct Card {
  std::string target;
  std::string place;  // host and UUID
  std::uint64_t free_bytes = 0;
};

std::vector<Card> gather_cards(Ranks& ranks, const Backend& backend) {
  const auto facts = backend.device();
  const auto targets = ranks.all_gather(backend.target(), "the kinds of the ranks' cards");
  const auto ids = ranks.all_gather(facts.id, "the ids of the ranks' cards");
  const auto free_bytes =
      ranks.all_gather(std::to_string(facts.free_bytes), "the free memory of the ranks' cards");
  std::vector<Card> cards;
  for (std::size_t rank = 0; rank < targets.size(); ++rank)
    cards.push_back({targets[rank], ranks.hosts()[rank] + "\n" + ids[rank], std::stoull(free_bytes[rank])});
  return cards;
}

// The first two ranks that share a card; equal where none do.
std::pair<std::size_t, std::size_t> sharers(const std::vector<Card>& cards) {
  for (std::size_t second = 1; second < cards.size(); ++second) {
    for (std::size_t first = 0; first < second; ++first) {
      if (cards[first].place == cards[second].place) return {first, second};
    }
  }
  return {0, 0};
}

void require_one_kind(const Ranks& ranks, const std::vector<Card>& cards) {
  for (std::size_t rank = 1; rank < cards.size(); ++rank) {
    if (cards[rank].target != cards[0].target)
      throw_refused(name_of(ranks, 0) + " has " + cards[0].target + " and " + name_of(ranks, rank) + " " +
                    cards[rank].target + ": cards of two kinds round differently; give all ranks one kind");
  }
}

// Whether hidden rows go over NCCL.
bool choose_nccl(const ComputeFlags& flags, const Ranks& ranks, const std::vector<Card>& cards) {
  const bool wanted = flags.transport == "nccl" || (flags.transport == "auto" && nccl_built());
  if (!wanted || ranks.size() == 1) return false;
  const auto [first, second] = sharers(cards);
  if (first == second || nccl_shares_devices()) return true;
  throw_refused(
      name_of(ranks, first) + " and rank " + std::to_string(second) +
      " share a card, and NCCL links cards: start one rank a card (CUDA_VISIBLE_DEVICES, or --gpus-per-task "
      "under Slurm), say --transport mpi, or set NCCL_MULTI_RANK_GPU_ENABLE=1 with NCCL 2.30 or later "
      "(here: " +
      nccl_version() + ")");
}

Processor make_cuda(ComputeFlags& flags, Ranks& ranks) {
  Processor processor;
  processor.backend = ranks.together("making the CUDA backend", [&] {
    if (ranks.root() && (flags.threads != 0 || !flags.simd.empty()))
      ranks.log().warn("--threads and --simd are for the CPU, and the ranks compute on cards");
    flags.threads = 1;
    const int count = cuda_device_count();
    if (count < 1) throw_refused("--device cuda: " + why_no_cuda());
    return make_cuda_backend({.device = local_rank(ranks) % count,
                              .compute = flags.compute_mode(Compute::bf16),
                              .graphs = flags.graphs != "off",
                              .warn = [&log = ranks.log()](const std::string& text) { log.warn(text); }});
  });
  const auto cards = gather_cards(ranks, *processor.backend);
  const bool nccl = ranks.together("choosing how hidden rows go", [&] {
    require_one_kind(ranks, cards);
    return choose_nccl(flags, ranks, cards);
  });
  for (const auto& card : cards) {
    const auto sharing =
        std::count_if(cards.begin(), cards.end(), [&](const Card& each) { return each.place == card.place; });
    processor.free_bytes.push_back(card.free_bytes / static_cast<std::uint64_t>(sharing));
  }
  if (nccl) ranks.link_devices(processor.backend->device().stream);
  return processor;
}

void say_which(const ComputeFlags& flags, Ranks& ranks, const Backend& backend, const std::string& why) {
  if (!ranks.root() || flags.device == "cpu") return;
  std::string line = "device: " + backend.name() + ", " + backend.target() + why;
  if (backend.name() == "cuda" && ranks.size() > 1) line += "; hidden rows go over " + ranks.carried_by();
  ranks.log().line(line);
}

}  // namespace

void Processor::close() {
  if (!backend) return;
  const auto released = backend->released();
  backend.reset();
  released();
}

Processor make_processor(ComputeFlags& flags, Ranks& ranks) {
  std::string why;
  Processor processor;
  if (choose_cuda(flags, ranks, why)) {
    processor = make_cuda(flags, ranks);
  } else {
    ranks.together("reading --transport", [&] {
      if (flags.transport == "nccl")
        throw_usage("--transport nccl links cards, and the ranks compute on the CPU");
      return true;
    });
    processor.backend = make_cpu(flags, ranks);
  }
  say_which(flags, ranks, *processor.backend, why);
  return processor;
}

std::vector<std::uint64_t> kv_bytes(const ComputeFlags& flags, const Ranks& ranks, const Processor& processor,
                                    const Model& model, const Plan& plan) {
  std::vector<std::uint64_t> bytes;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    if (!flags.kv_memory.empty()) {
      bytes.push_back(parse_bytes(flags.kv_memory));
    } else if (processor.free_bytes.empty()) {
      const auto memory = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
      bytes.push_back(memory / 4 / static_cast<std::uint64_t>(ranks.ranks_on_this_host()));
    } else {
      // A quarter of what the weights leave is for rows under way.
      const auto weights = device_bytes(model.recipe, model.checkpoint.headers(), plan.ranks[rank],
                                        {.cuda = true, .compute = processor.backend->compute()});
      const auto left = processor.free_bytes[rank] - std::min(processor.free_bytes[rank], weights);
      bytes.push_back(left / 4 * 3);
    }
  }
  return bytes;
}

}  // namespace diffuse

#pragma once
// What the ranks compute on: the CPU, or a CUDA card a rank. One kind for all, for results are compared bit
// by bit.

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.hpp"
#include "cli/flags.hpp"
#include "cli/model.hpp"
#include "cli/ranks.hpp"
#include "slice/plan.hpp"

namespace diffuse {

struct Processor {
  std::unique_ptr<Backend> backend;
  std::vector<std::uint64_t> free_bytes;  // a rank each: memory of its card that it may fill; empty on CPUs

  // At the end of the work, when nothing of the backend's is held any more: throws what fails to be freed,
  // which a processor that is destroyed without it keeps to itself.
  void close();
};

// The processor that the flags ask for. Collective. On CPUs all ranks take the best SIMD target that all
// have, and flags.threads is filled in. `auto` takes CUDA where every rank has a card that answers. A rank
// takes the card of its number on its host among those that it sees (CUDA_VISIBLE_DEVICES); hidden rows then
// go over NCCL where the build has it, unless --transport says otherwise. Throws refused, with what is
// missing, where a rank has no card, where the cards are not of one kind, and where two ranks that NCCL is to
// link share one.
Processor make_processor(ComputeFlags& flags, Ranks& ranks);

// A rank each: bytes that the flags give it for keys and values, beside the weights that it is to load.
std::vector<std::uint64_t> kv_bytes(const ComputeFlags& flags, const Ranks& ranks, const Processor& processor,
                                    const Model& model, const Plan& plan);

}  // namespace diffuse

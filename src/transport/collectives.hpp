#pragma once
// What all ranks of a transport do together, before and after the pipeline and never inside it.
//
// Collective: every rank calls them in the same order. Built of sends and receives, so that each wait in them
// is for one peer, counts from that peer's last sign of life, and names it. At the deadline an Error (io)
// says which of the collectives it was and what for. A rank that is merely slow is waited for.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "transport/transport.hpp"

namespace diffuse {

// Everybody's bytes on every rank, in the order of ranks, by way of rank 0. `what` is what is gathered: "the
// hosts' names".
std::vector<std::vector<std::byte>> all_gather(Transport& transport, std::span<const std::byte> mine,
                                               const std::string& what);
std::vector<std::string> all_gather(Transport& transport, const std::string& mine, const std::string& what);

// The root's bytes on every rank; `mine` counts there only.
std::vector<std::byte> broadcast(Transport& transport, std::span<const std::byte> mine, int root,
                                 const std::string& what);

// Returns when every rank has called it.
void barrier(Transport& transport, const std::string& what);

}  // namespace diffuse

#pragma once
// What ranks do together over MPI before heartbeats run; inside src/transport/ only.
//
// Collective. Their deadline is flat, from the call: there are no signs of life yet, and nothing lies between
// the start of MPI and here that takes a rank time. Past it an Error (io) says who did not come, as far as
// can be known.

#include <mpi.h>

#include <chrono>
#include <string>
#include <vector>

#include "transport/mpi_thread.hpp"

namespace diffuse {

// The name of each rank's host. The first thing that ranks exchange, so that it tells rank 0 who has come.
std::vector<std::string> gather_hosts(MpiThread& thread, std::chrono::nanoseconds timeout);

// A copy of the thread's communicator, for one transport.
MPI_Comm new_communicator(MpiThread& thread, std::chrono::nanoseconds timeout);

}  // namespace diffuse

// Latency of a message there and back between two ranks, beside plain blocking MPI's, and the processor time
// of ranks that only wait. Rank 0 prints.

#include <mpi.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "transport/collectives.hpp"
#include "transport/mpi.hpp"

namespace diffuse {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Rank 0 pauses between rounds as a rank does that computes, so the peer's wait is a long one.
void ping_pong(Transport& transport, std::size_t size, int rounds, std::chrono::microseconds pause) {
  std::vector<std::byte> bytes(size);
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    if (transport.rank() == 0) {
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
      const auto begin = Clock::now();
      transport.send_now(1, Channel::carry, bytes, {"ping"});
      transport.receive_now(1, Channel::carry, bytes, {"pong"});
      times.push_back(microseconds_since(begin));
    } else if (transport.rank() == 1) {
      transport.receive_now(0, Channel::carry, bytes, {"ping"});
      transport.send_now(0, Channel::carry, bytes, {"pong"});
    }
  }
  if (transport.rank() != 0) return;
  std::sort(times.begin(), times.end());
  std::printf("%8zu bytes, pause %6lld us: half a round trip %8.1f us (median), %8.1f us (90 %%)\n", size,
              static_cast<long long>(pause.count()), times[times.size() / 2] / 2,
              times[times.size() * 9 / 10] / 2);
}

void plain_ping_pong(MPI_Comm communicator, int rank, std::size_t size, int rounds) {
  std::vector<std::byte> bytes(size);
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = Clock::now();
    for (int direction = 0; direction < 2; ++direction) {
      if (rank == direction)
        MPI_Send(bytes.data(), static_cast<int>(size), MPI_BYTE, 1 - rank, 99, communicator);
      else if (rank < 2)
        MPI_Recv(bytes.data(), static_cast<int>(size), MPI_BYTE, 1 - rank, 99, communicator,
                 MPI_STATUS_IGNORE);
    }
    times.push_back(microseconds_since(begin));
  }
  if (rank != 0) return;
  std::sort(times.begin(), times.end());
  std::printf("%8zu bytes, blocking MPI:    half a round trip %8.1f us (median)\n", size,
              times[times.size() / 2] / 2);
}

void idle(Transport& transport) {
  const double before = processor_seconds();
  std::vector<std::byte> bytes(8);
  if (transport.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    for (int peer = 1; peer < transport.size(); ++peer)
      transport.send_now(peer, Channel::control, bytes, {"go"});
  } else {
    transport.receive_now(0, Channel::control, bytes, {"go"});
  }
  const auto all = all_gather(transport, std::to_string((processor_seconds() - before) / 3 * 100), "loads");
  if (transport.rank() == 0)
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      std::printf("rank %zu %s: %.5s %% of a core\n", rank, rank == 0 ? "asleep" : "waiting",
                  all[rank].c_str());
}

}  // namespace
}  // namespace diffuse

int main() {
  diffuse::MpiSession session;
  const auto transport = diffuse::make_mpi_transport(session);
  for (const std::size_t size : {std::size_t{4} << 10, std::size_t{1} << 20}) {
    diffuse::plain_ping_pong(MPI_COMM_WORLD, session.rank(), size, 300);
    for (const int pause : {0, 1000, 10000})
      diffuse::ping_pong(*transport, size, pause < 5000 ? 300 : 100, std::chrono::microseconds(pause));
  }
  diffuse::idle(*transport);
  return 0;
}

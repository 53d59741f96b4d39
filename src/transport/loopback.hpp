#pragma once
// Ranks as threads of one process: the transport of tests, and of a run without mpirun.
//
// As strict as the strictest transport behind the seam: a send is done when its receiver has taken the
// message, never before, so a pipeline that counts on buffering hangs here and is found by the deadline.
// Sizes must agree; a receive that names another size than the message has is an internal error naming both.
//
// Sign of life: a rank is alive while its thread is outside of a wait. A rank that waits is as alive as the
// one it waits for, so a circle of waits runs into the deadline, and a slow rank at the end of a chain does
// not.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "transport/transport.hpp"

namespace diffuse {

// What happens to a message; asked once for each, in the sender's thread.
struct LoopbackFate {
  bool drop = false;                  // the sender thinks that it arrived
  std::chrono::nanoseconds delay{0};  // it arrives this much later
};

struct LoopbackOptions {
  std::chrono::nanoseconds timeout = std::chrono::seconds(300);
  // `index` counts the messages of one (from, to, channel) from 0.
  std::function<LoopbackFate(int from, int to, Channel channel, std::uint64_t index)> fate;
};

// Owns the queues; the endpoints keep it alive.
class LoopbackNetwork {
 public:
  explicit LoopbackNetwork(int ranks, LoopbackOptions options = {});
  ~LoopbackNetwork();

  // Once a rank. An endpoint that is destroyed gives no more signs of life.
  std::unique_ptr<Transport> endpoint(int rank);

  // As if the rank's process were stopped: no more signs of life, and what it sends from now on goes nowhere.
  void die(int rank);

 private:
  struct State;
  class Endpoint;
  std::shared_ptr<State> state_;
};

}  // namespace diffuse

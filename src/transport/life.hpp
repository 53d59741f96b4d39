#pragma once
// When a rank was last known to get on with its work, directly or through the rank that it waits for. Pure.

#include <chrono>
#include <span>
#include <string>

namespace diffuse {

using LifeClock = std::chrono::steady_clock;

// What is known of a rank: when it last gave a sign of itself, and what it was doing then.
struct LifeState {
  LifeClock::time_point seen{};
  int waits_for = -1;  // -1: it works
  LifeClock::time_point waits_since{};
};

struct LastLife {
  LifeClock::time_point time{};
  int silent = -1;                      // the rank in the chain of waits that decides
  LifeClock::time_point silent_seen{};  // when it was seen
  bool circle = false;                  // the chain comes back to itself
};

// A rank that works was alive when it was seen. One that waits is as alive as the one it waits for, or as its
// wait is young, and in no case later than it was seen. So a chain of waits that ends in a working rank is
// alive, however long it is, and a circle ages.
LastLife last_life(int rank, std::span<const LifeState> states);

// For a wait for `peer` since `begin` that has run into its deadline: "waited 300 s for rank 2 (host node3):
// layer 12 of request 'a7'; …". `purpose` and `hosts` may be empty.
std::string describe_silence(LifeClock::time_point now, LifeClock::time_point begin, int peer,
                             const LastLife& life, std::span<const std::string> hosts,
                             const std::string& purpose);

}  // namespace diffuse

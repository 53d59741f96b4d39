#pragma once
// Which messages a descriptor makes each rank send and receive, and how large they are. Pure.

#include <cstdint>
#include <vector>

#include "schedule/step.hpp"

namespace diffuse {

// The transport's channels, as the schedule sees them.
enum class Lane : std::uint8_t { control, carry, result };

struct MessageSizes {
  std::int64_t descriptor = sizeof(Descriptor);
  std::int64_t carry_row = 0;    // bytes a row of the carry
  std::int64_t result_step = 0;  // bytes of a step's answer, and more for each sample
  std::int64_t result_sample = 0;
  std::int64_t trace_position = 0;  // bytes of digests a stage and position, where a release asks for them
};

struct Exchange {
  bool send = false;
  int peer = 0;
  Lane lane = Lane::control;
  std::int64_t bytes = 0;
  bool operator==(const Exchange&) const = default;
};

// What `rank` of `stages` exchanges because of `descriptor`, in the order in which it does: descriptors, then
// what the stage receives before it works, then what it sends after it. Rank 0 receives answers at the end,
// and takes them later, in this same order over all descriptors. One stage exchanges nothing with itself.
std::vector<Exchange> expected_messages(int rank, int stages, const Descriptor& descriptor,
                                        const MessageSizes& sizes);

}  // namespace diffuse

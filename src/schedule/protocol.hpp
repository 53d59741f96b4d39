#pragma once
// Which messages a descriptor makes each rank send and receive, and how large they are. Pure.

#include <cstdint>
#include <vector>

#include "schedule/step.hpp"

namespace diffuse {

// The transport's channels, as the schedule sees them.
enum class Lane : std::uint8_t { control, carry, result, memory };

struct MessageSizes {
  std::int64_t descriptor = sizeof(Descriptor);
  std::int64_t carry_row = 0;    // bytes a row of the carry
  std::int64_t result_step = 0;  // bytes of a step's answer, and more for each sample
  std::int64_t result_sample = 0;
  std::int64_t input_element = 4;   // bytes an element of what is encoded
  std::int64_t memory_row = 0;      // and a row of what comes of it
  std::int64_t trace_position = 0;  // bytes of digests a stage and position, where a release asks for them
};

struct Exchange {
  bool send = false;
  int peer = 0;
  Lane lane = Lane::control;
  std::int64_t bytes = 0;
  bool after = false;  // sent once the rank has done its work
  bool later = false;  // received when a sequence of it is admitted
  bool operator==(const Exchange&) const = default;
};

// The ranks of a run: its stages, and those behind them that encode.
struct Places {
  int stages = 1;
  std::vector<int> encoders = {};  // the ranks that encode
  int ranks() const;
  bool takes_part(int rank) const;  // it holds a stage, or encodes
};

// What `rank` exchanges because of `descriptor`, in the order in which it does: descriptors, then what it
// receives before it works, then what it sends after it. Rank 0 receives answers at the end, and takes them
// later, in this same order over all descriptors. One stage exchanges nothing with itself. Memories have a
// lane of their own, for nobody waits for them before an admission: each stage knows from the descriptors in
// which order a rank's batches come.
std::vector<Exchange> expected_messages(int rank, const Places& places, const Descriptor& descriptor,
                                        const MessageSizes& sizes);

}  // namespace diffuse

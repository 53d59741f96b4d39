#include "schedule/protocol.hpp"

#include "core/error.hpp"

namespace diffuse {

std::vector<Exchange> expected_messages(int rank, int stages, const Descriptor& descriptor,
                                        const MessageSizes& sizes) {
  if (rank < 0 || rank >= stages) throw_internal("schedule: messages of a rank that is no stage");
  std::vector<Exchange> exchanges;
  if (stages == 1) return exchanges;

  const int last = stages - 1;
  const bool step = descriptor.command == Command::step;
  const bool traced = descriptor.command == Command::release && descriptor.trace != 0;
  const std::int64_t carry = descriptor.rows() * sizes.carry_row;
  const std::int64_t answer = sizes.result_step + descriptor.samples() * sizes.result_sample;
  const std::int64_t digests = descriptor.reserved_tokens * sizes.trace_position;

  if (rank == 0) {
    for (int stage = 1; stage < stages; ++stage)
      exchanges.push_back({true, stage, Lane::control, sizes.descriptor});
    if (step) {
      exchanges.push_back({true, 1, Lane::carry, carry});
      exchanges.push_back({false, last, Lane::result, answer});
    }
    if (traced)
      for (int stage = 1; stage < stages; ++stage) exchanges.push_back({false, stage, Lane::result, digests});
    return exchanges;
  }

  exchanges.push_back({false, 0, Lane::control, sizes.descriptor});
  if (step) {
    exchanges.push_back({false, rank - 1, Lane::carry, carry});
    if (rank == last)
      exchanges.push_back({true, 0, Lane::result, answer});
    else
      exchanges.push_back({true, rank + 1, Lane::carry, carry});
  }
  if (traced) exchanges.push_back({true, 0, Lane::result, digests});
  return exchanges;
}

}  // namespace diffuse

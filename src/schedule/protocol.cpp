#include "schedule/protocol.hpp"

#include "core/error.hpp"

namespace diffuse {
namespace {

// A batch's inputs go to the encoder's rank where that is another one, its memories from there to every
// stage: to rank 0 as an answer, for it must not wait for them.
std::vector<Exchange> encode_messages(int rank, const Places& places, const Descriptor& descriptor,
                                      const MessageSizes& sizes) {
  const bool remote = places.encoder >= places.stages;
  const std::int64_t inputs = descriptor.input_elements() * sizes.input_element;
  const std::int64_t memories = descriptor.rows() * sizes.memory_row;
  std::vector<Exchange> exchanges;
  if (rank == 0) {
    for (int peer = 1; peer < places.ranks(); ++peer)
      exchanges.push_back({true, peer, Lane::control, sizes.descriptor});
    if (remote) {
      exchanges.push_back({true, places.encoder, Lane::control, inputs});
      exchanges.push_back({false, places.encoder, Lane::result, memories});
    } else {
      for (int stage = 1; stage < places.stages; ++stage)
        exchanges.push_back({true, stage, Lane::control, memories, true});
    }
    return exchanges;
  }
  exchanges.push_back({false, 0, Lane::control, sizes.descriptor});
  if (rank < places.stages) {
    exchanges.push_back({false, places.encoder, Lane::control, memories});
    return exchanges;
  }
  exchanges.push_back({false, 0, Lane::control, inputs});
  for (int stage = 0; stage < places.stages; ++stage)
    exchanges.push_back({true, stage, stage == 0 ? Lane::result : Lane::control, memories, true});
  return exchanges;
}

}  // namespace

std::vector<Exchange> expected_messages(int rank, const Places& places, const Descriptor& descriptor,
                                        const MessageSizes& sizes) {
  const int stages = places.stages;
  if (rank < 0 || rank >= places.ranks()) throw_internal("schedule: messages of a rank that takes no part");
  if (descriptor.command == Command::encode) return encode_messages(rank, places, descriptor, sizes);

  std::vector<Exchange> exchanges;
  const int last = stages - 1;
  const bool step = descriptor.command == Command::step;
  const bool traced = descriptor.command == Command::release && descriptor.trace != 0;
  // The rank of an encoder alone hears of batches and of the end.
  const int told = descriptor.command == Command::finish ? places.ranks() : stages;
  const std::int64_t carry = descriptor.rows() * sizes.carry_row;
  const std::int64_t answer = sizes.result_step + descriptor.samples() * sizes.result_sample;
  const std::int64_t digests = descriptor.reserved_tokens * sizes.trace_position;

  if (rank == 0) {
    for (int peer = 1; peer < told; ++peer)
      exchanges.push_back({true, peer, Lane::control, sizes.descriptor});
    if (step && stages > 1) {
      exchanges.push_back({true, 1, Lane::carry, carry, true});
      exchanges.push_back({false, last, Lane::result, answer});
    }
    if (traced)
      for (int stage = 1; stage < stages; ++stage) exchanges.push_back({false, stage, Lane::result, digests});
    return exchanges;
  }
  if (rank >= told) return exchanges;

  exchanges.push_back({false, 0, Lane::control, sizes.descriptor});
  if (rank >= stages) return exchanges;
  if (step) {
    exchanges.push_back({false, rank - 1, Lane::carry, carry});
    if (rank == last)
      exchanges.push_back({true, 0, Lane::result, answer, true});
    else
      exchanges.push_back({true, rank + 1, Lane::carry, carry, true});
  }
  if (traced) exchanges.push_back({true, 0, Lane::result, digests, true});
  return exchanges;
}

}  // namespace diffuse

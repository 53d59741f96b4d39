#include "schedule/protocol.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace diffuse {
namespace {

// A batch's inputs go to the rank that encodes where that is another one, its memories from there to every
// other stage.
std::vector<Exchange> encode_messages(int rank, const Places& places, const Descriptor& descriptor,
                                      const MessageSizes& sizes) {
  const int encoder = descriptor.encoder;
  const std::int64_t inputs = descriptor.input_elements() * sizes.input_element;
  const std::int64_t memories = descriptor.rows() * sizes.memory_row;
  std::vector<Exchange> exchanges;
  if (rank == 0) {
    for (int peer = 1; peer < places.ranks(); ++peer)
      if (peer < places.stages || peer == encoder)
        exchanges.push_back({true, peer, Lane::control, sizes.descriptor});
    if (encoder != 0) exchanges.push_back({true, encoder, Lane::control, inputs});
  } else if (rank < places.stages || rank == encoder) {
    exchanges.push_back({false, 0, Lane::control, sizes.descriptor});
    if (rank == encoder) exchanges.push_back({false, 0, Lane::control, inputs});
  }
  if (rank == encoder) {
    for (int stage = 0; stage < places.stages; ++stage)
      if (stage != rank) exchanges.push_back({true, stage, Lane::memory, memories, true});
  } else if (rank < places.stages) {
    exchanges.push_back({false, encoder, Lane::memory, memories, false, true});
  }
  return exchanges;
}

}  // namespace

int Places::ranks() const {
  return encoders.empty() ? stages : std::max(stages, *std::ranges::max_element(encoders) + 1);
}

bool Places::takes_part(int rank) const {
  return rank < stages || std::ranges::find(encoders, rank) != encoders.end();
}

std::vector<Exchange> expected_messages(int rank, const Places& places, const Descriptor& descriptor,
                                        const MessageSizes& sizes) {
  const int stages = places.stages;
  if (rank < 0 || rank >= places.ranks()) throw_internal("schedule: messages of a rank that takes no part");
  if (descriptor.command == Command::encode) return encode_messages(rank, places, descriptor, sizes);

  std::vector<Exchange> exchanges;
  const int last = stages - 1;
  const bool step = descriptor.command == Command::step;
  const bool traced = descriptor.command == Command::release && descriptor.trace != 0;
  // A rank that only encodes hears of its batches and of the end.
  const auto told = [&](int peer) {
    return peer < stages || (descriptor.command == Command::finish && places.takes_part(peer));
  };
  const std::int64_t carry = descriptor.rows() * sizes.carry_row;
  const std::int64_t answer = sizes.result_step + descriptor.samples() * sizes.result_sample;
  const std::int64_t digests = descriptor.reserved_tokens * sizes.trace_position;

  if (rank == 0) {
    for (int peer = 1; peer < places.ranks(); ++peer)
      if (told(peer)) exchanges.push_back({true, peer, Lane::control, sizes.descriptor});
    if (step && stages > 1) {
      exchanges.push_back({true, 1, Lane::carry, carry, true});
      exchanges.push_back({false, last, Lane::result, answer});
    }
    if (traced)
      for (int stage = 1; stage < stages; ++stage) exchanges.push_back({false, stage, Lane::result, digests});
    return exchanges;
  }
  if (!told(rank)) return exchanges;

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

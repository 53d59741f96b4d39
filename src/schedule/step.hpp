#pragma once
// What rank 0 tells every stage, ahead of the data: small messages of a fixed size, so that every send and
// receive that follows has a size known before it starts. Trivially copyable; they travel as they are between
// ranks of one build.

#include <array>
#include <cstdint>
#include <type_traits>

namespace diffuse {

// At most this many sequences take part in one step.
inline constexpr std::int32_t kMaxEntries = 128;

enum class Command : std::uint8_t {
  encode,   // a batch of inputs becomes memories, one an entry, which the encoder's rank sends to every stage
            // in one message; stages keep them, in order, until the sequences are admitted
  admit,    // a sequence takes a slot: its key-value pages are reserved on every stage
  step,     // rows run through the stages; the last one samples where an entry says so
  release,  // a sequence leaves its slot; with `trace`, each stage first sends the digests of its layers to
            // rank 0
  finish,   // no more work: the stage reports and leaves its loop
};

// Consecutive rows of one sequence in a step. Of an encode: one input.
struct Entry {
  std::int32_t slot = 0;
  std::int32_t rows = 0;            // encode: of its memory
  std::int64_t first_position = 0;  // encode: elements of the input, of 4 bytes each
  std::uint8_t sample = 0;          // the last row's logits choose the next token
  std::uint8_t padding[7] = {};
};

// How a sequence's tokens are chosen; travels once, with its admission.
struct SampleSpec {
  double temperature = 0;  // 0: greedy
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;  // other than 1: the prompt's ids follow the descriptor to the last stage
  std::uint64_t seed = 0;
  std::int64_t request = 0;  // with seed, sample and position: the key of the random number
  std::int32_t sample = 0;
  std::int32_t top_k = 0;      // 0: all
  std::int32_t logprobs = -1;  // how many alternatives to report beside the chosen token's; -1: none at all
  std::int32_t rules = 0;      // numbers of packed TokenRules that follow the prompt's ids to the last stage

  // The last stage chooses by what came before: it is told the prompt and the rules.
  bool reads_history() const { return repetition_penalty != 1 || rules > 0; }
};

struct Descriptor {
  Command command = Command::finish;
  std::uint8_t trace = 0;            // release: send digests first
  std::uint16_t entries = 0;         // step, encode: how many of `entry` are used
  std::int32_t slot = 0;             // admit, release
  std::uint64_t number = 0;          // steps count up from 1; for messages and reports
  std::int64_t prompt_tokens = 0;    // admit
  std::int64_t reserved_tokens = 0;  // admit: prompt + most new tokens; release: positions that were run
  std::int64_t memory_rows = 0;      // admit: of the sequence's memory, the oldest not yet taken; 0: none
  SampleSpec sampling;               // admit
  std::array<Entry, kMaxEntries> entry{};

  std::int64_t rows() const {
    std::int64_t sum = 0;
    for (int i = 0; i < entries; ++i) sum += entry[static_cast<std::size_t>(i)].rows;
    return sum;
  }
  std::int64_t input_elements() const {  // of an encode
    std::int64_t sum = 0;
    for (int i = 0; i < entries; ++i) sum += entry[static_cast<std::size_t>(i)].first_position;
    return sum;
  }
  std::int64_t samples() const {
    std::int64_t sum = 0;
    for (int i = 0; i < entries; ++i) sum += entry[static_cast<std::size_t>(i)].sample;
    return sum;
  }
};
static_assert(std::is_trivially_copyable_v<Descriptor>);

}  // namespace diffuse

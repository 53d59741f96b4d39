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
  encode,   // a batch of inputs becomes memories, one an entry, which the rank that encodes sends to every
            // stage in one message; stages keep them until the sequences are admitted
  admit,    // a lane of a sequence takes a slot
  step,     // rows run through the stages; the last one samples where an entry says so
  release,  // a lane leaves its slot; with `trace`, each stage first sends the digests of its layers to
            // rank 0
  finish,   // no more work: the stage reports and leaves its loop
};

// Consecutive rows of one lane of a sequence in a step. Of an encode: one input.
//
// A sequence has one lane, or several that share its prompt and are decoded side by side: beams, or samples
// of one window. The first lane runs the prompt. From then on a lane's entry may go on from another lane of
// its sequence: it takes over what that one holds of the positions before `first_position`, as it was before
// the step.
//
// A guided sequence has two lanes that never part: the second runs every row of the first, also the prompt's,
// without the sequence's memory; its entry stands behind that of the first.
struct Entry {
  std::int32_t slot = 0;            // encode: the sequence
  std::int32_t rows = 0;            // encode: of its memory
  std::int64_t first_position = 0;  // encode: elements of the input, of 4 bytes each
  std::int32_t from = -1;           // the slot that it goes on from; -1: its own
  std::int32_t token = -1;          // of a sequence with lanes: the id of the row, for who has no ids
                                    // encode: the request, for messages
  std::uint8_t sample = 0;          // so many tokens are chosen from the last row's logits
  std::uint8_t guides = 0;          // the last row's logits guide the choice of the entry before it
  std::uint8_t padding[6] = {};
};

// How a sequence's tokens are chosen; travels once, with its admission.
struct SampleSpec {
  double temperature = 0;  // 0: greedy
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;  // other than 1: the prompt's ids follow the descriptor to the last stage
  double guidance = 1;            // of a guided sequence: how much
  std::uint64_t seed = 0;
  std::int64_t request = 0;  // with seed, sample and position: the key of the random number
  std::int32_t sample = 0;
  std::int32_t top_k = 0;      // 0: all
  std::int32_t logprobs = -1;  // how many alternatives to report beside the chosen token's; -1: none at all
  std::int32_t rules = 0;      // numbers of packed ChoiceRules that follow the prompt's ids to the last stage
  // Not 0: nothing is chosen; so many of the likeliest tokens that the rules leave are answered instead, with
  // their log-probabilities. Of beams.
  std::int32_t candidates = 0;
  // Not 0: a row's logits are those of so many codebooks, and an id of each is chosen.
  std::int32_t codebooks = 0;
  // The probability of `probe_token` behind the row at `probe_position` comes with the first chosen token.
  std::int32_t probe_position = -1;  // -1: none
  std::int32_t probe_token = -1;
  // Not 0: the prompt's rows are watched. Before its digests, a release sends the cross-attention of the
  // run's watched heads in this stage's layers, [heads, prompt, memory rows] of f32; the last stage behind it
  // how likely each id of the prompt was behind those before it, among the ids below this number, [prompt] of
  // f32 (0 for the first, and for an id that is not below).
  std::int32_t watched_ids = 0;

  // The last stage chooses by what came before: it is told the prompt and the rules.
  bool reads_history() const { return repetition_penalty != 1 || rules > 0 || watched_ids > 0; }
  // Alternatives that are answered beside each chosen token.
  std::int32_t alternatives() const { return candidates > 0 ? candidates : logprobs > 0 ? logprobs : 0; }
};

// Of iterative refinement: a stream is a lane of one row a latent token, and its steps are passes over a run
// of these rows, at a time of the model's clock.
struct Refining {
  double timestep = 0;                    // step
  float extrapolation = 0, balance = 0;   // step: see RefinementPass
  float guidance = 1;                     // admit; of all branches of a request
  std::int32_t step = 0;                  // step: of the scheduler's, from 0
  std::int32_t branch = 0;                // step
  std::array<std::int32_t, 3> grid = {};  // admit: latent tokens along frames, height and width
};

struct Descriptor {
  Command command = Command::finish;
  std::uint8_t trace = 0;            // release: send digests first
  std::uint8_t keep_memory = 0;      // release: the slot's memory stays, for who is admitted there next
  std::uint8_t watched = 0;          // release: send what was watched first
  std::uint8_t no_memory = 0;        // admit: its memory is `memory_rows` rows of zeros, which nobody sends
  std::uint16_t entries = 0;         // step, encode: how many of `entry` are used
  std::int32_t slot = 0;             // admit, release
  std::int32_t memory_from = -1;     // admit: the slot whose memory it reads too; -1: that of `sequence`
  std::int32_t sequence = -1;        // admit: which was encoded, where it has a memory
  std::int32_t encoder = 0;          // encode: the rank that does
  std::uint64_t number = 0;          // steps count up from 1; for messages and reports
  std::int64_t prompt_tokens = 0;    // admit
  std::int64_t reserved_tokens = 0;  // admit: prompt + most new tokens; release: positions that were run
  std::int64_t memory_rows = 0;      // admit: of the sequence's memory; 0: none
  SampleSpec sampling;               // admit
  Refining refining;                 // admit, step
  std::array<Entry, kMaxEntries> entry{};

  // An admission of a slot whose memory is sent to it.
  bool brings_memory() const { return memory_rows > 0 && memory_from < 0 && no_memory == 0; }
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

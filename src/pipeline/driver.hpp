#pragma once
// Rank 0's loop: asks the schedule what to do, tells every stage, computes its own slice, and takes in what
// the last stage sampled. What ends a sequence is the caller's decision.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipeline/stage.hpp"
#include "schedule/policy.hpp"
#include "slice/encoder.hpp"
#include "transport/transport.hpp"

namespace diffuse {

// One sample of one request, as the pipeline runs it; or one pass over a window of one.
struct Sequence {
  // At least one id, all inside the vocabulary. Of a stack that walks codebooks (see SampleSpec::codebooks)
  // the ids of its rows, [rows, codebooks].
  std::vector<std::int32_t> prompt;
  std::int64_t max_new_tokens = 0;  // at least 1
  SampleSpec sampling;
  std::vector<std::int32_t> rules;  // packed ChoiceRules, sampling.rules of them
  // What the encoder is given, where the stack reads one: then `prompt` is what the answer starts with.
  // Called when it is encoded.
  std::function<std::shared_ptr<const EncoderInput>()> input;
  std::int64_t memory_rows = 0;
  // Lanes that are decoded side by side. Where the sampling asks for candidates they are beams, which the
  // prompt's last row has one answer for; else it has a token for each.
  std::int32_t lanes = 1;
  // A second lane runs every row beside the first, without the memory, and guides what is chosen: `lanes` is
  // 2, and an answer is one.
  bool guided = false;
  std::int32_t most_lanes = 0;   // reserved for it and for those that follow it, where that is more
  std::int64_t most_tokens = 0;  // of a lane
  // Of a sequence that is added: the one that has just ended and whose memory it reads too.
  std::optional<std::size_t> follows = {};
};

std::int64_t prompt_rows(const Sequence& sequence);
SequenceNeed need_of(const Sequence& sequence);

// How a sequence goes on: not at all, or with a token in each lane, behind what lane `from` holds. One lane
// goes on with the token that was chosen for it: `lanes` stays empty. A stack that walks codebooks goes on
// with `codes`.
struct Decision {
  struct Lane {
    std::int32_t token = -1;
    std::int32_t from = 0;
  };
  bool ended = false;
  std::vector<Lane> lanes = {};
  std::vector<std::int32_t> codes = {};  // [codebooks]
};

// Beams that go on with these tokens, each behind the lane in `sources`. Where there are fewer beams than
// lanes, the first goes on in the others too, and nobody looks there.
Decision go_on(std::span<const std::int32_t> tokens, std::span<const std::size_t> sources,
               std::int64_t lanes);

// See SampleSpec::watched_ids.
struct Watched {
  std::vector<float> weights;  // [watched heads, prompt, memory rows]
  std::vector<float> likely;   // [prompt]
};

struct DriverEvents {
  // Tokens were chosen for a sequence: one for each lane, one answer for the prompt of beams. An id of -1
  // means that the logits were not finite: it must end.
  std::function<Decision(std::size_t sequence, std::span<const ChosenToken> chosen)> on_chosen;
  // What was watched of a sequence that has ended; before on_done.
  std::function<void(std::size_t sequence, Watched watched)> on_watched = {};
  // The sequence has left the pipeline: it had ended, or the run is stopping and drops it; with tracing, the
  // digests of all layers: [depth + 1][positions], the positions of one lane after those of another.
  std::function<void(std::size_t sequence, std::vector<std::uint64_t> digests, std::int64_t positions)>
      on_done;
  // Asked after each of these: sequences to run too, numbered behind the ones before them. One that follows
  // another must come as soon as that one has ended.
  std::function<std::vector<Sequence>()> more = {};
  // Asked between steps; true stops the run at a safe point. What is unfinished then was never reported done.
  std::function<bool()> stop = {};
  std::function<void(const std::string& state)> progress = {};
};

struct DriverReport {
  bool stopped = false;
  std::int32_t groups = 1;
  std::vector<StageReport> stages;
  std::int64_t encode_ns = 0;  // spent on encoding, the sum of all ranks that do
  std::uint64_t encoded_rows = 0;
  std::int64_t wall_ns = 0;
  std::uint64_t prompt_rows = 0;
  std::uint64_t sampled = 0;
  std::uint64_t steps = 0;
};

// What the driver knows of the run beside its sequences.
struct DriverPlan {
  // How many layers of digests each stage holds: its own, and one more on the first.
  std::vector<std::int64_t> layers;
  std::vector<WatchedHead> watched;  // as the stages' executors have them
  bool trace = false;
};

DriverReport drive(Stage& stage, Transport& transport, const ScheduleConfig& schedule,
                   const std::vector<Sequence>& sequences, const DriverPlan& plan,
                   const DriverEvents& events);

}  // namespace diffuse

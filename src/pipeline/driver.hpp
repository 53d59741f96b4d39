#pragma once
// Rank 0's loop: asks the schedule what to do, tells every stage, computes its own slice, and takes in what
// the last stage sampled. What ends a sequence is the caller's decision.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/stage.hpp"
#include "schedule/policy.hpp"
#include "slice/encoder.hpp"
#include "transport/transport.hpp"

namespace diffuse {

// One sample of one request, as the pipeline runs it.
struct Sequence {
  std::vector<std::int32_t> prompt;  // at least one id, all inside the vocabulary
  std::int64_t max_new_tokens = 0;   // at least 1
  SampleSpec sampling;
  std::vector<std::int32_t> rules;  // packed TokenRules, sampling.rules of them
  // What the encoder is given, where the stack reads one: then `prompt` is what the answer starts with.
  std::shared_ptr<const EncoderInput> input;
  std::int64_t memory_rows = 0;
};

struct DriverEvents {
  // A token was chosen for a sequence; true ends it. An id of -1 means that the logits were not finite: it
  // must end.
  std::function<bool(std::size_t sequence, const SampledToken& token)> on_token;
  // The sequence has left the pipeline: it had ended, or the run is stopping and drops it; with tracing, the
  // digests of all layers: [depth + 1][positions].
  std::function<void(std::size_t sequence, std::vector<std::uint64_t> digests, std::int64_t positions)>
      on_done;
  // Asked between steps; true stops the run at a safe point. What is unfinished then was never reported done.
  std::function<bool()> stop;
  std::function<void(const std::string& state)> progress;
};

struct DriverReport {
  bool stopped = false;
  std::int32_t groups = 1;
  std::vector<StageReport> stages;
  std::int64_t encode_ns = 0;  // spent on encoding, wherever that was
  std::uint64_t encoded_rows = 0;
  std::int64_t wall_ns = 0;
  std::uint64_t prompt_rows = 0;
  std::uint64_t sampled = 0;
  std::uint64_t steps = 0;
};

// Where the encoder is: on rank 0, on a rank of its own, or nowhere (rank -1).
struct EncoderPlace {
  std::int32_t rank = -1;
  EncoderRunner* runner = nullptr;  // on rank 0
  std::int64_t hidden = 0;          // of its rows
};

// `layers` states how many layers of digests each stage holds (its own, and one more on the first).
DriverReport drive(Stage& stage, Transport& transport, const ScheduleConfig& schedule,
                   const std::vector<Sequence>& sequences, const std::vector<std::int64_t>& layers,
                   const EncoderPlace& encoder, bool trace, const DriverEvents& events);

}  // namespace diffuse

#pragma once
// Runs a schedule without a model or a network: a discrete-event simulation of the ranks and of every message
// between them, driven by the very policy that drives a real run. It finds deadlocks, messages without a
// partner and broken promises of the policy, and tells how busy the stages are.
//
// Rank 0 is the driver and stage 0 and has one compute thread; every other rank obeys the descriptors that it
// receives, in order. A rank that encodes goes on with a batch a piece at a time: between steps, and while it
// waits for something. A message takes a hop and is received in order within (sender, receiver, lane).

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "schedule/policy.hpp"
#include "schedule/protocol.hpp"

namespace diffuse {

struct StageCost {
  double step = 1;  // seconds a step
  double row = 0;   // seconds more for each row
};

struct SimulationConfig {
  std::vector<StageCost> stages;  // one each, at least one
  std::vector<int> encoders;      // as in Places
  StageCost encode;               // of a batch, and of each row of memory
  double hop_seconds = 0;         // of a message, beside its bytes
  double bytes_per_second = 0;    // 0: without limit
  int send_buffers = 0;           // most carries, and answers, that one rank has under way to another; 0: any
  bool trace = false;             // releases ask for digests
  MessageSizes sizes;
  // What a rank exchanges; empty: expected_messages. Tests put a faulty rank here.
  std::function<std::vector<Exchange>(int rank, const Descriptor& descriptor)> exchanges;
};

// The policy under test; bind_policy makes one from an AutoregressivePolicy, tests wrap faults around it.
struct PolicyHooks {
  std::function<std::vector<Action>()> next;
  std::function<void(const StepDone&)> on;
  std::function<bool()> finished;
  std::function<void(const Encoded&)> encoded = {};
  std::function<std::int64_t(std::size_t sequence)> memory_rows = {};
};
PolicyHooks bind_policy(AutoregressivePolicy& policy);

// Whether sequence `sequence` ends with its `sampled`th token (counted from 1).
using EndOracle = std::function<bool(std::size_t sequence, std::int64_t sampled)>;

struct SimulationReport {
  double makespan = 0;              // seconds
  std::vector<double> utilisation;  // of each rank's compute thread, over the makespan
  std::uint64_t steps = 0;
  std::int64_t rows = 0;
  std::int64_t samples = 0;
  std::vector<int> peak_carries;      // a rank: most carries that it had sent and that were not taken yet
  std::vector<std::string> problems;  // deadlock (with its circle), unmatched messages, sizes that differ, …
};

// `observe` sees each action and each result that the policy sees, in order; may be empty.
struct SimulationObserver {
  std::function<void(const Action&)> action;
  std::function<void(const StepDone&)> result;
  std::function<void(const Encoded&)> encoded = {};
};

SimulationReport simulate(const SimulationConfig& config, const PolicyHooks& policy, const EndOracle& ends,
                          const SimulationObserver& observe = {});

}  // namespace diffuse

#pragma once
// The schedule of iterative refinement: a request's picture goes through the whole stack at each of its
// scheduler steps, once for each guidance branch, whole or in patches. A pure policy: results in, actions
// out, the very ones that the pipeline of text knows; a simulator drives it as it drives that one.
//
// A pass is the rows of one patch of one branch at one step. Branches of a request are the lanes of its
// sequence, each with a slot of its own: they join behind the last one's pass, where the scheduler's step is
// made for the patch. So patch p of step t + 1 can start when the last branch's patch p of step t has come
// back; where a step is run whole, and at the step behind it, it waits for all patches. Passes are issued in
// the order in which they could have started, the branches of a patch one behind the other: what a pass finds
// in the state of its stage depends on the passes of its own stream before it alone, never on the number of
// stages.
//
// R streams (requests x branches x patches) keep N stages full where R >= N + B - 1: see docs/refinement.md.

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "schedule/policy.hpp"
#include "schedule/simulator.hpp"

namespace diffuse {

struct PatchSettings {
  std::int32_t patches = 1;
  std::int64_t whole_first = 0;  // steps at the start that are run whole
  std::int64_t whole_last = 0;   // and at the end
  bool operator==(const PatchSettings&) const = default;
};

// Rows of latent tokens where patches begin, and their end: [patches + 1], from 0 to all. Tokens lie line
// behind line; patches are cut between lines where there are at least as many lines as patches, else between
// tokens. Never more patches than tokens; sizes differ by one line, or token, at most. Throws internal where
// a number is below 1 or the lines do not divide the tokens.
std::vector<std::int64_t> patch_borders(std::int64_t lines, std::int64_t tokens, std::int32_t patches);

// Patches that fill what `streams` whole streams at once leave empty: ceil((stages + branches - 1) /
// streams).
std::int32_t filling_patches(std::int32_t stages, std::int32_t branches, std::int64_t streams);

struct RefinementNeed {
  std::int64_t steps = 1;
  std::int64_t first_step = 0;  // where it goes on; below steps
  std::int32_t branches = 1;
  std::vector<std::int64_t> borders;  // of its patches
  PatchSettings settings;             // the number of patches is that of the borders
  std::int64_t pages = 1;             // of keys and values, of all its branches

  bool whole(std::int64_t step) const {
    return borders.size() <= 2 || step < settings.whole_first || step >= steps - settings.whole_last;
  }
};

struct RefinementScheduleConfig {
  int stages = 1;
  std::int64_t kv_pages = 0;  // the budget; equal on all stages
};

// What a step of the schedule is: the descriptor's number leads to it.
struct ScheduledPass {
  std::size_t request = 0;
  std::int64_t step = 0;
  std::int32_t branch = 0;
  std::int32_t patch = 0;  // 0 of a whole step
  bool whole = true;
  bool joins = false;  // the last branch's: behind it the patch is stepped
};

class RefinementPolicy {
 public:
  // Throws internal on needs that make no sense.
  RefinementPolicy(const RefinementScheduleConfig& config, std::span<const RefinementNeed> needs);

  // Requests that need more than the whole budget; never run. Ascending.
  const std::vector<std::size_t>& unfit() const { return unfit_; }

  // Releases, then admissions, then at most one step. Empty: nothing can be done before the next result (or
  // finished()).
  std::vector<Action> next();

  // Of the step that next() has just given, or of one that is in flight.
  ScheduledPass pass(std::uint64_t number) const;

  // The oldest step in flight has ended: one flag, where it joined; not 0 where the request must end now.
  void on(const StepDone& done);

  // No further step starts; results in flight are still to be reported, then every slot is released.
  void cancel_running();

  bool finished() const;
  std::int32_t slots() const { return slots_; }  // every slot is below
  std::size_t in_flight() const { return flights_.size(); }

 private:
  struct Request {
    RefinementNeed need;
    std::vector<std::int32_t> slots;     // one a branch, while it is admitted
    std::int64_t step = 0;               // of the pass to be issued next
    std::int32_t branch = 0, patch = 0;  // of it
    std::vector<std::int64_t> stepped;   // [patches] steps that are done
    std::int64_t open = 0;               // its passes in flight
    std::uint64_t ready_since = 0;       // in numbers of results
    bool was_ready = false;
    bool ended = false;
  };
  struct Flight {
    std::uint64_t number = 0;
    ScheduledPass pass;
  };

  bool ready(const Request& request) const;
  void note_ready(Request& request);
  void admit_next(std::vector<Action>& actions);
  Run issue(std::size_t index);
  void advance(Request& request) const;

  RefinementScheduleConfig config_;
  std::vector<Request> requests_;
  std::vector<std::size_t> unfit_;
  std::deque<std::size_t> waiting_;
  std::vector<std::size_t> admitted_;
  std::vector<std::size_t> to_release_;
  std::vector<std::int32_t> free_slots_;  // highest last, so that the lowest is taken first
  std::deque<Flight> flights_;
  std::int32_t slots_ = 0;
  std::int64_t pages_in_use_ = 0;
  std::uint64_t next_number_ = 1;
  std::uint64_t clock_ = 0;
  bool stopping_ = false;
};

PolicyHooks bind_policy(RefinementPolicy& policy);

// How busy the stages are once they are full, where all passes last equally long: min(1, R / (N + B - 1)).
double full_share(int stages, std::int32_t branches, std::int64_t streams);

}  // namespace diffuse

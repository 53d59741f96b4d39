#pragma once
// The schedule of autoregressive work: which sequences are admitted, which rows run together, and when.
//
// A pure value: it does no I/O, reads no clock and starts no thread, so that the driver, a simulator and a
// test run the very same decisions. The driver on rank 0 asks for the next actions, carries them out in
// order, and reports each step's result:
//
//     while (!policy.finished()) {
//       report every result that has arrived, in order:   policy.on(StepDone{number, flags});
//       actions = policy.next();
//       if empty: wait for the oldest step's result, report it
//       else: carry them out (at most one of them is a Run)
//     }
//
// Every step is answered, also one that samples nothing (an answer of no ids): that bounds what is in flight.
// Steps end in the order of their numbers, 1, 2, 3, …
//
// How work is cut: sequences are taken by prompt length, ascending and stable. Prompts are prefilled in steps
// of at most `max_rows_per_step` rows; chunks of one prompt follow one another without waiting for a result,
// and several short prompts share a step. A prefilled sequence joins the smallest decode group; a group has
// one step in flight at a time. A place that falls free is refilled at once: as long as fewer than half of
// the places decode, chunks of prompts are steps of their own and go first; later they ride along with a
// group that is ready, as many rows as `cost` says that the group's step can bear.
//
// A sequence of several lanes decodes them in the same step, always: who drives decides over all of them
// before the next one. A guided one runs its prompt so too; a step may have a row more than max_rows_per_step
// for it. Sequences may be added while others run, also as the follower of one that has just
// ended: it is admitted at once, where that one was, and reads the same memory.
//
// Where sequences read an encoder, their inputs are encoded in batches, on one rank or on several at once: as
// soon as a place is free and no memory is at hand or on its way for it, and beyond that ahead of need while
// nothing else can be done. Encoded reports a batch's end; its sequences are admitted in the order in which
// that happens.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "schedule/encoding_queue.hpp"
#include "schedule/group_tuner.hpp"
#include "schedule/step.hpp"

namespace diffuse {

struct SequenceNeed {
  std::int64_t prompt_tokens = 0;   // at least 1
  std::int64_t max_new_tokens = 0;  // 0: the prompt is run, nothing is sampled
  std::int64_t memory_rows = 0;     // of the encoder's output that it reads; 0: none
  std::int32_t lanes = 1;
  // It has two lanes, of which the second runs beside the first from the prompt on, with a memory of its own
  // of one row.
  bool guided = false;
  // What is reserved from its admission on for it and those that follow it, where they may need more than it
  // does; of a follower not looked at.
  std::int32_t most_lanes = 0;
  std::int64_t most_tokens = 0;  // positions of a lane
};
// Pages of key-value memory that are reserved for it. Where lanes go on from one another, more than they
// fill: each may hold one page more for a moment.
std::int64_t pages_needed(const SequenceNeed& need, std::int64_t page_tokens);

// What a step costs on one stage, in any one unit of time; only ratios matter.
struct CostModel {
  double step = 1;    // fixed: reading the weights, launching
  double row = 0.02;  // each row more
  double hop = 0.02;  // from one stage to the next, not overlapped
};

struct ScheduleConfig {
  int stages = 1;
  std::int64_t max_rows_per_step = 256;  // the prefill chunk; a decode step may have max_group rows even so
  std::int32_t max_group = 16;           // most sequences of a decode step; at most kMaxEntries
  std::int32_t groups = 0;               // 0: chosen by `cost` among stages, stages + 1 and stages + 2
  bool tune_groups = false;              // where they are chosen: from there on by measuring (GroupTuner)
  std::int32_t max_in_flight = 0;        // steps; 0: as many as keep the stages busy, max(stages + 2, groups)
  std::int64_t kv_pages = 0;             // the budget of key-value memory; equal on all stages
  std::int64_t page_tokens = 16;
  std::int32_t most_lanes = 1;               // of a sequence
  std::vector<std::int32_t> encoders = {0};  // ranks that encode, see EncodingQueue
  std::int64_t encode_rows = 1024;           // rows of memory of a batch; one input may have more
  std::int32_t encode_inputs = 64;           // most inputs of a batch, at most kMaxEntries
  CostModel cost;
};

// `sequence` counts in the order given to the policy's constructor.
struct Admit {
  std::int32_t slot = 0;
  std::size_t sequence = 0;
  std::int32_t lane = 0;
  std::int32_t memory_from = -1;  // as in the descriptor
  bool no_memory = false;         // as there: the lane that guides
};
struct Run {
  Descriptor step;  // complete: command, number, entries. Decode entries stand before prefill entries.
};
struct Release {
  std::int32_t slot = 0;
  std::size_t sequence = 0;
  std::int32_t lane = 0;
  bool keep_memory = false;
};
using Action = std::variant<Encode, Admit, Run, Release>;

struct StepDone {
  std::uint64_t number = 0;
  // One flag an entry that samples, in the order of the entries: not 0 where the driver saw an end (end of
  // text, a stop string). Reaching max_new_tokens needs no flag. The lanes of a sequence end together.
  std::span<const std::uint8_t> finished;
  double seconds = 0;  // when the result came, of any clock; read where groups are tuned
};

class AutoregressivePolicy {
 public:
  // Throws internal on a config that makes no sense (no stage, no row a step, max_group out
  // of 1..kMaxEntries, …).
  AutoregressivePolicy(ScheduleConfig config, std::span<const SequenceNeed> needs);

  // Sequences that are never run: no prompt, a negative max_new_tokens, or more pages than the whole budget.
  // Ascending.
  const std::vector<std::size_t>& unfit() const { return unfit_; }

  // Another sequence, from now on; its number. There is a place for as many lanes as those have that were
  // given at first. Throws internal where it is unfit.
  std::size_t add(const SequenceNeed& need);
  // The same for one that takes the place of `ended`, whose release is not out yet. Throws internal where
  // that is not so, or where it needs more than was reserved.
  std::size_t follow(std::size_t ended, const SequenceNeed& need);

  // What to do now, in this order: releases (each with the admission of a follower behind it), batches to
  // encode, admissions, and at most one step. Empty: nothing can be done before the next result, the end of a
  // batch (or finished()).
  std::vector<Action> next();

  void on(const Encoded& encoded);  // throws internal where no batch is under way there
  bool encoding() const { return encoding_.under_way() > 0; }
  std::int64_t memory_rows(std::size_t sequence) const { return sequences_[sequence].need.memory_rows; }

  // The oldest step in flight has ended. Throws internal where number or flags do not fit it.
  void on(const StepDone& done);

  // A stop was asked for. After cancel_waiting, sequences that hold no slot are never admitted and the others
  // run to their end; after cancel_running no further step starts either: results in flight are still to be
  // reported, then every slot is released.
  void cancel_waiting();
  void cancel_running();

  // Everything was run and released (or cancelled and released).
  bool finished() const;

  std::int32_t groups() const { return active_groups_; }  // now
  std::int32_t slots() const { return slots_; }           // every slot is below
  std::int32_t max_in_flight() const { return max_in_flight_; }
  std::size_t in_flight() const { return flights_.size(); }
  std::size_t waiting() const {  // not admitted yet
    return ready_.size() + encoding_.waiting() + encoding_.under_way();
  }
  std::size_t admitted() const { return admitted_; }  // hold a slot now
  std::int64_t pages_in_use() const { return pages_in_use_; }

 private:
  struct Sequence {
    SequenceNeed need;
    std::int64_t pages = 0;           // reserved
    std::int64_t issued = 0;          // positions sent into the pipeline
    std::int64_t sampled = 0;         // tokens that came back
    std::vector<std::int32_t> slots;  // one a lane, while it is admitted
    std::optional<std::size_t> follower;
    bool ended = false;
  };
  struct Group {
    std::vector<std::size_t> members;
    bool in_flight = false;
  };
  struct Flight {
    std::uint64_t number = 0;
    std::int32_t group = -1;             // whose decode step it is, -1: none
    std::size_t decoding = 0;            // entries of that group in it
    bool prefill = false;                // it carries rows of prompts
    std::vector<std::size_t> sampling;   // sequences, one an entry, in entry order
    std::vector<std::size_t> unsampled;  // sequences whose prompt ends here and that want no token
  };

  bool fits(const SequenceNeed& need) const;
  void release(std::vector<Action>& actions, std::size_t index);
  void take_slots(std::vector<Action>& actions, std::size_t index, std::int32_t first_memory);
  std::size_t capacity() const;
  std::size_t lanes_of(const Group& group) const;
  bool can_admit() const;
  bool has_place(std::size_t index, std::int64_t more_lanes, std::int64_t more_pages) const;
  void queue(std::size_t index);
  bool worth_beginning(bool needed) const;
  void encode_next(std::vector<Action>& actions, bool idle);
  void admit_next(std::vector<Action>& actions);
  std::int64_t prefill_rows_at_hand() const;
  std::int32_t ready_group() const;
  void add_decode(Descriptor& step, Flight& flight, std::int32_t group);
  static void add_guided(Descriptor& step, const Sequence& sequence, std::int64_t rows, bool sample);
  void add_prefill(Descriptor& step, Flight& flight, std::int64_t max_rows, std::vector<Action>& actions);
  bool most_places_are_empty() const;
  std::int64_t riding_rows() const;
  void join_smallest(std::size_t sequence);
  void tune(const Flight& flight, double seconds);
  void level(std::int32_t group);
  void end(std::size_t sequence);
  std::int64_t live_tokens(const Group& group) const;

  ScheduleConfig config_;
  std::int32_t max_in_flight_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<std::size_t> unfit_;
  EncodingQueue encoding_;              // of sequences that have no memory yet
  std::deque<std::size_t> ready_;       // to be admitted: have their memory, or need none
  std::int64_t rows_ahead_ = 0;         // of memory, of those
  std::int64_t lanes_ahead_ = 0;        // that the sequences being encoded, or encoded and ready, will take
  std::int64_t pages_ahead_ = 0;        // and pages
  std::deque<std::size_t> prefilling_;  // admitted, prompt not wholly issued
  std::vector<Group> groups_;
  std::int32_t active_groups_ = 1;  // the first of groups_; the others give their members away
  std::optional<GroupTuner> tuner_;
  std::int32_t slots_ = 0;
  std::vector<std::int32_t> free_slots_;  // highest last, so that the lowest is taken first
  std::vector<std::size_t> to_release_;
  std::deque<Flight> flights_;
  std::size_t admitted_ = 0;
  std::int64_t lanes_in_use_ = 0;  // reserved
  std::int64_t pages_in_use_ = 0;
  std::uint64_t next_number_ = 1;
  std::int32_t next_group_ = 0;  // round robin over groups that are ready
  bool cancelled_ = false;       // what waits
  bool stopping_ = false;
};

// The number of decode groups for `sequences` that can be live at once (see ScheduleConfig::groups).
std::int32_t choose_groups(const ScheduleConfig& config, std::int64_t sequences);

}  // namespace diffuse

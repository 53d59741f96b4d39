#include "schedule/policy.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace diffuse {

namespace {

// More groups must promise this much more before they are worth smaller groups.
constexpr double kWorthwhile = 1.02;

// The rows of prompts beside a decode group may cost so many times what the group's step costs. In
// simulations of 2 and 4 stages, 0.5 starves the places of long prompts and 3 leaves stages idle.
constexpr double kRidingShare = 1.5;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

void require(bool holds, const char* what) {
  if (!holds) throw_internal(std::string("schedule: ") + what);
}

std::int32_t reserved_lanes(const SequenceNeed& need) {
  return std::max(need.lanes, need.most_lanes);
}

// Rows that a position of its prompt takes.
std::int64_t prompt_lanes(const SequenceNeed& need) {
  return need.guided ? 2 : 1;
}

}  // namespace

std::int64_t pages_needed(const SequenceNeed& need, std::int64_t page_tokens) {
  const auto lanes = std::max<std::int64_t>(need.lanes, need.most_lanes);
  const auto tokens = std::max(need.prompt_tokens + need.max_new_tokens, need.most_tokens);
  const auto memory = ceil_div(need.memory_rows, page_tokens);
  if (need.guided) return lanes * ceil_div(tokens, page_tokens) + memory + 1;
  return lanes * (ceil_div(tokens, page_tokens) + (lanes > 1 ? 1 : 0)) + memory;
}

std::int32_t choose_groups(const ScheduleConfig& config, std::int64_t sequences) {
  if (sequences < 1) return 1;
  const auto at_most = [&](std::int64_t count) {
    return static_cast<std::int32_t>(std::min<std::int64_t>(count, sequences));
  };
  if (config.groups > 0) return at_most(config.groups);
  const double stages = config.stages;
  const double hop = config.stages == 1 ? 0 : config.cost.hop;
  std::int32_t best = 0;
  double best_rate = 0;
  for (int more = 0; more <= 2; ++more) {
    const std::int32_t groups = at_most(config.stages + more);
    const std::int64_t live = std::min(sequences, std::int64_t{groups} * config.max_group);
    const double step = config.cost.step + config.cost.row * static_cast<double>(ceil_div(live, groups));
    const double cycle = std::max(groups * step, stages * (step + hop));
    const double rate = static_cast<double>(live) / cycle;
    if (best == 0 || rate > best_rate * kWorthwhile) {
      best = groups;
      best_rate = rate;
    }
  }
  return best;
}

AutoregressivePolicy::AutoregressivePolicy(ScheduleConfig config, std::span<const SequenceNeed> needs)
    : config_(config), encoding_(config.encoders, config.encode_rows, config.encode_inputs) {
  require(config.stages >= 1, "no stage");
  require(
      config.max_rows_per_step >= 1 && config.max_rows_per_step <= std::numeric_limits<std::int32_t>::max(),
      "the rows of a step do not fit a descriptor");
  require(config.max_group >= 1 && config.max_group <= kMaxEntries, "max_group does not fit a descriptor");
  require(config.groups >= 0 && config.max_in_flight >= 0, "a negative number of groups or steps in flight");
  require(config.encode_inputs <= kMaxEntries, "a batch to encode that does not fit a descriptor");
  require(config.page_tokens >= 1 && config.kv_pages >= 0, "a page without tokens, or a negative budget");

  require(config.most_lanes >= 1 && config.most_lanes <= config.max_group,
          "lanes that no group has room for");

  std::int64_t pages_of_all = 0;
  std::int64_t count = 0;  // lanes
  std::vector<std::size_t> fitting;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    auto& sequence = sequences_.emplace_back();
    sequence.need = needs[i];
    if (fits(needs[i])) {
      sequence.pages = pages_needed(needs[i], config.page_tokens);
      pages_of_all += sequence.pages;
      count += reserved_lanes(needs[i]);
      fitting.push_back(i);
    } else {
      unfit_.push_back(i);
    }
  }
  std::ranges::stable_sort(fitting, {}, [&](std::size_t i) { return sequences_[i].need.prompt_tokens; });
  for (const auto index : fitting) queue(index);

  std::int64_t live = count;
  if (pages_of_all > config.kv_pages) {
    live = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(static_cast<double>(config.kv_pages) /
                                     static_cast<double>(pages_of_all) * static_cast<double>(count)));
  }
  active_groups_ = choose_groups(config, live);
  groups_.resize(static_cast<std::size_t>(active_groups_));
  if (config.groups == 0 && config.tune_groups && config.stages > 1) {
    tuner_.emplace(active_groups_);
    groups_.resize(std::max(groups_.size(), static_cast<std::size_t>(config.stages + 2)));
  }
  const auto slots =
      std::min(count, std::max(std::int64_t{active_groups_} * static_cast<std::int64_t>(capacity()),
                               std::int64_t{config.most_lanes}));
  slots_ = static_cast<std::int32_t>(slots);
  free_slots_.resize(static_cast<std::size_t>(slots));
  std::iota(free_slots_.rbegin(), free_slots_.rend(), 0);
  max_in_flight_ = config.max_in_flight > 0 ? config.max_in_flight
                                            : std::max(config.stages + 2, static_cast<int>(groups_.size()));
}

bool AutoregressivePolicy::fits(const SequenceNeed& need) const {
  // First without a sum or product that a request could make overflow.
  const auto most = config_.kv_pages * config_.page_tokens;
  const auto lanes = std::max(need.lanes, need.most_lanes);
  return need.prompt_tokens >= 1 && need.prompt_tokens <= most && need.max_new_tokens >= 0 &&
         need.max_new_tokens <= most && need.memory_rows >= 0 && need.memory_rows <= most &&
         need.most_tokens <= most && need.lanes >= 1 && lanes <= config_.most_lanes &&
         (!need.guided || lanes == 2) && pages_needed(need, config_.page_tokens) <= config_.kv_pages;
}

// Lanes that a group counts as full with: one that has fewer takes any sequence, and lanes stay together.
std::size_t AutoregressivePolicy::capacity() const {
  return static_cast<std::size_t>(config_.max_group - config_.most_lanes) + 1;
}

std::size_t AutoregressivePolicy::add(const SequenceNeed& need) {
  require(fits(need), "an added sequence that does not fit");
  const auto index = sequences_.size();
  auto& sequence = sequences_.emplace_back();
  sequence.need = need;
  sequence.pages = pages_needed(need, config_.page_tokens);
  queue(index);
  return index;
}

// By prompt length, among those that wait for the same.
void AutoregressivePolicy::queue(std::size_t index) {
  const auto& need = sequences_[index].need;
  if (need.memory_rows > 0) return encoding_.add(index, need.prompt_tokens, need.memory_rows);
  const auto prompt_of = [&](std::size_t other) { return sequences_[other].need.prompt_tokens; };
  ready_.insert(std::ranges::upper_bound(ready_, need.prompt_tokens, {}, prompt_of), index);
}

std::size_t AutoregressivePolicy::follow(std::size_t ended, const SequenceNeed& need) {
  require(std::find(to_release_.begin(), to_release_.end(), ended) != to_release_.end(),
          "a follower of a sequence that has not just ended");
  auto& before = sequences_[ended];
  require(!before.follower && !stopping_, "two followers of one sequence, or one while the run stops");
  require(!need.guided && !before.need.guided, "a guided sequence is followed, or follows");
  auto whole = need;
  whole.most_lanes = reserved_lanes(before.need);
  whole.most_tokens =
      std::max(before.need.prompt_tokens + before.need.max_new_tokens, before.need.most_tokens);
  require(fits(whole) && need.lanes <= whole.most_lanes && need.memory_rows == before.need.memory_rows &&
              need.prompt_tokens + need.max_new_tokens <= whole.most_tokens,
          "a follower that needs more than was reserved");
  const auto index = sequences_.size();
  before.follower = index;
  auto& sequence = sequences_.emplace_back();
  sequence.need = whole;
  sequence.pages = sequences_[ended].pages;
  return index;
}

void AutoregressivePolicy::release(std::vector<Action>& actions, std::size_t index) {
  auto& sequence = sequences_[index];
  const bool followed = sequence.follower.has_value();
  for (std::size_t lane = 0; lane < sequence.slots.size(); ++lane) {
    const auto slot = sequence.slots[lane];
    actions.emplace_back(Release{slot, index, static_cast<std::int32_t>(lane), followed && lane == 0});
    free_slots_.insert(std::upper_bound(free_slots_.begin(), free_slots_.end(), slot, std::greater<>()),
                       slot);
  }
  if (!followed) {
    pages_in_use_ -= sequence.pages;
    lanes_in_use_ -= reserved_lanes(sequence.need);
    --admitted_;
    return;
  }
  const auto kept = sequence.slots.front();
  std::erase(free_slots_, kept);
  free_slots_.push_back(kept);  // taken next
  take_slots(actions, *sequence.follower, kept);
}

std::vector<Action> AutoregressivePolicy::next() {
  std::vector<Action> actions;
  for (const auto index : std::exchange(to_release_, {})) release(actions, index);

  if (stopping_) return actions;
  const bool full = flights_.size() >= static_cast<std::size_t>(max_in_flight_);
  const auto prefill_rows = prefill_rows_at_hand();
  const auto group = ready_group();
  const bool idle = full || (prefill_rows == 0 && group < 0);
  encode_next(actions, idle);
  if (idle) return actions;

  Run run;
  run.step.command = Command::step;
  run.step.number = next_number_++;
  Flight flight;
  flight.number = run.step.number;
  // While most places stand empty, whole chunks of prompts go first. Later, prompts ride along with the
  // groups: their rows are not worth reading the weights once more, and a step much longer than the others
  // would leave the stages behind it idle.
  const bool filling = most_places_are_empty();
  if (group >= 0 && !(filling && prefill_rows >= config_.max_rows_per_step))
    add_decode(run.step, flight, group);
  if (prefill_rows > 0)
    add_prefill(run.step, flight, filling ? config_.max_rows_per_step : riding_rows(), actions);
  flights_.push_back(std::move(flight));
  actions.emplace_back(run);
  return actions;
}

void AutoregressivePolicy::on(const StepDone& done) {
  require(!flights_.empty() && flights_.front().number == done.number,
          "a result of a step that is not the oldest");
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  require(done.finished.size() == flight.sampling.size(), "a result with another number of samples");

  if (flight.group >= 0) groups_[static_cast<std::size_t>(flight.group)].in_flight = false;
  for (std::size_t i = 0; i < flight.sampling.size(); ++i) {
    const auto index = flight.sampling[i];
    auto& sequence = sequences_[index];
    const bool first = sequence.sampled++ == 0;
    const auto ended = done.finished[i] != 0;
    // The entries of its other lanes stand behind the first.
    while (i + 1 < flight.sampling.size() && flight.sampling[i + 1] == index) {
      ++i;
      require((done.finished[i] != 0) == ended, "some lanes of a sequence end before the others");
    }
    if (ended || sequence.sampled >= sequence.need.max_new_tokens) {
      end(index);
    } else if (first) {
      join_smallest(index);
    }
  }
  for (const auto index : flight.unsampled) end(index);
  if (flight.group >= 0) {
    if (tuner_) tune(flight, done.seconds);
    level(flight.group);
  }
  if (stopping_ && flights_.empty()) cancel_running();
}

void AutoregressivePolicy::on(const Encoded& encoded) {
  for (const auto index : encoding_.on(encoded)) {
    if (cancelled_) continue;
    ready_.push_back(index);
    rows_ahead_ += sequences_[index].need.memory_rows;
  }
}

void AutoregressivePolicy::cancel_waiting() {
  cancelled_ = true;
  encoding_.cancel();
  ready_.clear();
}

void AutoregressivePolicy::cancel_running() {
  cancel_waiting();
  stopping_ = true;
  if (!flights_.empty()) return;
  prefilling_.clear();
  for (std::size_t i = 0; i < sequences_.size(); ++i)
    if (!sequences_[i].slots.empty() && !sequences_[i].ended) end(i);
}

bool AutoregressivePolicy::finished() const {
  return waiting() == 0 && admitted_ == 0 && flights_.empty();
}

std::int64_t AutoregressivePolicy::prefill_rows_at_hand() const {
  std::int64_t rows = 0;
  for (const auto index : prefilling_)
    rows += (sequences_[index].need.prompt_tokens - sequences_[index].issued) *
            prompt_lanes(sequences_[index].need);
  auto lanes = slots_ - lanes_in_use_;
  auto pages = config_.kv_pages - pages_in_use_;
  for (const auto index : ready_) {
    const auto& sequence = sequences_[index];
    lanes -= reserved_lanes(sequence.need);
    pages -= sequence.pages;
    if (rows >= config_.max_rows_per_step || lanes < 0 || pages < 0) break;
    rows += sequence.need.prompt_tokens * prompt_lanes(sequence.need);
  }
  return rows;
}

std::int32_t AutoregressivePolicy::ready_group() const {
  const auto count = static_cast<std::int32_t>(groups_.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const auto group = (next_group_ + i) % count;
    const auto& candidate = groups_[static_cast<std::size_t>(group)];
    if (!candidate.in_flight && !candidate.members.empty()) return group;
  }
  return -1;
}

void AutoregressivePolicy::add_decode(Descriptor& step, Flight& flight, std::int32_t group) {
  auto& chosen = groups_[static_cast<std::size_t>(group)];
  for (const auto index : chosen.members) {
    auto& sequence = sequences_[index];
    if (sequence.need.guided) {
      add_guided(step, sequence, 1, true);
      flight.sampling.push_back(index);
    } else {
      for (const auto slot : sequence.slots) {
        step.entry[step.entries++] = {
            .slot = slot, .rows = 1, .first_position = sequence.issued, .sample = 1};
        flight.sampling.push_back(index);
      }
    }
    ++sequence.issued;
  }
  chosen.in_flight = true;
  flight.group = group;
  flight.decoding = lanes_of(chosen);
  next_group_ = (group + 1) % static_cast<std::int32_t>(groups_.size());
}

void AutoregressivePolicy::add_prefill(Descriptor& step, Flight& flight, std::int64_t max_rows,
                                       std::vector<Action>& actions) {
  std::int64_t room = max_rows - step.entries;
  while (room > 0 && step.entries < kMaxEntries) {
    if (prefilling_.empty()) {
      if (!can_admit()) return;
      admit_next(actions);
    }
    const auto index = prefilling_.front();
    auto& sequence = sequences_[index];
    const auto lanes = prompt_lanes(sequence.need);
    if (step.entries + lanes > kMaxEntries || (room < lanes && step.entries > 0)) return;
    const auto rows =
        std::min(std::max<std::int64_t>(room / lanes, 1), sequence.need.prompt_tokens - sequence.issued);
    const bool whole = sequence.issued + rows == sequence.need.prompt_tokens;
    const bool sample = whole && sequence.need.max_new_tokens > 0;
    if (sequence.need.guided) {
      add_guided(step, sequence, rows, sample);
    } else {
      step.entry[step.entries++] = {.slot = sequence.slots.front(),
                                    .rows = static_cast<std::int32_t>(rows),
                                    .first_position = sequence.issued,
                                    .sample = static_cast<std::uint8_t>(sample ? 1 : 0)};
    }
    sequence.issued += rows;
    room -= rows * lanes;
    flight.prefill = true;
    if (whole) {
      (sample ? flight.sampling : flight.unsampled).push_back(index);
      prefilling_.pop_front();
    }
  }
}

// The next rows of both lanes.
void AutoregressivePolicy::add_guided(Descriptor& step, const Sequence& sequence, std::int64_t rows,
                                      bool sample) {
  Entry entry{.slot = sequence.slots.front(),
              .rows = static_cast<std::int32_t>(rows),
              .first_position = sequence.issued,
              .sample = static_cast<std::uint8_t>(sample ? 1 : 0)};
  step.entry[step.entries++] = entry;
  entry.slot = sequence.slots.back();
  entry.guides = std::exchange(entry.sample, std::uint8_t{0});
  step.entry[step.entries++] = entry;
}

bool AutoregressivePolicy::most_places_are_empty() const {
  std::size_t decoding = 0;
  for (const auto& group : groups_) decoding += lanes_of(group);
  return 2 * decoding < std::min(static_cast<std::size_t>(slots_), admitted_ + waiting());
}

std::int64_t AutoregressivePolicy::riding_rows() const {
  const auto& cost = config_.cost;
  const double rows = kRidingShare * (cost.step + cost.row * config_.max_group);
  // Written so that a row that costs nothing allows all of them.
  if (rows >= cost.row * static_cast<double>(config_.max_rows_per_step)) return config_.max_rows_per_step;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(rows / cost.row));
}

// Beside what is in use, and so much more.
bool AutoregressivePolicy::has_place(std::size_t index, std::int64_t more_lanes,
                                     std::int64_t more_pages) const {
  const auto& sequence = sequences_[index];
  return lanes_in_use_ + more_lanes + reserved_lanes(sequence.need) <= slots_ &&
         sequence.pages <= config_.kv_pages - pages_in_use_ - more_pages;
}

bool AutoregressivePolicy::can_admit() const {
  return !ready_.empty() && has_place(ready_.front(), 0, 0);
}

// While one rank encodes, steps are held up and the other ranks wait. So where several encode and most places
// decode, they begin together: once there is something to do for each of them.
bool AutoregressivePolicy::worth_beginning(bool needed) const {
  const auto ranks = static_cast<std::int64_t>(config_.encoders.size());
  if (ranks == 1 || encoding_.under_way() > 0 || most_places_are_empty()) return true;
  return static_cast<std::int64_t>(encoding_.waiting()) >= ranks &&
         (needed || rows_ahead_ <= ranks * config_.encode_rows);
}

// What is ahead of need takes memory: at most a batch lies ready beyond the one that is under way; where
// several ranks encode, two for each of them.
void AutoregressivePolicy::encode_next(std::vector<Action>& actions, bool idle) {
  const auto ranks = static_cast<std::int64_t>(config_.encoders.size());
  const auto most_ahead = config_.encode_rows * (ranks == 1 ? 1 : 2 * ranks);
  while (encoding_.waiting() > 0) {
    const bool needed = has_place(encoding_.next(), lanes_ahead_, pages_ahead_);
    if (!needed && (!idle || rows_ahead_ >= most_ahead)) return;
    if (!worth_beginning(needed)) return;
    auto batch = encoding_.deal();
    if (!batch) return;
    for (const auto index : batch->sequences) {
      lanes_ahead_ += reserved_lanes(sequences_[index].need);
      pages_ahead_ += sequences_[index].pages;
    }
    actions.emplace_back(std::move(*batch));
  }
}

void AutoregressivePolicy::admit_next(std::vector<Action>& actions) {
  const auto index = ready_.front();
  ready_.pop_front();
  const auto& sequence = sequences_[index];
  if (sequence.need.memory_rows > 0) {
    rows_ahead_ -= sequence.need.memory_rows;
    lanes_ahead_ -= reserved_lanes(sequence.need);
    pages_ahead_ -= sequence.pages;
  }
  pages_in_use_ += sequence.pages;
  lanes_in_use_ += reserved_lanes(sequence.need);
  ++admitted_;
  take_slots(actions, index, -1);
}

// A slot for each lane. The first lane takes over a kept memory, or the next one; the others share its, but
// one that guides.
void AutoregressivePolicy::take_slots(std::vector<Action>& actions, std::size_t index,
                                      std::int32_t first_memory) {
  auto& sequence = sequences_[index];
  for (std::int32_t lane = 0; lane < sequence.need.lanes; ++lane) {
    const auto slot = free_slots_.back();
    free_slots_.pop_back();
    sequence.slots.push_back(slot);
    Admit admit{slot, index, lane, lane == 0 ? first_memory : sequence.slots.front()};
    if (lane > 0 && sequence.need.guided) {
      admit.memory_from = -1;
      admit.no_memory = true;
    }
    actions.emplace_back(admit);
  }
  prefilling_.push_back(index);
}

std::size_t AutoregressivePolicy::lanes_of(const Group& group) const {
  std::size_t lanes = 0;
  for (const auto index : group.members) lanes += sequences_[index].slots.size();
  return lanes;
}

std::int64_t AutoregressivePolicy::live_tokens(const Group& group) const {
  std::int64_t tokens = 0;
  for (const auto index : group.members)
    tokens += sequences_[index].issued * static_cast<std::int64_t>(sequences_[index].slots.size());
  return tokens;
}

void AutoregressivePolicy::join_smallest(std::size_t sequence) {
  // Tuned groups may be too few for those who join later.
  const auto is_full = [&](const Group& group) { return lanes_of(group) >= capacity(); };
  while (active_groups_ < static_cast<std::int32_t>(groups_.size()) &&
         std::all_of(groups_.begin(), groups_.begin() + active_groups_, is_full)) {
    ++active_groups_;
  }
  const auto end = groups_.begin() + active_groups_;
  const auto smallest = std::min_element(groups_.begin(), end, [&](const Group& a, const Group& b) {
    return std::pair(lanes_of(a), live_tokens(a)) < std::pair(lanes_of(b), live_tokens(b));
  });
  smallest->members.push_back(sequence);
}

// Only decode steps that carry nothing else tell what a number of groups is worth.
void AutoregressivePolicy::tune(const Flight& flight, double seconds) {
  std::size_t live = 0;
  std::size_t members = 0;
  for (const auto& group : groups_) {
    live += lanes_of(group);
    members += group.members.size();
  }
  if (live == 0) return;
  if (flight.prefill || !prefilling_.empty() || encoding_.under_way_before(config_.stages))
    return tuner_->disturbed();
  const auto many = static_cast<std::int64_t>(live);
  const auto least = std::min((live + capacity() - 1) / capacity(), groups_.size());
  tuner_->on({.seconds = seconds,
              .tokens = static_cast<std::int64_t>(flight.decoding),
              .live = many,
              .least = static_cast<std::int32_t>(least),
              .most = static_cast<std::int32_t>(std::max(least, std::min(members, groups_.size())))});
  active_groups_ = tuner_->groups();
}

// Groups end up unequal where sequences finish; one that has just come back gives members away. One that is
// no longer wanted gives all of them.
void AutoregressivePolicy::level(std::int32_t group) {
  auto& members = groups_[static_cast<std::size_t>(group)].members;
  const auto give_last = [&] {
    const auto moved = members.back();
    members.pop_back();
    join_smallest(moved);
  };
  if (group >= active_groups_) {
    for (const auto moved : std::exchange(members, {})) join_smallest(moved);
    return;
  }
  const auto smallest_size = [&] {
    std::size_t size = lanes_of(groups_[static_cast<std::size_t>(group)]);
    for (std::int32_t other = 0; other < active_groups_; ++other)
      size = std::min(size, lanes_of(groups_[static_cast<std::size_t>(other)]));
    return size;
  };
  const auto last_lanes = [&] { return sequences_[members.back()].slots.size(); };
  while (!members.empty() &&
         lanes_of(groups_[static_cast<std::size_t>(group)]) > smallest_size() + last_lanes()) {
    give_last();
  }
}

void AutoregressivePolicy::end(std::size_t sequence) {
  sequences_[sequence].ended = true;
  for (auto& group : groups_) std::erase(group.members, sequence);
  to_release_.push_back(sequence);
}

}  // namespace diffuse

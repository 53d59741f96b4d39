#include "schedule/refinement_policy.hpp"

#include <algorithm>
#include <string>

#include "core/error.hpp"

namespace diffuse {

namespace {

void require_of_refinement(bool holds, const char* what) {
  if (!holds) throw_internal(std::string("schedule of refinement: ") + what);
}

}  // namespace

std::vector<std::int64_t> patch_borders(std::int64_t lines, std::int64_t tokens, std::int32_t patches) {
  require_of_refinement(lines >= 1 && patches >= 1 && tokens >= lines && tokens % lines == 0,
                        "patches of no picture");
  const auto units = lines >= patches ? lines : tokens;
  const auto per_unit = tokens / units;
  const auto count = std::min<std::int64_t>(patches, units);
  std::vector<std::int64_t> borders;
  for (std::int64_t patch = 0; patch <= count; ++patch) borders.push_back(units * patch / count * per_unit);
  return borders;
}

std::int32_t filling_patches(std::int32_t stages, std::int32_t branches, std::int64_t streams) {
  const std::int64_t places = stages + branches - 1;
  return static_cast<std::int32_t>(std::max<std::int64_t>(1, (places + streams - 1) / streams));
}

double full_share(int stages, std::int32_t branches, std::int64_t streams) {
  return std::min(1.0, static_cast<double>(streams) / static_cast<double>(stages + branches - 1));
}

RefinementPolicy::RefinementPolicy(const RefinementScheduleConfig& config,
                                   std::span<const RefinementNeed> needs)
    : config_(config) {
  require_of_refinement(config.stages >= 1 && config.kv_pages >= 0, "no stage, or a negative budget");
  std::int32_t most_branches = 0;
  std::int64_t branches = 0;
  for (const auto& need : needs) {
    require_of_refinement(need.branches >= 1 && need.branches <= kMaxEntries, "a request of no branch");
    require_of_refinement(need.steps >= 1 && need.first_step >= 0 && need.first_step < need.steps,
                          "a request that has no step left");
    require_of_refinement(need.borders.size() >= 2 && need.borders.front() == 0 &&
                              std::adjacent_find(need.borders.begin(), need.borders.end(),
                                                 std::greater_equal<>()) == need.borders.end(),
                          "borders of patches that do not rise from 0");
    auto& request = requests_.emplace_back();
    request.need = need;
    request.step = need.first_step;
    request.stepped.assign(need.borders.size() - 1, need.first_step);
    if (need.pages > config.kv_pages) {
      unfit_.push_back(requests_.size() - 1);
      continue;
    }
    waiting_.push_back(requests_.size() - 1);
    most_branches = std::max(most_branches, need.branches);
    branches += need.branches;
  }
  // See admit_next().
  slots_ = static_cast<std::int32_t>(std::min<std::int64_t>(branches, config.stages + 3 * most_branches));
  for (auto slot = slots_ - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

bool RefinementPolicy::ready(const Request& request) const {
  if (stopping_ || request.ended || request.step >= request.need.steps) return false;
  const auto& stepped = request.stepped;
  // A step is whole or patched for all of its patches; where this one is whole, it reads all rows at once.
  if (request.need.whole(request.step))
    return *std::min_element(stepped.begin(), stepped.end()) >= request.step;
  return stepped[static_cast<std::size_t>(request.patch)] >= request.step;
}

void RefinementPolicy::note_ready(Request& request) {
  const bool now = ready(request);
  if (now && !request.was_ready) request.ready_since = clock_;
  request.was_ready = now;
}

// As many as fill the stages, and one more, so that a result on its way back leaves nobody idle. More would
// only hold memory.
void RefinementPolicy::admit_next(std::vector<Action>& actions) {
  while (!stopping_ && !waiting_.empty()) {
    const auto index = waiting_.front();
    auto& request = requests_[index];
    const auto& need = request.need;
    std::int64_t streams = 0;
    for (const auto other : admitted_) streams += requests_[other].need.branches;
    if (streams >= config_.stages + 2 * need.branches - 1) return;
    if (pages_in_use_ + need.pages > config_.kv_pages) return;
    waiting_.pop_front();
    admitted_.push_back(index);
    pages_in_use_ += need.pages;
    for (std::int32_t branch = 0; branch < need.branches; ++branch) {
      const auto slot = free_slots_.back();
      free_slots_.pop_back();
      request.slots.push_back(slot);
      actions.push_back(Admit{.slot = slot, .sequence = index, .lane = branch, .memory_from = -1});
    }
    note_ready(request);
  }
}

// Where its next pass is.
void RefinementPolicy::advance(Request& request) const {
  if (++request.branch < request.need.branches) return;
  request.branch = 0;
  const auto patches = static_cast<std::int32_t>(request.stepped.size());
  if (!request.need.whole(request.step) && ++request.patch < patches) return;
  request.patch = 0;
  ++request.step;
}

Run RefinementPolicy::issue(std::size_t index) {
  auto& request = requests_[index];
  const auto& need = request.need;
  Flight flight;
  flight.number = next_number_++;
  flight.pass = {.request = index,
                 .step = request.step,
                 .branch = request.branch,
                 .patch = request.patch,
                 .whole = need.whole(request.step),
                 .joins = request.branch == need.branches - 1};
  const auto patch = static_cast<std::size_t>(request.patch);
  const auto first = need.borders[patch];
  const auto end = flight.pass.whole ? need.borders.back() : need.borders[patch + 1];
  Run run;
  run.step.command = Command::step;
  run.step.number = flight.number;
  run.step.entries = 1;
  auto& entry = run.step.entry[0];
  entry.slot = request.slots[static_cast<std::size_t>(request.branch)];
  entry.first_position = first;
  entry.rows = static_cast<std::int32_t>(end - first);
  entry.sample = flight.pass.joins ? 1 : 0;
  flights_.push_back(flight);
  ++request.open;
  advance(request);
  // The branches of a patch go one behind the other; what comes next may wait for a result.
  if (flight.pass.joins) request.was_ready = false;
  note_ready(request);
  return run;
}

std::vector<Action> RefinementPolicy::next() {
  std::vector<Action> actions;
  for (const auto index : to_release_) {
    auto& request = requests_[index];
    for (std::size_t branch = 0; branch < request.slots.size(); ++branch) {
      actions.push_back(Release{.slot = request.slots[branch],
                                .sequence = index,
                                .lane = static_cast<std::int32_t>(branch),
                                .keep_memory = false});
      free_slots_.push_back(request.slots[branch]);
    }
    std::sort(free_slots_.rbegin(), free_slots_.rend());
    request.slots.clear();
    pages_in_use_ -= request.need.pages;
    std::erase(admitted_, index);
  }
  to_release_.clear();
  admit_next(actions);
  // One a stage, and two on their way. More would only fill the messages' buffers, to the point where each
  // rank waits until the next one takes something.
  if (flights_.size() >= static_cast<std::size_t>(config_.stages) + 2) return actions;
  const Request* best = nullptr;
  std::size_t chosen = 0;
  for (const auto index : admitted_) {
    const auto& request = requests_[index];
    if (!ready(request)) continue;
    // One whose branch is under way goes on before all others.
    const auto rank = [](const Request& r) { return r.branch > 0 ? 0 : r.ready_since + 1; };
    if (best != nullptr && rank(request) >= rank(*best)) continue;
    best = &request;
    chosen = index;
  }
  if (best != nullptr) actions.push_back(issue(chosen));
  return actions;
}

ScheduledPass RefinementPolicy::pass(std::uint64_t number) const {
  for (const auto& flight : flights_)
    if (flight.number == number) return flight.pass;
  throw_internal("schedule of refinement: asked for a step that is not in flight");
}

void RefinementPolicy::on(const StepDone& done) {
  require_of_refinement(!flights_.empty() && flights_.front().number == done.number,
                        "a result that is not the oldest step's");
  const auto pass = flights_.front().pass;
  require_of_refinement(done.finished.size() == (pass.joins ? 1U : 0U), "flags that do not fit a step");
  flights_.pop_front();
  ++clock_;
  auto& request = requests_[pass.request];
  --request.open;
  if (pass.joins) {
    if (done.finished[0] != 0) request.ended = true;
    if (pass.whole) {
      request.stepped.assign(request.stepped.size(), pass.step + 1);
    } else {
      request.stepped[static_cast<std::size_t>(pass.patch)] = pass.step + 1;
    }
    note_ready(request);
  }
  const bool all_issued = request.ended || stopping_ || request.step >= request.need.steps;
  if (all_issued && request.open == 0) to_release_.push_back(pass.request);
}

void RefinementPolicy::cancel_running() {
  stopping_ = true;
  waiting_.clear();
  for (const auto index : admitted_) {
    const bool leaving = std::find(to_release_.begin(), to_release_.end(), index) != to_release_.end();
    if (requests_[index].open == 0 && !leaving) to_release_.push_back(index);
  }
}

bool RefinementPolicy::finished() const {
  return waiting_.empty() && admitted_.empty() && flights_.empty();
}

PolicyHooks bind_policy(RefinementPolicy& policy) {
  return {.next = [&policy] { return policy.next(); },
          .on = [&policy](const StepDone& done) { policy.on(done); },
          .finished = [&policy] { return policy.finished(); }};
}

}  // namespace diffuse

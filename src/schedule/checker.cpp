#include "schedule/checker.hpp"

#include <algorithm>
#include <variant>

namespace diffuse {

namespace {

std::string name(std::size_t sequence) {
  return "sequence " + std::to_string(sequence);
}

}  // namespace

ScheduleChecker::ScheduleChecker(const ScheduleConfig& config, std::span<const SequenceNeed> needs,
                                 std::int32_t slots, std::int32_t max_in_flight)
    : config_(config),
      max_in_flight_(max_in_flight),
      needs_(needs.begin(), needs.end()),
      sequences_(needs.size()),
      owner_(static_cast<std::size_t>(slots), -1) {}

void ScheduleChecker::on_action(const Action& action) {
  if (const auto* encode = std::get_if<Encode>(&action)) on_encode(*encode);
  if (const auto* admit = std::get_if<Admit>(&action)) on_admit(*admit);
  if (const auto* run = std::get_if<Run>(&action)) on_run(run->step);
  if (const auto* release = std::get_if<Release>(&action)) on_release(*release);
}

void ScheduleChecker::on_add(const SequenceNeed& need, std::int64_t before) {
  needs_.push_back(need);
  sequences_.emplace_back().before = before;
  if (before >= 0) sequences_[static_cast<std::size_t>(before)].followed = true;
}

void ScheduleChecker::on_encode(const Encode& encode) {
  expect(std::ranges::find(config_.encoders, encode.encoder) != config_.encoders.end(),
         "a rank encodes that does not");
  auto& under_way = encoding_[encode.encoder];
  expect(under_way.size() < (encode.encoder == 0 ? 1U : 2U), "a rank is given batches upon batches");
  expect(
      !encode.sequences.empty() && encode.sequences.size() <= static_cast<std::size_t>(config_.encode_inputs),
      "a batch to encode is empty, or has too many inputs");
  std::int64_t rows = 0;
  for (const auto index : encode.sequences) {
    expect(index < sequences_.size(), "an unknown sequence is encoded");
    if (index >= sequences_.size()) return;
    auto& sequence = sequences_[index];
    expect(!sequence.encoding && !sequence.encoded, name(index) + " is encoded twice");
    expect(sequence.slots.empty() && !sequence.released, name(index) + " is encoded after its admission");
    expect(needs_[index].memory_rows > 0, name(index) + " reads no encoder and is encoded");
    sequence.encoding = true;
    rows += needs_[index].memory_rows;
  }
  expect(rows <= config_.encode_rows || encode.sequences.size() == 1, "a batch to encode has too many rows");
  under_way.push_back(encode.sequences);
}

void ScheduleChecker::on_encoded(const Encoded& encoded) {
  auto& under_way = encoding_[encoded.encoder];
  expect(!under_way.empty(), "memories come of a batch that nobody encodes");
  if (under_way.empty()) return;
  for (const auto index : under_way.front()) {
    sequences_[index].encoded = true;
    memories_.insert(index);
  }
  under_way.pop_front();
}

void ScheduleChecker::on_admit(const Admit& admit) {
  expect(admit.sequence < sequences_.size(), "an unknown sequence is admitted");
  if (admit.sequence >= sequences_.size()) return;
  const bool known_slot = admit.slot >= 0 && static_cast<std::size_t>(admit.slot) < owner_.size();
  expect(known_slot, name(admit.sequence) + " is admitted to an unknown slot");
  if (!known_slot) return;
  auto& sequence = sequences_[admit.sequence];
  const auto& need = needs_[admit.sequence];
  const bool due = static_cast<std::int32_t>(sequence.slots.size()) == admit.lane && admit.lane < need.lanes;
  expect(due && !sequence.released, name(admit.sequence) + " is admitted twice, or its lanes out of turn");
  const bool follows = sequence.before >= 0;
  const bool guides = need.guided && admit.lane == 1;
  expect(admit.no_memory == guides, name(admit.sequence) + (guides ? " has a guide that reads its memory"
                                                                   : " is admitted without its memory"));
  if (guides) {
    expect(admit.memory_from < 0, name(admit.sequence) + " has a guide that shares a memory");
  } else if (admit.lane > 0) {
    expect(!sequence.slots.empty() && admit.memory_from == sequence.slots.front(),
           name(admit.sequence) + " has a lane without the memory of the first");
  } else if (follows) {
    expect(kept_.erase(admit.slot) == 1 && admit.memory_from == admit.slot,
           name(admit.sequence) + " follows and is admitted elsewhere");
  } else if (need.memory_rows > 0) {
    expect(sequence.encoded && memories_.erase(admit.sequence) == 1,
           name(admit.sequence) + " is admitted before its memory is there, or twice");
  }
  auto& owner = owner_[static_cast<std::size_t>(admit.slot)];
  expect(owner < 0, name(admit.sequence) + " is admitted to a slot in use");
  owner = static_cast<std::int64_t>(admit.sequence);
  sequence.slots.push_back(admit.slot);
  if (admit.lane == 0 && !follows) pages_ += pages(admit.sequence);
  expect(pages_ <= config_.kv_pages, "the key-value budget is exceeded");
}

void ScheduleChecker::on_run(const Descriptor& step) {
  expect(step.command == Command::step, "a step is not a step");
  expect(step.number == last_number_ + 1, "steps are not numbered 1, 2, 3");
  last_number_ = step.number;
  expect(step.entries >= 1 && step.entries <= kMaxEntries, "a step without entries, or too many");
  std::int64_t decode_rows = 0;
  bool guided = false;
  Step open;
  open.number = step.number;
  for (std::size_t i = 0; i < std::min<std::size_t>(step.entries, kMaxEntries); ++i) {
    on_entry(step.entry[i], open);
    const auto owner = step.entry[i].slot >= 0 && static_cast<std::size_t>(step.entry[i].slot) < owner_.size()
                           ? owner_[static_cast<std::size_t>(step.entry[i].slot)]
                           : -1;
    if (owner >= 0 && step.entry[i].first_position >= needs_[static_cast<std::size_t>(owner)].prompt_tokens)
      ++decode_rows;
    guided = guided || (owner >= 0 && needs_[static_cast<std::size_t>(owner)].guided);
  }
  on_guides(open);
  expect(decode_rows <= config_.max_group, "a step decodes more sequences than a group may have");
  expect(step.rows() <= std::max<std::int64_t>(
                            {config_.max_rows_per_step, decode_rows, guided && step.entries == 2 ? 2 : 0}),
         "a step has too many rows");
  steps_.push_back(std::move(open));
  expect(steps_.size() <= static_cast<std::size_t>(max_in_flight_), "too many steps are in flight");
}

void ScheduleChecker::on_entry(const Entry& entry, Step& step) {
  const bool known = entry.slot >= 0 && static_cast<std::size_t>(entry.slot) < owner_.size() &&
                     owner_[static_cast<std::size_t>(entry.slot)] >= 0;
  expect(known, "an entry names an empty slot");
  if (!known) return;
  const auto index = static_cast<std::size_t>(owner_[static_cast<std::size_t>(entry.slot)]);
  auto& sequence = sequences_[index];
  const auto prompt = needs_[index].prompt_tokens;
  const auto lane = static_cast<std::size_t>(std::count(step.all.begin(), step.all.end(), index));
  if (lane > 0 || entry.slot != sequence.slots.front()) {
    if (needs_[index].guided) return on_guide(index, entry, step);
    return on_lane(index, lane, entry, step);
  }
  expect(entry.guides == 0, name(index) + " guides itself");
  on_guides(step);
  step.last = entry;
  expect(!sequence.ended, name(index) + " runs after its end");
  expect(entry.rows >= 1, name(index) + " has an entry without rows");
  expect(entry.first_position == sequence.run, name(index) + " skips or repeats a position");
  const bool decode = sequence.run >= prompt;
  if (decode) {
    expect(entry.rows == 1, name(index) + " decodes more than one position");
    // The row at position prompt + i is the token that sample i chose.
    expect(sequence.sampled > sequence.run - prompt, name(index) + " runs a token that is not known yet");
  } else {
    expect(entry.first_position + entry.rows <= prompt, name(index) + " runs past its prompt");
  }
  sequence.run += entry.rows;
  const bool due = sequence.run >= prompt && needs_[index].max_new_tokens > 0;
  expect((entry.sample != 0) == due,
         name(index) + (due ? " does not sample where due" : " samples where none is due"));
  if (entry.sample != 0) {
    ++sequence.asked;
    step.sampling.push_back(index);
    expect(sequence.asked <= needs_[index].max_new_tokens, name(index) + " samples more than max_new_tokens");
  }
  step.all.push_back(index);
  ++sequence.open_steps;
}

// The entry that guides: right behind the one that it guides, and like it.
void ScheduleChecker::on_guide(std::size_t index, const Entry& entry, Step& step) {
  const auto& slots = sequences_[index].slots;
  expect(!step.all.empty() && step.all.back() == index && slots.size() == 2 && entry.slot == slots.back() &&
             step.last.slot == slots.front(),
         name(index) + " has a guide apart from what it guides");
  expect(entry.rows == step.last.rows && entry.first_position == step.last.first_position && entry.from < 0,
         name(index) + " has a guide unlike what it guides");
  expect(entry.sample == 0 && entry.guides == step.last.sample,
         name(index) + " samples by its guide, or without it");
  step.all.push_back(index);
  step.last = entry;
}

// Before another sequence's entry, and at the end: who is guided had both its entries.
void ScheduleChecker::on_guides(const Step& step) {
  if (step.all.empty() || !needs_[step.all.back()].guided) return;
  expect(step.last.slot == sequences_[step.all.back()].slots.back(),
         name(step.all.back()) + " runs without its guide");
}

// An entry of a lane that is not the first: behind that one's, and like it.
void ScheduleChecker::on_lane(std::size_t index, std::size_t lane, const Entry& entry, Step& step) {
  auto& sequence = sequences_[index];
  expect(lane > 0 && lane < sequence.slots.size() && sequence.slots[lane] == entry.slot,
         name(index) + " stands twice in a step, or its lanes out of turn");
  expect(step.all.back() == index, name(index) + " has lanes apart from each other");
  const bool alike = entry.rows == 1 && entry.first_position == sequence.run - 1 && entry.sample == 1;
  expect(alike && sequence.run > needs_[index].prompt_tokens, name(index) + " has a lane unlike the first");
  step.all.push_back(index);
  step.sampling.push_back(index);
}

void ScheduleChecker::on_result(const StepDone& done) {
  expect(!steps_.empty() && steps_.front().number == done.number,
         "a result of a step that is not the oldest");
  if (steps_.empty()) return;
  const Step step = std::move(steps_.front());
  steps_.pop_front();
  expect(step.sampling.size() == done.finished.size(), "a result with another number of samples");
  std::set<std::size_t> seen;
  for (const auto index : step.all)
    if (seen.insert(index).second) --sequences_[index].open_steps;
  seen.clear();
  for (std::size_t i = 0; i < std::min(step.sampling.size(), done.finished.size()); ++i) {
    auto& sequence = sequences_[step.sampling[i]];
    if (!seen.insert(step.sampling[i]).second) continue;
    ++sequence.sampled;
    if (done.finished[i] != 0 || sequence.sampled == needs_[step.sampling[i]].max_new_tokens)
      sequence.ended = true;
  }
}

void ScheduleChecker::on_release(const Release& release) {
  const auto lane = static_cast<std::size_t>(release.lane);
  const bool known =
      release.sequence < sequences_.size() && lane < sequences_[release.sequence].slots.size() &&
      sequences_[release.sequence].slots[lane] == release.slot &&
      owner_[static_cast<std::size_t>(release.slot)] == static_cast<std::int64_t>(release.sequence);
  expect(known, "a release of a slot that the sequence does not hold");
  if (!known) return;
  auto& sequence = sequences_[release.sequence];
  expect(sequence.open_steps == 0, name(release.sequence) + " is released while a step of it is in flight");
  owner_[static_cast<std::size_t>(release.slot)] = -1;
  expect(release.keep_memory == (sequence.followed && lane == 0),
         name(release.sequence) +
             (sequence.followed ? " leaves its follower nothing" : " leaves a memory behind"));
  if (release.keep_memory) kept_.insert(release.slot);
  if (lane == 0 && !sequence.followed) pages_ -= pages(release.sequence);
  sequence.released = true;
}

void ScheduleChecker::at_end(std::span<const std::size_t> unfit) {
  expect(steps_.empty(), "steps are in flight at the end");
  const bool encodes = std::ranges::any_of(encoding_, [](const auto& rank) { return !rank.second.empty(); });
  expect(!encodes && memories_.empty(), "memories are left at the end");
  expect(std::all_of(owner_.begin(), owner_.end(), [](auto owner) { return owner < 0; }),
         "a slot is held at the end");
  expect(pages_ == 0, "pages are held at the end");
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const auto& sequence = sequences_[i];
    if (std::find(unfit.begin(), unfit.end(), i) != unfit.end()) {
      expect(sequence.run == 0, name(i) + " was called unfit and ran");
      continue;
    }
    expect(sequence.released, name(i) + " was never released");
    expect(sequence.run >= needs_[i].prompt_tokens, name(i) + " did not run its prompt");
    expect(sequence.ended || needs_[i].max_new_tokens == 0, name(i) + " did not run to its end");
  }
}

// What its first forerunner reserved: for all that follow.
std::int64_t ScheduleChecker::pages(std::size_t sequence) const {
  while (sequences_[sequence].before >= 0) sequence = static_cast<std::size_t>(sequences_[sequence].before);
  return pages_needed(needs_[sequence], config_.page_tokens);
}

void ScheduleChecker::expect(bool holds, const std::string& problem) {
  if (!holds) problems_.push_back(problem);
}

}  // namespace diffuse

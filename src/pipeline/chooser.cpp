#include "pipeline/chooser.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.hpp"

namespace diffuse {
namespace {

template <typename Value>
void append(std::vector<std::byte>& bytes, const Value& value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof value);
}

template <typename Value>
Value take(std::span<const std::byte>& bytes) {
  Value value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes = bytes.subspan(sizeof value);
  return value;
}

bool plain_greedy(const SampleSpec& spec) {
  return spec.temperature == 0 && spec.logprobs < 0 && spec.candidates == 0 && spec.codebooks == 0 &&
         !spec.reads_history();
}

SamplingParams params_of(const SampleSpec& spec) {
  return {.temperature = spec.temperature,
          .top_k = spec.top_k,
          .top_p = spec.top_p,
          .min_p = spec.min_p,
          .repetition_penalty = spec.repetition_penalty,
          .logprobs = spec.logprobs};
}

// Whether a row can be chosen from: no NaN, no plus infinity, and something that is possible.
bool usable(std::span<const float> logits) {
  bool any = false;
  for (const auto logit : logits) {
    const bool finite = logit - logit == 0;
    if (!finite && !(logit < 0)) return false;
    any = any || finite;
  }
  return any;
}

}  // namespace

std::size_t answer_bytes(const Descriptor& step, std::span<const SampleSpec> slots) {
  std::size_t bytes = sizeof(std::uint64_t);
  for (int i = 0; i < step.entries; ++i) {
    const auto& entry = step.entry[static_cast<std::size_t>(i)];
    const auto& slot = slots[static_cast<std::size_t>(entry.slot)];
    const auto top = static_cast<std::size_t>(slot.alternatives());
    const auto codes = static_cast<std::size_t>(slot.codebooks) * sizeof(std::int32_t);
    bytes += entry.sample * (codes > 0 ? codes : sizeof(WireToken) + top * sizeof(TokenLogprob));
  }
  return bytes;
}

std::vector<ChosenToken> read_answer(std::span<const std::byte> bytes, const Descriptor& step,
                                     std::span<const SampleSpec> slots) {
  if (bytes.size() != answer_bytes(step, slots))
    throw_internal("an answer of the last stage has the wrong size");
  if (take<std::uint64_t>(bytes) != step.number)
    throw_internal("an answer of the last stage belongs to another step");
  std::vector<ChosenToken> tokens;
  for (int i = 0; i < step.entries; ++i) {
    const auto& entry = step.entry[static_cast<std::size_t>(i)];
    const auto& slot = slots[static_cast<std::size_t>(entry.slot)];
    for (int draw = 0; draw < entry.sample; ++draw) {
      auto& chosen = tokens.emplace_back();
      for (auto left = slot.codebooks; left > 0; --left) chosen.codes.push_back(take<std::int32_t>(bytes));
      if (slot.codebooks > 0) {
        chosen.token.id = chosen.codes.front();
        continue;
      }
      const auto wire = take<WireToken>(bytes);
      chosen.token = {wire.id, wire.logprob, {}};
      chosen.probe = wire.probe;
      auto& token = chosen.token;
      for (auto left = slot.alternatives(); left > 0; --left) token.top.push_back(take<TokenLogprob>(bytes));
    }
  }
  return tokens;
}

Chooser::Chooser(Executor& executor, Backend& backend) : executor_(executor), backend_(backend) {}

Chooser::SlotState& Chooser::slot_of(std::int32_t slot) {
  const auto index = static_cast<std::size_t>(slot);
  if (slots_.size() <= index) slots_.resize(index + 1);
  return slots_[index];
}

void Chooser::admit(const Descriptor& command) {
  auto& slot = slot_of(command.slot);
  slot.sampling = command.sampling;
  slot.probe = 0;
  slot.likely.assign(command.sampling.watched_ids > 0 ? static_cast<std::size_t>(command.prompt_tokens) : 0,
                     0.0F);
  if (!command.sampling.reads_history()) slot.history.clear();
}

std::vector<float> Chooser::take_likely(std::int32_t slot) {
  return std::exchange(slot_of(slot).likely, {});
}

void Chooser::tell(const Descriptor& command, std::span<const std::int32_t> told) {
  auto& slot = slot_of(command.slot);
  const auto prompt = static_cast<std::size_t>(command.prompt_tokens);
  slot.prompt = command.prompt_tokens;
  slot.history.assign(told.begin(), told.begin() + static_cast<std::ptrdiff_t>(prompt));
  slot.rules = command.sampling.rules > 0 ? unpack_choice(told.subspan(prompt)) : ChoiceRules();
}

// The likeliest tokens that the rules leave, for beams.
SampledToken Chooser::rank(std::span<float> logits, const SlotState& slot) {
  const auto& spec = slot.sampling;
  if (!usable(logits)) return {};
  const bool left = counts_what_is_left(slot.rules);
  if (!left) make_logprobs(logits);
  if (spec.repetition_penalty != 1) penalize_repeats(logits, slot.history, spec.repetition_penalty);
  if (spec.rules > 0) apply_choice(slot.rules, slot.history, slot.prompt, logits);
  if (!usable(logits)) return {kNothingLeft, 0, {}};
  auto top = left ? top_logprobs(logits, spec.candidates, scratch_)
                  : highest_logprobs(logits, spec.candidates, scratch_);
  return {top.front().id, top.front().logprob, std::move(top)};
}

// `draw`: which of the tokens that are chosen from one row.
SampledToken Chooser::choose(std::span<float> logits, SlotState& slot, std::int64_t position,
                             std::int32_t draw) {
  const auto& spec = slot.sampling;
  auto params = params_of(spec);
  const SampleKey key{spec.seed, static_cast<std::uint64_t>(spec.request),
                      static_cast<std::uint32_t>(spec.sample + draw), static_cast<std::uint32_t>(position)};
  if (!usable(logits)) return {};
  if (spec.rules == 0) {
    auto token = sample_token(logits, params, slot.history, key, scratch_);
    if (spec.reads_history()) slot.history.push_back(token.id);
    return token;
  }
  SampledToken said;
  std::vector<float> own;
  if (spec.logprobs >= 0) own.assign(logits.begin(), logits.end());
  apply_choice(slot.rules, slot.history, slot.prompt, logits);
  if (!usable(logits)) return {kNothingLeft, 0, {}};
  if (spec.logprobs >= 0 && counts_what_is_left(slot.rules)) own.assign(logits.begin(), logits.end());
  params.logprobs = -1;
  said.id = sample_token(logits, params, slot.history, key, scratch_).id;
  if (spec.logprobs >= 0) said.logprob = token_logprob(own, said.id);
  if (spec.logprobs > 0) said.top = top_logprobs(own, spec.logprobs, scratch_);
  slot.history.push_back(said.id);
  return said;
}

// What the lanes of a sequence said before: lanes go on from one another, and who samples has no ids.
void Chooser::move_histories(const Descriptor& step) {
  std::vector<std::pair<std::int32_t, std::vector<std::int32_t>>> moved;
  for (int i = 0; i < step.entries; ++i) {
    const auto& entry = step.entry[static_cast<std::size_t>(i)];
    if (entry.token < 0) continue;
    const auto from = slots_[static_cast<std::size_t>(entry.from < 0 ? entry.slot : entry.from)].history;
    if (from.empty()) continue;  // nothing reads it
    auto& history = moved.emplace_back(entry.slot, from).second;
    history.resize(static_cast<std::size_t>(entry.first_position));
    history.push_back(entry.token);
  }
  for (auto& [slot, history] : moved) {
    auto& to = slots_[static_cast<std::size_t>(slot)];
    to.history = std::move(history);
  }
}

// The rows of a step that a sequence asks the probability of a token behind.
void Chooser::probe(const Descriptor& step, ConstRows hidden) {
  std::vector<std::int64_t> rows;
  std::vector<SlotState*> asking;
  std::int64_t row = 0;
  for (int i = 0; i < step.entries; ++i) {
    const auto& entry = step.entry[static_cast<std::size_t>(i)];
    auto& slot = slots_[static_cast<std::size_t>(entry.slot)];
    const auto at = slot.sampling.probe_position - entry.first_position;
    if (slot.sampling.probe_position >= 0 && at >= 0 && at < entry.rows) {
      rows.push_back(row + at);
      asking.push_back(&slot);
    }
    row += entry.rows;
  }
  if (rows.empty()) return;
  const auto values = downloaded(executor_.logits(hidden, rows));
  const auto width = values.size() / rows.size();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto logits = std::span(values).subspan(i * width, width);
    asking[i]->probe =
        usable(logits) ? static_cast<float>(token_probability(logits, asking[i]->sampling.probe_token)) : 0;
  }
}

// How likely the ids of watched prompts were behind the rows before them.
void Chooser::weigh_prompts(const Descriptor& step, ConstRows hidden) {
  std::int64_t first = 0;
  for (int i = 0; i < step.entries; ++i) {
    const auto& entry = step.entry[static_cast<std::size_t>(i)];
    auto& slot = slots_[static_cast<std::size_t>(entry.slot)];
    const auto below = slot.sampling.watched_ids;
    for (std::int64_t done = 0; below > 0 && done < entry.rows; done += kMaxEntries) {
      std::vector<std::int64_t> rows;
      for (auto row = done; row < std::min<std::int64_t>(done + kMaxEntries, entry.rows); ++row)
        rows.push_back(first + row);
      const auto values = downloaded(executor_.logits(hidden, rows));
      const auto width = values.size() / rows.size();
      for (std::size_t at = 0; at < rows.size(); ++at) {
        const auto next = static_cast<std::size_t>(entry.first_position + done) + at + 1;
        if (next >= slot.likely.size() || slot.history[next] >= below) continue;
        const auto logits = std::span(values).subspan(at * width, static_cast<std::size_t>(below));
        if (usable(logits))
          slot.likely[next] = static_cast<float>(token_probability(logits, slot.history[next]));
      }
    }
    first += entry.rows;
  }
}

std::vector<float> Chooser::downloaded(ConstRows logits) const {
  std::vector<float> values(static_cast<std::size_t>(logits.rows * logits.cols));
  backend_.download(std::as_writable_bytes(std::span(values)),
                    reinterpret_cast<const std::byte*>(logits.data));
  return values;
}

std::vector<std::byte> Chooser::sample(const Descriptor& step, ConstRows hidden) {
  move_histories(step);
  probe(step, hidden);
  weigh_prompts(step, hidden);
  std::vector<std::int64_t> rows;
  std::vector<const Entry*> entries;
  std::int64_t row = 0;
  bool all_greedy = true;
  for (int i = 0; i < step.entries; ++i) {
    const auto& entry = step.entry[static_cast<std::size_t>(i)];
    row += entry.rows;
    if (entry.sample == 0 && entry.guides == 0) continue;
    rows.push_back(row - 1);
    entries.push_back(&entry);
    const auto& spec = slots_[static_cast<std::size_t>(entry.slot)].sampling;
    all_greedy = all_greedy && entry.sample == 1 && plain_greedy(spec);
  }
  std::vector<std::byte> answer;
  append(answer, step.number);
  if (rows.empty()) return answer;
  const Rows logits = executor_.logits(hidden, rows);
  if (all_greedy) {
    std::vector<std::int32_t> ids(rows.size());
    backend_.argmax(logits, ids);
    for (std::size_t i = 0; i < ids.size(); ++i)
      append(answer, WireToken{ids[i], 0, slots_[static_cast<std::size_t>(entries[i]->slot)].probe});
    return answer;
  }
  auto values = downloaded(logits);
  const auto width = static_cast<std::size_t>(logits.cols);
  const auto logits_of = [&](std::size_t i) { return std::span(values).subspan(i * width, width); };
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i]->guides != 0) continue;  // looked at with the entry before it
    const bool guided = i + 1 < entries.size() && entries[i + 1]->guides != 0;
    if (slots_[static_cast<std::size_t>(entries[i]->slot)].sampling.codebooks > 0) {
      answer_codes(answer, *entries[i], logits_of(i), guided ? logits_of(i + 1) : std::span<float>());
    } else {
      answer_row(answer, *entries[i], logits_of(i));
    }
  }
  return answer;
}

void Chooser::answer_codes(std::vector<std::byte>& answer, const Entry& entry, std::span<float> row,
                           std::span<const float> free) {
  const auto& spec = slots_[static_cast<std::size_t>(entry.slot)].sampling;
  if (!free.empty()) guide(row, free, static_cast<float>(spec.guidance));
  const auto codebooks = static_cast<std::size_t>(spec.codebooks);
  const auto each = row.size() / codebooks;
  bool fine = true;
  for (std::size_t codebook = 0; codebook < codebooks; ++codebook)
    fine = fine && usable(row.subspan(codebook * each, each));
  const SampleKey key{spec.seed, static_cast<std::uint64_t>(spec.request),
                      static_cast<std::uint32_t>(spec.sample),
                      static_cast<std::uint32_t>(entry.first_position + entry.rows)};
  const auto codes = fine ? sample_codes(row, spec.codebooks, params_of(spec), key, scratch_)
                          : std::vector<std::int32_t>(codebooks, -1);
  for (const auto code : codes) append(answer, code);
}

// As many tokens of a row as its entry asks for.
void Chooser::answer_row(std::vector<std::byte>& answer, const Entry& entry, std::span<float> row) {
  auto& slot = slots_[static_cast<std::size_t>(entry.slot)];
  const auto position = entry.first_position + entry.rows;
  // Rules work in place; each draw begins with the row as it was.
  std::vector<float> copy;
  if (entry.sample > 1) copy.assign(row.begin(), row.end());
  const auto history = slot.history.size();
  for (std::int32_t draw = 0; draw < entry.sample; ++draw) {
    if (draw > 0) {
      std::copy(copy.begin(), copy.end(), row.begin());
      slot.history.resize(history);
    }
    auto token = slot.sampling.candidates > 0 ? rank(row, slot) : choose(row, slot, position, draw);
    append(answer, WireToken{token.id, token.logprob, slot.probe});
    token.top.resize(static_cast<std::size_t>(slot.sampling.alternatives()));
    for (const auto& alternative : token.top) append(answer, alternative);
  }
}

}  // namespace diffuse

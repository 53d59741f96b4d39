#pragma once
// What the last stage does with the rows that reach it: it chooses tokens where a step's entries ask for
// them, tells how likely others were, and says so in one answer a step. Owns what is known of each slot's
// tokens.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "schedule/step.hpp"
#include "slice/executor.hpp"
#include "text/choice_rules.hpp"
#include "text/codebook_sampling.hpp"
#include "text/sampling.hpp"

namespace diffuse {

// What the last stage says of one chosen token: as it travels, followed by its alternatives, TokenLogprobs.
struct WireToken {
  // -1: the logits hold a NaN or an infinity, no token can be chosen; kNothingLeft; of candidates the first
  std::int32_t id = -1;
  float logprob = 0;
  float probe = 0;  // see SampleSpec::probe_token
};
struct ChosenToken {
  SampledToken token;
  float probe = 0;
  // Of a slot that walks codebooks: an id of each, and `token.id` is that of the first. They travel alone.
  std::vector<std::int32_t> codes = {};
};
// Bytes of a step's answer: its number, then what was chosen for each sampling entry.
std::size_t answer_bytes(const Descriptor& step, std::span<const SampleSpec> slots);
std::vector<ChosenToken> read_answer(std::span<const std::byte> bytes, const Descriptor& step,
                                     std::span<const SampleSpec> slots);

class Chooser {
 public:
  // Of the last slice. References must outlive it.
  Chooser(Executor& executor, Backend& backend);

  // A lane takes a slot; `told`, where its sampling reads_history(): the prompt with the packed rules behind
  // it. The order of the two calls does not matter.
  void admit(const Descriptor& command);
  void tell(const Descriptor& command, std::span<const std::int32_t> told);
  // See SampleSpec::watched_ids; empty where nothing was watched.
  std::vector<float> take_likely(std::int32_t slot);

  // The answer to a step whose rows are `hidden` [rows, hidden].
  std::vector<std::byte> sample(const Descriptor& step, ConstRows hidden);

 private:
  struct SlotState {
    SampleSpec sampling;
    std::int64_t prompt = 0;            // ids
    std::vector<std::int32_t> history;  // prompt and generated ids, kept where a penalty or a rule reads them
    ChoiceRules rules;
    float probe = 0;
    std::vector<float> likely;  // [prompt]
  };

  SlotState& slot_of(std::int32_t slot);
  void move_histories(const Descriptor& step);
  void probe(const Descriptor& step, ConstRows hidden);
  void weigh_prompts(const Descriptor& step, ConstRows hidden);
  std::vector<float> downloaded(ConstRows logits) const;
  void answer_row(std::vector<std::byte>& answer, const Entry& entry, std::span<float> row);
  // `free`: the logits without the text, where the slot is guided.
  void answer_codes(std::vector<std::byte>& answer, const Entry& entry, std::span<float> row,
                    std::span<const float> free);
  SampledToken choose(std::span<float> logits, SlotState& slot, std::int64_t position, std::int32_t draw);
  SampledToken rank(std::span<float> logits, const SlotState& slot);

  Executor& executor_;
  Backend& backend_;
  std::vector<SlotState> slots_;
  SamplingScratch scratch_;
};

}  // namespace diffuse

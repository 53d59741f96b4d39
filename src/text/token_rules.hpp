#pragma once
// Rules on which tokens may come, beside their probabilities: what transformers' generate() does for a
// checkpoint whose generation_config.json asks for it. Pure.

#include <cstdint>
#include <span>
#include <vector>

namespace diffuse {

// Added to the logit of a run's last token where the rest of the run stands before it.
struct TokenBias {
  std::vector<std::int32_t> run;  // not empty
  float bias = 0;
  bool operator==(const TokenBias&) const = default;
};

struct TokenRules {
  std::vector<std::int32_t> end_ids;             // of the text
  std::int64_t least_tokens = 0;                 // none of them before so many, the prompt's counted
  std::int32_t forced_first = -1;                // the first generated token; -1: free
  std::vector<std::int32_t> forced_last;         // the last one that max_new_tokens has room for; empty: free
  std::int64_t most_tokens = 0;                  // prompt + max_new_tokens
  std::int32_t no_repeat = 0;                    // no run of so many tokens comes twice; 0: off
  std::vector<std::vector<std::int32_t>> never;  // runs of tokens that never come
  std::vector<std::int32_t> not_first;           // never the first generated token behind a forced one

  // Those below change logits instead of ruling tokens out, but for the second.
  std::vector<std::int32_t> source;   // what the encoder reads, or the prompt: of the next two
  std::int32_t no_repeat_source = 0;  // no run of so many tokens of `source` comes; 0: off
  double source_penalty = 1;          // over 1: what is not in `source` becomes less likely; above 0
  std::vector<TokenBias> biases;
  double decay_factor = 1;  // ends become likelier by |logit| * (factor ^ (tokens - decay_start) - 1) …
  std::int64_t decay_start = 0;  // … behind so many tokens, the prompt's counted
  bool operator==(const TokenRules&) const = default;

  bool empty() const;
  bool changes_logits() const;  // of tokens that it leaves possible
};

// As numbers that travel, and back. Throws internal where they are not what pack_rules made.
std::vector<std::int32_t> pack_rules(const TokenRules& rules);
TokenRules unpack_rules(std::span<const std::int32_t> words);

// Changes what the rules change, in the order of transformers' processors, and makes impossible (minus
// infinity) what they forbid behind `history`, of which the first `prompt` ids are the prompt's. A forced
// token is the only one left, with logit 0; ids outside the row are ignored.
void apply_rules(const TokenRules& rules, std::span<const std::int32_t> history, std::int64_t prompt,
                 std::span<float> logits);

}  // namespace diffuse

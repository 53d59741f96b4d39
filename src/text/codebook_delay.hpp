#pragma once
// The order in which a stack makes the codes of several codebooks (MusicGen's delay pattern, arXiv
// 2306.05284): codebook k runs k positions behind the first, so that a frame's codes are made one after the
// other although every position makes one of each. With four codebooks and eight positions, P being padding:
//
//     position    0 1 2 3 4 5 6 7
//     codebook 0  P a a a a P P P
//     codebook 1  P P a a a a P P
//     codebook 2  P P P a a a a P
//     codebook 3  P P P P a a a a
//
// With two channels the codebooks of left and right take turns, and both of a pair have the same delay. As
// transformers' build_delay_pattern_mask has it; so an answer of n new tokens has n + 1 - codebooks frames
// (half the codebooks with two channels), and one too short for the pattern is made without a delay.

#include <cstdint>
#include <span>
#include <vector>

namespace diffuse {

class CodebookDelay {
 public:
  // `new_tokens` >= 1: positions that are made, behind position 0, which is padding. `codebooks` is a
  // multiple of `channels`, 1 or 2. `padding` is no code.
  CodebookDelay(std::int64_t codebooks, std::int64_t channels, std::int64_t new_tokens, std::int32_t padding);

  std::int64_t codebooks() const { return codebooks_; }
  std::int64_t new_tokens() const { return new_tokens_; }
  std::int64_t frames() const { return frames_; }
  // Whether what stands there is a code of the answer, and not padding. 0 <= position <= new_tokens.
  bool is_code(std::int64_t position, std::int64_t codebook) const;

  // What the stack is fed at position 0: [codebooks].
  std::vector<std::int32_t> start() const;
  // Of the ids [codebooks] that were chosen for `position`: what the stack is fed there, and the answer has.
  void mask(std::int64_t position, std::span<std::int32_t> ids) const;
  // Ids [new_tokens, codebooks] of the positions from 1 on, masked or not -> codes [codebooks][frames].
  // Throws internal where there are not as many.
  std::vector<std::vector<std::int32_t>> undo(std::span<const std::int32_t> ids) const;

 private:
  std::int64_t delay(std::int64_t codebook) const;

  std::int64_t codebooks_;
  std::int64_t channels_;
  std::int64_t new_tokens_;
  std::int32_t padding_;
  bool delayed_;
  std::int64_t frames_;
};

}  // namespace diffuse

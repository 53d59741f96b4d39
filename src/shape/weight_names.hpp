// What the tensor names of a checkpoint say about its stacks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace diffuse {

struct NumberedStack {
  std::string path;     // "model.language_model.layers"
  int64_t highest = 0;  // the highest layer index seen
  int64_t tensors = 0;
};

// The numbered stack with the most tensors whose path names nothing that stands beside the answering stack.
// A stack that calls itself an encoder counts only where there is no other (and `encoder_is_elsewhere` is
// false).
std::optional<NumberedStack> answering_stack(std::span<const std::string> names, bool encoder_is_elsewhere);

// The stack of a diffusion transformer's folder: `single` asks for the one of single-stream blocks.
std::optional<NumberedStack> refining_stack(std::span<const std::string> names, bool two_kinds, bool single);

// A tensor that joins an early layer's output into a late layer, or "".
std::string long_skip_tensor(std::span<const std::string> names);

}  // namespace diffuse

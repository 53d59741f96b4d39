// What a transformers config says beside its depth: whether the class generates, what the stack reads, and
// whether its layers keep running state.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "shape/depth.hpp"
#include "shape/verdict.hpp"

namespace diffuse {

enum class Head {
  generates_alone,  // one stack, though the family may have an encoder too
  generates,        // with an encoder where the config says so
  generates_given,  // generates from something: media, or an encoder's output
  encodes,          // a class that only labels, fills gaps or embeds
  bare,             // a stack without a head, or parts without one answer
  unknown,
};

// Told by the ending of the class name.
Head head_of(std::string_view class_name);

bool generates(Head head);

// The class that answers: of several `architectures`, the first that generates. "" where none is named.
std::string answering_class(const nlohmann::json& config);

Media media_read(const DepthFinding& finding);

bool reads_encoder(const DepthFinding& finding, Head head, const Media& media);

// The key (or "key with entry") by which the answering stack carries running state from token to token.
std::optional<std::string> recurrent_mark(const DepthFinding& finding, bool reads_encoder);

// The checkpoint brings Python of its own that this build has no stated row for.
bool needs_own_python(const nlohmann::json& config, std::span<const std::string_view> known_families);
bool brings_own_python(const nlohmann::json& config);

}  // namespace diffuse

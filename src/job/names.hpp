#pragma once
// Names that a user may have misspelt, and the rules of what a request may hold, for specs and job files
// alike.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/json.hpp"

namespace diffuse::job_detail {

// The name of `known` that is the fewest edits (insert, delete, replace) away. `known` is
// not empty.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);

// "unknown key 'promt'; the nearest known one is 'prompt'"
std::string unknown_key(std::string_view word, std::span<const std::string_view> known);

// One sentence for a key that the design knows and this build cannot use (image, prompt_2, …); empty
// for others.
std::string not_yet(std::string_view key);

// Throws bad data where an id is not 1 to 200 bytes without control characters.
void check_id(const std::string& id, const std::string& what);

// Throws bad data where `language` and `task` are not such names, or `task` stands without sound.
void check_speech(const std::string& language, const std::string& task, bool audio, const std::string& what);

// What makes elements unusable as a latent, in a few words, or nothing. `shape` is empty or [channels,
// frames, height, width].
std::string latent_flaw(std::span<const float> latent, std::span<const std::int64_t> shape);

// Throws bad data where `messages` is not a list of {role, content} with content a string or a list of
// {type: text, text}.
void check_messages(const Json& messages, const std::string& what);

}  // namespace diffuse::job_detail

// Small, total readers of untrusted config JSON: whatever the type of a value, they answer and never throw.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace diffuse {

// Deeper than any stack that exists; above it a depth is a mistake or an attack.
inline constexpr int64_t kMaxDepth = 10'000;

// The value of `key` in `object`, or nullptr when it is absent or null, or when `object` is no object.
const nlohmann::json* declared(const nlohmann::json& object, std::string_view key);

// Whether `key` stands there as the boolean asked for.
bool declared_as(const nlohmann::json& object, std::string_view key, bool value);

std::string text_of(const nlohmann::json& object, std::string_view key);  // "" unless a string

// A whole number from `least` to kMaxDepth, or nothing.
std::optional<int64_t> count_of(const nlohmann::json& value, int64_t least = 1);

// The words of a key or a module path, cut at '_', '-' and '.', lower-cased: "vision_config" -> vision,
// config.
std::vector<std::string> words_of(std::string_view name);

bool has_word(std::string_view name, std::span<const std::string_view> words);

// A value as it may stand in a sentence: its JSON, cut short.
std::string quoted(const nlohmann::json& value);

}  // namespace diffuse

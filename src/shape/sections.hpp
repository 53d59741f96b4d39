// Finds the part of a config that describes the stack that answers: the root itself, or a sub-config of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace diffuse {

struct Section {
  std::string path;              // dotted, "" for the root
  const nlohmann::json* object;  // points into the config that was searched
};

// Whether a sub-config of this name describes what stands in front of, behind or beside the answering stack
// (encoders, towers, codecs, projectors, helper decoders). Its keys say nothing about the stack.
bool is_side_section(std::string_view name);

// All sub-configs of `section` that may hold the answering stack, the well-known names first.
std::vector<Section> stack_candidates(const Section& section);

// `path.key`, or `key` at the root.
std::string joined(std::string_view path, std::string_view key);

// The sections from the root down to `path`, both included; the root comes first.
std::vector<Section> chain_to(const nlohmann::json& root, std::string_view path);

}  // namespace diffuse

#include "shape/weight_names.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "shape/config_view.hpp"
#include "shape/sections.hpp"

namespace diffuse {
namespace {

constexpr std::array<std::string_view, 1> kEncoderWord = {"encoder"};
constexpr std::array<std::string_view, 6> kOtherTowers = {"vision", "visual", "audio",
                                                          "image",  "speech", "text"};
constexpr std::array<std::string_view, 1> kSingleWord = {"single"};
constexpr std::array<std::string_view, 2> kRefinerWords = {"refiner", "controlnet"};

std::optional<int64_t> index_of(std::string_view part) {
  constexpr size_t kMostDigits = 6;
  if (part.empty() || part.size() > kMostDigits) return std::nullopt;
  int64_t index = 0;
  for (const char digit : part) {
    if (digit < '0' || digit > '9') return std::nullopt;
    index = index * 10 + (digit - '0');
  }
  return index;
}

// Grouped by the path before a name's first number: experts and sub-layers are numbered behind it.
std::vector<NumberedStack> numbered_stacks(std::span<const std::string> names) {
  std::map<std::string, NumberedStack, std::less<>> found;
  for (const std::string& name : names) {
    const std::string_view whole(name);
    for (size_t at = 0; at < whole.size();) {
      const size_t dot = std::min(whole.find('.', at), whole.size());
      if (const auto index = index_of(whole.substr(at, dot - at)); index && at > 1) {
        const std::string path(whole.substr(0, at - 1));
        NumberedStack& stack = found[path];
        stack.path = path;
        stack.highest = std::max(stack.highest, *index);
        ++stack.tensors;
        break;
      }
      at = dot + 1;
    }
  }
  std::vector<NumberedStack> stacks;
  for (auto& [path, stack] : found) stacks.push_back(std::move(stack));
  return stacks;
}

std::optional<NumberedStack> largest(std::span<const NumberedStack> stacks, auto fits) {
  std::optional<NumberedStack> best;
  for (const NumberedStack& stack : stacks) {
    if (fits(stack) && (!best || stack.tensors > best->tensors)) best = stack;
  }
  return best;
}

}  // namespace

std::optional<NumberedStack> answering_stack(std::span<const std::string> names, bool encoder_is_elsewhere) {
  const std::vector<NumberedStack> stacks = numbered_stacks(names);
  auto main = largest(stacks, [](const NumberedStack& stack) { return !is_side_section(stack.path); });
  if (main || encoder_is_elsewhere) return main;
  return largest(stacks, [](const NumberedStack& stack) {
    return has_word(stack.path, kEncoderWord) && !has_word(stack.path, kOtherTowers);
  });
}

std::optional<NumberedStack> refining_stack(std::span<const std::string> names, bool two_kinds, bool single) {
  return largest(numbered_stacks(names), [&](const NumberedStack& stack) {
    if (has_word(stack.path, kRefinerWords)) return false;
    return !two_kinds || has_word(stack.path, kSingleWord) == single;
  });
}

std::string long_skip_tensor(std::span<const std::string> names) {
  const auto joins = [](const std::string& name) { return name.find(".skip_linear.") != std::string::npos; };
  const auto found = std::ranges::find_if(names, joins);
  return found == names.end() ? std::string() : *found;
}

}  // namespace diffuse

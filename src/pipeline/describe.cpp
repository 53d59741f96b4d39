#include "pipeline/describe.hpp"

#include <algorithm>
#include <cstdint>

namespace diffuse {
namespace {

// "request 3, 4 and 2 more"; `request` says whose an entry is.
template <typename Request>
std::string listed(const Descriptor& descriptor, Request request) {
  constexpr int kMostNamed = 4;
  std::string text = "request";
  for (int i = 0; i < std::min<int>(descriptor.entries, kMostNamed); ++i) {
    const std::int64_t number = request(descriptor.entry[static_cast<std::size_t>(i)]);
    text += (i == 0 ? " " : ", ") + std::to_string(number);
  }
  if (descriptor.entries > kMostNamed)
    text += " and " + std::to_string(descriptor.entries - kMostNamed) + " more";
  return text;
}

}  // namespace

std::string describe_requests(const Descriptor& step, std::span<const SampleSpec> slots) {
  return "step " + std::to_string(step.number) + ", " + listed(step, [&](const Entry& entry) {
           return slots[static_cast<std::size_t>(entry.slot)].request;
         });
}

std::string describe_batch(const Descriptor& batch) {
  return listed(batch, [](const Entry& entry) { return entry.token; });
}

}  // namespace diffuse

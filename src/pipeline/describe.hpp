#pragma once
// Which requests a message is about, for who reads that it did not come.

#include <span>
#include <string>

#include "schedule/step.hpp"

namespace diffuse {

// "step 17, request 3, 4": whose rows a step holds.
std::string describe_requests(const Descriptor& step, std::span<const SampleSpec> slots);

// "request 3, 4": whose inputs a batch to encode holds.
std::string describe_batch(const Descriptor& batch);

}  // namespace diffuse

#pragma once
// What a backend is told of the blocks that run on it before their first step.

#include <cstdint>
#include <vector>

#include "backend/backend.hpp"
#include "slice/weights.hpp"

namespace diffuse {

struct StepLimits {
  std::int64_t rows = 0;
  std::int64_t samples = 0;    // sequences
  std::int64_t positions = 0;  // that the model has
  std::int64_t pages = 0;      // of keys and values
};

// The key-value pools of the loaded steps are set; the arguments refer to them.
ExpectedSteps expected_steps(const std::vector<std::vector<LoadedStep>>& blocks, const StepLimits& limits);

}  // namespace diffuse

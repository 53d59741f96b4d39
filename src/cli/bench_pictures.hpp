#pragma once
// The part of `diffuse bench` that concerns pictures: how long a step of the scheduler takes.

#include <cstdint>
#include <vector>

#include "cli/model.hpp"
#include "cli/plan_pictures.hpp"
#include "pipeline/picture_request.hpp"
#include "pipeline/split_run.hpp"

namespace diffuse {

struct MeasuredPictures {
  double steps_per_second = 0;  // of all requests together
  std::vector<double> busy;     // a stage
};

// Rank 0: so many requests of one made-up prompt and noise, side by side through `split`. Throws bad data
// where the model makes no pictures of that size, or no memory has room for them.
MeasuredPictures measure_pictures(SplitRun& split, const Model& model, std::int64_t requests,
                                  const PicturePlanFlags& flags, const RunOptions& options);

}  // namespace diffuse

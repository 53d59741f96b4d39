#pragma once
// What pictures under way are heading for, every so many steps: latents for somebody to look at.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/refinement_driver.hpp"

namespace diffuse {

// Where the line through a latent before a step and behind it comes to where no noise is left; `from` and
// `to`: the noise levels at both, of flow (latent = (1 - level) * data + level * noise, so that a latent
// moves along a line where a network has made up its mind). All [elements].
std::vector<float> heading_for(std::span<const float> before, std::span<const float> behind, float from,
                               float to);

class Previews {
 public:
  // `every`: so many steps, at least 1. `pictures`: as they start. Copies what it needs.
  Previews(std::int64_t every, std::span<const Picture> pictures);

  // To be told of each step: the rows of what the picture is heading for, where this is a step to look at it
  // (never the last, whose picture is the answer). Of a schedule other than flow, the latent as it stands.
  std::optional<std::vector<float>> on_step(std::size_t picture, const SteppedPicture& stepped);

 private:
  struct Of {
    std::shared_ptr<const Scheduler> scheduler;
    std::vector<float> before;  // the rows before the next step, where that is one to look at
  };
  bool due(std::int64_t step) const { return step % every_ == 0; }

  std::int64_t every_;
  std::vector<Of> pictures_;
};

}  // namespace diffuse

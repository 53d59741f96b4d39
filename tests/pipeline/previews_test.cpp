// What pictures under way are heading for.

#include "pipeline/previews.hpp"

#include <gtest/gtest.h>

#include "core/json.hpp"

namespace diffuse::test {
namespace {

TEST(Previews, AStraightLineLeadsToItsEnd) {
  // latent = (1 - level) * data + level * noise, at levels 0.8 and 0.5.
  const std::vector<float> data = {2, -1, 0.5F};
  const std::vector<float> noise = {-1, 3, 0.25F};
  const auto at = [&](float level) {
    std::vector<float> latent;
    for (std::size_t i = 0; i < data.size(); ++i) latent.push_back((1 - level) * data[i] + level * noise[i]);
    return latent;
  };
  const auto found = heading_for(at(0.8F), at(0.5F), 0.8F, 0.5F);
  for (std::size_t i = 0; i < data.size(); ++i) EXPECT_NEAR(found[i], data[i], 1e-6);
}

TEST(Previews, EverySoManyStepsAndNeverTheLast) {
  const Json config = {
      {"_class_name", "FlowMatchEulerDiscreteScheduler"}, {"num_train_timesteps", 1000}, {"shift", 1.0}};
  Picture picture;
  picture.scheduler = std::make_shared<const Scheduler>(make_scheduler(config, 6));
  picture.rows = {1};
  const auto shown = [&](std::int64_t every, std::int64_t first) {
    picture.first_step = first;
    Previews previews(every, std::span(&picture, 1));
    std::vector<std::int64_t> at;
    for (std::int64_t step = first + 1; step <= 6; ++step) {
      // As a line from 1, where all is noise, to 0 would have it.
      const std::vector<float> rows = {picture.scheduler->sigmas()[static_cast<std::size_t>(step)]};
      const auto data = previews.on_step(0, {.step = step, .can_start = true, .rows = rows, .state = {}});
      if (!data) continue;
      at.push_back(step);
      // Those before the first are not known to lie on it.
      if (first == 0) {
        EXPECT_NEAR(data->at(0), 0, 1e-6) << step;
      }
    }
    return at;
  };
  using Steps = std::vector<std::int64_t>;
  EXPECT_EQ(shown(2, 0), (Steps{2, 4}));
  EXPECT_EQ(shown(1, 0), (Steps{1, 2, 3, 4, 5}));
  EXPECT_EQ(shown(6, 0), Steps{});
  EXPECT_EQ(shown(4, 3), Steps{4});
}

}  // namespace
}  // namespace diffuse::test

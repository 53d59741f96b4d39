// Stacks that refine against diffusers, and against themselves: cuts, threads and patches.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "refinement_cases.hpp"

namespace diffuse::test {
namespace {

// Of the largest absolute value of the reference.
constexpr double kTolerance = 2e-5;

struct Named {
  std::string name;
  std::filesystem::path model, golden;
};
void PrintTo(const Named& named, std::ostream* out) {
  *out << named.name;
}

std::vector<Named> cases() {
  const auto demo = std::filesystem::path(DIFFUSE_TEST_DATA).parent_path().parent_path() / "demo" / "wan";
  std::vector<Named> all = {{"wan", refinement_data() / "wan", refinement_data() / "wan"},
                            {"quiet", refinement_data() / "wan-quiet", refinement_data() / "wan-quiet"},
                            {"demo", demo, refinement_data() / "demo"}};
  if (const char* extra = std::getenv("DIFFUSE_REFINEMENT_EXTRA")) {
    std::stringstream list(extra);
    for (std::string folder; std::getline(list, folder, ':');) all.push_back({"extra", folder, folder});
  }
  return all;
}

double largest(const Floats& values) {
  double most = 0;
  for (const auto value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

double worst(const Floats& found, const Floats& reference) {
  EXPECT_EQ(found.size(), reference.size());
  double most = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!std::isfinite(found[i])) return HUGE_VAL;
    most = std::max(most, std::abs(static_cast<double>(found[i]) - static_cast<double>(reference[i])));
  }
  return most;
}

// Both branches of a guided request, in slots 0 and 1 of a stack.
class Guided {
 public:
  Guided(const RefinementCase& subject, Backend& backend, const std::string& slices, bool history = false)
      : subject_(subject),
        texts_(encode(subject.pipeline, backend, subject.texts())),
        stack_(subject.pipeline, backend, slices, subject.grid.tokens(),
               subject.call.at("max_sequence_length").get<std::int64_t>(), 2, history) {
    for (std::int32_t slot = 0; slot < 2; ++slot)
      stack_.admit(slot, subject.grid, texts_[static_cast<std::size_t>(slot)]);
  }

  Floats step(int number, std::int64_t patches = 1, float extrapolation = 0) {
    const auto latents = subject_.latents_before(number);
    const auto time = subject_.timestep(number);
    auto text = stack_.step(0, time, latents, patches, extrapolation);
    const auto bare = stack_.step(1, time, latents, patches, extrapolation);
    const auto scale = subject_.call.at("guidance_scale").get<float>();
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = bare[i] + scale * (text[i] - bare[i]);
    return text;
  }
  Stack& stack() { return stack_; }

 private:
  const RefinementCase& subject_;
  std::vector<Floats> texts_;
  Stack stack_;
};

std::string whole(const RefinementCase& subject) {
  return "0-" + std::to_string(subject.pipeline.recipe.depth() - 1);
}

class Refinements : public testing::TestWithParam<Named> {
 public:
  Refinements() : subject_(GetParam().model, GetParam().golden) {}

  RefinementCase subject_;
};

INSTANTIATE_TEST_SUITE_P(, Refinements, testing::ValuesIn(cases()),
                         [](const auto& subject) { return subject.param.name; });

TEST_P(Refinements, PredictWhatDiffusersPredicts) {
  for (const auto& processor : processors()) {
    SCOPED_TRACE(processor);
    const auto backend = make_backend(processor, 2, Compute::f32);
    Guided guided(subject_, *backend, whole(subject_));
    int steps = 0;
    for (int step = 1; subject_.has_step(step); ++step, ++steps) {
      const auto found = guided.step(step);
      const auto reference = subject_.arrays.floats("prediction." + std::to_string(step)).values;
      EXPECT_LE(worst(found, reference), kTolerance * largest(reference))
          << "step " << step << ": " << worst(found, reference) / largest(reference);
    }
    EXPECT_GE(steps, 3);
  }
}

}  // namespace
}  // namespace diffuse::test

// Schedulers against diffusers': fed with the same predictions, each latent is the same. Cut at any elements
// and kept at any step, the bits are those of the whole.

#include "sampler/scheduler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "arrays.hpp"
#include "core/error.hpp"

namespace diffuse {
namespace {

using test::Arrays;
using Floats = std::vector<float>;
const std::filesystem::path kData = DIFFUSE_TEST_DATA;

double largest(std::span<const float> values) {
  double most = 0;
  for (const auto value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

double worst_difference(std::span<const float> found, std::span<const float> expected) {
  EXPECT_EQ(found.size(), expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    const double difference = std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
    worst = std::isfinite(difference) ? std::max(worst, difference) : HUGE_VAL;
  }
  return worst;
}

std::span<const float> row(const test::FloatArray& array, std::size_t index) {
  const auto width = array.shape.back();
  return std::span(array.values).subspan(index * width, width);
}

struct Case {
  std::string name;
  Json config;
  std::int64_t steps;
};

void PrintTo(const Case& each, std::ostream* out) {
  *out << each.name;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto file = read_json(kData / "sampler/cases.json");
  for (const auto& [name, about] : file.items())
    all.push_back({name, about.at("config"), about.at("steps").get<std::int64_t>()});
  return all;
}

std::string test_name(const testing::TestParamInfo<Case>& info) {
  auto name = info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char letter) { return std::isalnum(letter) == 0; }, '_');
  return name;
}

class AgainstDiffusers : public testing::TestWithParam<Case> {
 public:
  static const Arrays& arrays() {
    static const Arrays kArrays(kData / "sampler/golden.safetensors");
    return kArrays;
  }
  test::FloatArray array(const std::string& what) const {
    return arrays().floats(GetParam().name + "." + what);
  }
  Scheduler scheduler() const { return make_scheduler(GetParam().config, GetParam().steps); }
};

TEST_P(AgainstDiffusers, HasItsTimestepsAndLevels) {
  const auto made = scheduler();
  const auto timesteps = array("timesteps").values;
  const auto sigmas = array("sigmas").values;
  EXPECT_EQ(made.steps(), static_cast<std::size_t>(GetParam().steps));
  ASSERT_EQ(made.timesteps().size(), timesteps.size());
  for (std::size_t i = 0; i < timesteps.size(); ++i)
    EXPECT_FLOAT_EQ(made.timesteps()[i], timesteps[i]) << "step " << i;
  ASSERT_EQ(made.sigmas().size(), timesteps.size() + 1);
  for (std::size_t i = 0; i <= timesteps.size(); ++i)
    EXPECT_NEAR(made.sigmas()[i], sigmas[i], 4e-7 * static_cast<double>(sigmas[i])) << "level " << i;
}

TEST_P(AgainstDiffusers, GivesItsLatents) {
  const auto made = scheduler();
  const auto predictions = array("predictions");
  const auto latents = array("latents");
  auto latent = array("start").values;
  for (auto& value : latent) value *= made.start_scale();
  SamplerState state;
  for (std::size_t i = 0; i < made.steps(); ++i) {
    if (arrays().has(GetParam().name + ".inputs")) {
      auto input = latent;
      for (auto& value : input) value /= made.input_divisor(i);
      EXPECT_LE(worst_difference(input, row(array("inputs"), i)), 1e-5 * largest(input)) << "step " << i;
    }
    made.step(i, row(predictions, i), latent, state);
    EXPECT_LE(worst_difference(latent, row(latents, i)), 1e-5 * largest(row(latents, i))) << "step " << i;
  }
  EXPECT_EQ(state.earlier.size() + (state.sample.empty() ? 0U : 1U),
            std::min(made.kept_arrays(), made.steps() + 1));
}

TEST_P(AgainstDiffusers, IsTheSameInPartsAndFromKeptStates) {
  const auto made = scheduler();
  const auto predictions = array("predictions");
  auto whole = array("start").values;
  auto parts = whole;
  SamplerState whole_state;
  SamplerState parts_state;
  for (std::size_t i = 0; i < made.steps(); ++i) {
    const auto prediction = row(predictions, i);
    made.step(i, prediction, whole, whole_state);
    // Cut elsewhere at every step, and each part's state goes to bytes and back.
    const std::size_t cuts[] = {0, 1 + i % 5, 6 + i % 3, parts.size()};
    std::vector<SamplerState> states;
    for (std::size_t part = 0; part + 1 < std::size(cuts); ++part) {
      const auto first = cuts[part];
      const auto count = cuts[part + 1] - first;
      auto state = sampler_state_of(to_bytes(cut_state(parts_state, first, count)));
      made.step(i, prediction.subspan(first, count), std::span(parts).subspan(first, count), state);
      states.push_back(std::move(state));
    }
    parts_state = join_states(states);
    ASSERT_EQ(parts, whole) << "step " << i;
    ASSERT_EQ(parts_state, whole_state) << "step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, AgainstDiffusers, testing::ValuesIn(cases()), test_name);

// Whole runs of Wan's pipeline, as they were recorded.
TEST(Scheduler, FollowsRunsOfWan) {
  for (const std::string name : {"wan", "wan-quiet"}) {
    SCOPED_TRACE(name);
    const auto folder = kData / "refinement" / name;
    const Arrays golden(folder / "golden.safetensors");
    const auto made = make_scheduler(read_json(folder / "scheduler/scheduler_config.json"), 6);
    EXPECT_EQ(made.timesteps(), golden.floats("timesteps").values);
    EXPECT_EQ(made.sigmas(), golden.floats("sigmas").values);
    auto latent = golden.floats("start").values;
    SamplerState state;
    for (std::size_t i = 0; i < made.steps(); ++i) {
      const auto number = std::to_string(i + 1);
      made.step(i, golden.floats("prediction." + number).values, latent, state);
      const auto expected = golden.floats("latents." + number).values;
      EXPECT_LE(worst_difference(latent, expected), 1e-6 * largest(expected)) << "step " << number;
    }
  }
}

TEST(Scheduler, HasTheLevelsOfTheTrainedDemo) {
  const auto demo = kData.parent_path().parent_path() / "demo/wan";
  const Arrays golden(kData / "refinement/demo/golden.safetensors");
  const auto made = make_scheduler(read_json(demo / "scheduler/scheduler_config.json"), 20);
  EXPECT_EQ(made.sigmas(), golden.floats("sigmas").values);
  auto latent = golden.floats("start").values;
  SamplerState state;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto number = std::to_string(i + 1);
    made.step(i, golden.floats("prediction." + number).values, latent, state);
    const auto expected = golden.floats("latents." + number).values;
    EXPECT_LE(worst_difference(latent, expected), 1e-6 * largest(expected)) << "step " << number;
  }
}

// log alpha - log sigma at each step: diffusers' _sigma_to_alpha_sigma_t where a scheduler has it, else by
// the same formulas (flow: 1 - sigma and sigma; betas: the quotient is 1 / sigma).
TEST(Scheduler, KnowsItsSignalToNoiseAsDiffusersDoes) {
  constexpr double kMost = -9.2102403669758;  // of a flow's sigma 0.9999, which nothing is more than
  const std::vector<std::pair<std::string, std::vector<double>>> expected{
      // A flow's first step comes from noise alone, or nearly.
      {"unipc-wan-5", {kMost, -2.48615729, -1.50574425, -0.695646521, 0.282689553}},
      {"dpm-flow-2-midpoint-5", {-8.00539139, -2.47991426, -1.50157793, -0.691480204, 0.288932561}},
      {"flow-6", {kMost, -2.48865316, -1.5090701, -0.700626569, 0.272778608, 4.70953016}},
      {"flow-terminal", {kMost, -1.91168588, -0.845396854, 0.162078087, 2.19722456}},
      {"unipc-epsilon-True",
       {-5.05883654, -3.87467081, -2.8476372, -1.97215411, -1.23633372, -0.588472982, 0.0428721575,
        0.844103133}},
      {"unipc-karras", {-5.05883654, -3.92357438, -2.56786701, -0.884960431, 1.33507634, 4.60503722}},
      {"euler-log-linear", {-5.05883644, -3.44819066, -1.83754517, -0.226899782, 1.38374594, 2.99439146}},
  };
  const auto all = cases();
  for (const auto& [name, levels] : expected) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Case& each) { return each.name == name; });
    ASSERT_NE(found, all.end()) << name;
    const auto made = make_scheduler(found->config, found->steps);
    ASSERT_EQ(made.steps(), levels.size()) << name;
    // Sigmas are f32: 6e-8 of a flow's 0.9997 is 2e-4 of what lies between it and 1.
    for (std::size_t i = 0; i < levels.size(); ++i)
      EXPECT_NEAR(made.log_signal_to_noise(i), levels[i], levels[i] < -8 ? 3e-4 : 2e-6) << name << " " << i;
    EXPECT_ANY_THROW(made.log_signal_to_noise(levels.size() + 1));
  }
}

Scheduler wan_scheduler(std::int64_t steps) {
  return make_scheduler(read_json(kData / "refinement/wan/scheduler/scheduler_config.json"), steps);
}

TEST(Scheduler, StepsOnlyFromTheStateBeforeAndOverItsElements) {
  const auto made = wan_scheduler(4);
  Floats latent(8, 1);
  const Floats prediction(8, 0.5F);
  SamplerState state;
  EXPECT_THROW(made.step(1, prediction, latent, state), Error);
  made.step(0, prediction, latent, state);
  EXPECT_THROW(made.step(0, prediction, latent, state), Error);
  EXPECT_THROW(made.step(1, prediction, std::span(latent).first(4), state), Error);
  Floats fewer(4, 1);
  EXPECT_THROW(made.step(1, std::span(prediction).first(4), fewer, state), Error);
  for (std::size_t i = 1; i < 4; ++i) made.step(i, prediction, latent, state);
  EXPECT_THROW(made.step(4, prediction, latent, state), Error);
}

TEST(SamplerState, RefusesBytesOfAnother) {
  const auto made = wan_scheduler(3);
  Floats latent(5, 1);
  SamplerState state;
  EXPECT_EQ(sampler_state_of(to_bytes(state)), state);
  made.step(0, Floats(5, 2), latent, state);
  const auto bytes = to_bytes(state);
  EXPECT_EQ(sampler_state_of(bytes), state);
  EXPECT_THROW(sampler_state_of(std::span(bytes).first(bytes.size() - 1)), Error);
  EXPECT_THROW(sampler_state_of(std::span(bytes).first(10)), Error);
  for (const std::size_t at : {0, 16, 24, 32}) {
    auto damaged = bytes;
    damaged[at + 7] ^= std::byte{0x40};
    EXPECT_THROW(sampler_state_of(damaged), Error) << at;
  }
  EXPECT_THROW(cut_state(state, 3, 3), Error);
  const SamplerState parts[] = {state, SamplerState{}};
  EXPECT_THROW(join_states(parts), Error);
}

}  // namespace
}  // namespace diffuse

// What this build has of a scheduler's config is read, the rest is refused by name.

#include "sampler/scheduler_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "sampler/scheduler.hpp"

namespace diffuse {
namespace {

using ::testing::HasSubstr;

Json config(const Json& changes, const std::string& kind = "UniPCMultistepScheduler") {
  Json whole = {{"_class_name", kind},     {"prediction_type", "flow_prediction"},
                {"use_flow_sigmas", true}, {"flow_shift", 3.0},
                {"thresholding", false},   {"solver_p", nullptr}};
  whole.update(changes);
  return whole;
}

std::string refusal(const Json& whole, ExitCode code = ExitCode::refused, std::int64_t steps = 4) {
  try {
    make_scheduler(whole, steps, "'x/scheduler_config.json'");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing";
}

TEST(SchedulerConfig, RefusesByNameWhatThisBuildDoesNotHave) {
  const Json cases[] = {
      {{"thresholding", true}},         {{"solver_p", {{"a", 1}}}},
      {{"use_dynamic_shifting", true}}, {{"use_beta_sigmas", true}},
      {{"trained_betas", {0.1, 0.2}}},  {{"rescale_betas_zero_snr", true}},
      {{"solver_type", "lobatto"}},     {{"solver_order", 4}},
      {{"prediction_type", "score"}},   {{"predict_x0", false}},
      {{"final_sigmas_type", "one"}},   {{"timestep_spacing", "random"}},
      {{"beta_schedule", "sigmoid"}},   {{"a_new_key", 0.5}},
      {{"stochastic_sampling", true}},  {{"use_lu_lambdas", true}},
  };
  for (const auto& each : cases) {
    const auto message = refusal(config(each));
    // predict_x0 stands in the way of a prediction of the flow, which is what the message names.
    const auto key = each.contains("predict_x0") ? "prediction_type" : each.begin().key();
    EXPECT_THAT(message, HasSubstr("'x/scheduler_config.json': '" + key + "' is ")) << each.dump();
  }
  EXPECT_THAT(refusal(config({{"_class_name", "DDIMScheduler"}})), HasSubstr("\"DDIMScheduler\""));
  EXPECT_THAT(refusal(config({{"algorithm_type", "sde-dpmsolver++"}}, "DPMSolverMultistepScheduler")),
              HasSubstr("'algorithm_type' is \"sde-dpmsolver++\""));
  EXPECT_THAT(refusal(config({{"variance_type", "learned_range"}}, "DPMSolverMultistepScheduler")),
              HasSubstr("'variance_type'"));
  EXPECT_THAT(refusal(config({{"prediction_type", "epsilon"}, {"timestep_type", "continuous"}},
                             "EulerDiscreteScheduler")),
              HasSubstr("'timestep_type'"));
  EXPECT_THAT(refusal(config({{"prediction_type", "flow_prediction"}}, "EulerDiscreteScheduler")),
              HasSubstr("'prediction_type'"));
  EXPECT_THAT(refusal(config({{"use_flow_sigmas", false}, {"shift_terminal", 0.1}})),
              HasSubstr("'shift_terminal'"));
}

TEST(SchedulerConfig, TakesKeysOfOtherClassesThatDiffusersCarriesAlong) {
  EXPECT_EQ(refusal(config({{"clip_sample", true},
                            {"shift", 7.0},
                            {"algorithm_type", "sde-dpmsolver++"},
                            {"_use_default_values", {"a"}},
                            {"a_new_key", nullptr}})),
            "nothing");
}

TEST(SchedulerConfig, SaysWhichValueIsWrong) {
  const auto wrong = [](const Json& changes) { return refusal(config(changes), ExitCode::bad_data); };
  EXPECT_THAT(wrong({{"flow_shift", "three"}}), HasSubstr("'flow_shift' is \"three\", not a number"));
  EXPECT_THAT(wrong({{"flow_shift", 0}}), HasSubstr("'flow_shift' is 0"));
  EXPECT_THAT(wrong({{"num_train_timesteps", 0}}), HasSubstr("'num_train_timesteps' is 0"));
  EXPECT_THAT(wrong({{"use_flow_sigmas", 1}}), HasSubstr("'use_flow_sigmas' is 1, not true or false"));
  EXPECT_THAT(wrong({{"disable_corrector", {"a"}}}), HasSubstr("'disable_corrector'"));
  EXPECT_THAT(wrong({{"use_karras_sigmas", true}, {"use_exponential_sigmas", true}}), HasSubstr("only one"));
  EXPECT_THAT(wrong({{"_class_name", nullptr}}), HasSubstr("no '_class_name'"));
  EXPECT_THAT(refusal(Json::array(), ExitCode::bad_data), HasSubstr("not an object"));
}

TEST(SchedulerConfig, RefusesNumbersOfStepsThatMakeNoSchedule) {
  EXPECT_THAT(refusal(config(Json::object()), ExitCode::bad_data, 0), HasSubstr("at least one step"));
  EXPECT_THAT(refusal(config(Json::object()), ExitCode::refused, 1001), HasSubstr("1001 steps"));
  EXPECT_EQ(refusal(config(Json::object()), ExitCode::refused, 1000), "nothing");
}

// Where diffusers' own latents are not numbers.
TEST(SchedulerConfig, RefusesStepsThatDivideByZero) {
  EXPECT_THAT(refusal(config({{"solver_type", "bh1"}})), HasSubstr("divides by zero"));
  EXPECT_THAT(refusal(config({{"lower_order_final", false}})), HasSubstr("step 4 of 4"));
  EXPECT_THAT(
      refusal(config({{"predict_x0", false}, {"prediction_type", "epsilon"}, {"use_flow_sigmas", false}})),
      HasSubstr("divides by zero"));
}

}  // namespace
}  // namespace diffuse

// Results of two kinds of device: what is within the tolerance agrees, what is above it is found.

#include "verify/across.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "core/error.hpp"
#include "verify/compare.hpp"
#include "verify/report.hpp"
#include "verify/tolerance.hpp"

namespace diffuse {
namespace {

using testing::HasSubstr;

TEST(Tolerances, HaveOneRowWithAReasonForEachOperationAndMode) {
  std::set<std::pair<DeviceOp, std::string_view>> seen;
  for (const auto& row : tolerances()) {
    EXPECT_TRUE(seen.emplace(row.operation, row.compute).second) << name_of(row.operation);
    EXPECT_FALSE(row.reason.empty());
    EXPECT_NE(name_of(row.operation), "?");
    EXPECT_GE(row.allowed, 0);
    const bool end_to_end = row.operation == DeviceOp::logprob || row.operation == DeviceOp::frame ||
                            row.operation == DeviceOp::latent;
    EXPECT_LE(row.allowed, end_to_end ? 0.25 : 2e-3);
    EXPECT_EQ(&tolerance(row.operation, row.compute), &row);
  }
  for (int at = 0; at <= static_cast<int>(DeviceOp::logprob); ++at) {
    for (const auto* compute : {"f32", "bf16"})
      EXPECT_TRUE(seen.contains({static_cast<DeviceOp>(at), compute}));
  }
  EXPECT_THROW(tolerance(DeviceOp::product, "f16"), Error);
}

// Three tokens, each with its two best.
Sample a_sample() {
  Sample sample;
  sample.tokens = {10, 11, 12};
  sample.text = "one two";
  sample.finish = Finish::length;
  sample.logprobs = {.chosen = {-0.5F, -0.6F, -0.7F},
                     .top = 2,
                     .top_ids = {10, 20, 11, 21, 12, 22},
                     .top_values = {-0.5F, -1.5F, -0.6F, -0.6002F, -0.7F, -1.7F}};
  sample.trace = {.layers = 1, .positions = 2, .digests = {1, 2}};
  return sample;
}

Result result_on(const std::string& backend, const std::string& target, const std::string& compute) {
  Result result;
  RequestResult request;
  request.id = "a";
  request.status = Status::done;
  request.prompt_tokens = 2;
  request.samples = {a_sample()};
  result.requests = {request};
  result.provenance = {{"job_sha256", "j"},  {"config_sha256", "c"}, {"tensors_sha256", "t"},
                       {"compute", compute}, {"simd", target},       {"backend", backend}};
  return result;
}

// The CPU's result against a card's that `change` was done to.
Comparison against(const std::function<void(Sample&)>& change, const std::string& compute = "f32") {
  auto card = result_on("cuda", "sm_90 Card", compute);
  card.requests[0].samples[0].trace.digests = {3, 4};
  card.requests[0].sha256 = "another";
  change(card.requests[0].samples[0]);
  return compare(result_on("cpu", "avx512", compute), card);
}

TEST(Across, OtherDigestsAgreeAndAreNotCalledIdentical) {
  const auto found = against([](Sample&) {});
  EXPECT_TRUE(found.agrees());
  EXPECT_FALSE(found.identical());
  ASSERT_TRUE(found.across.has_value());
  EXPECT_EQ(found.across->tokens, 3U);
  EXPECT_EQ(found.across->logprobs, 6U);
  EXPECT_EQ(found.across->allowed, tolerance(DeviceOp::logprob, "f32").allowed);
  EXPECT_THAT(verdict(found), HasSubstr("they agree: cpu, avx512 against cuda, sm_90 Card in f32"));
  EXPECT_EQ(to_json(found)["identical"], false);
  EXPECT_EQ(to_json(found)["agrees"], true);
}

TEST(Across, CardsOfTwoKindsAreTwoDevicesAndSimdTargetsAreNot) {
  const auto one = result_on("cuda", "sm_80 Card", "bf16");
  EXPECT_TRUE(compare(one, result_on("cuda", "sm_90 Card", "bf16")).across.has_value());
  EXPECT_FALSE(compare(one, result_on("cuda", "sm_80 Card", "bf16")).across.has_value());
  EXPECT_FALSE(
      compare(result_on("cpu", "avx2", "f32"), result_on("cpu", "avx512", "f32")).across.has_value());
  // In two modes there is no tolerance: bits, and a note that explains them.
  const auto modes = compare(result_on("cpu", "avx2", "f32"), result_on("cuda", "sm_90", "bf16"));
  EXPECT_FALSE(modes.across.has_value());
  EXPECT_EQ(modes.notes.size(), 2U);
  EXPECT_FALSE(compare(result_on("cpu", "a", "odd"), result_on("cuda", "b", "odd")).across.has_value());
}

TEST(Across, ALogprobWithinTheToleranceIsNoneAndOneAboveItIsFound) {
  const double allowed = tolerance(DeviceOp::logprob, "f32").allowed;
  const auto moved = [&](double by) {
    return against([&](Sample& sample) { sample.logprobs.top_values[3] += static_cast<float>(by); });
  };
  const auto within = moved(0.9 * allowed);
  EXPECT_TRUE(within.agrees());
  EXPECT_NEAR(within.across->largest, 0.9 * allowed, 1e-6);
  for (const double by : {1.1 * allowed, -1.1 * allowed, std::nan("")}) {
    const auto above = moved(by);
    ASSERT_EQ(above.differences.size(), 1U) << by;
    EXPECT_EQ(above.differences[0].what, What::logprobs);
    EXPECT_EQ(above.differences[0].position, 1);
  }
  // The other mode has its own row.
  EXPECT_TRUE(
      against([&](Sample& sample) { sample.logprobs.chosen[2] += static_cast<float>(1.1 * allowed); }, "bf16")
          .agrees());
}

TEST(Across, ATokenThatOneSideDoesNotListIsFoundWhereItIsLikelier) {
  const auto with = [](std::int32_t id, float value) {
    return against([&](Sample& sample) {
      sample.logprobs.top_ids[1] = id;
      sample.logprobs.top_values[1] = value;
    });
  };
  EXPECT_FALSE(with(99, -3).agrees()) << "20 was likelier";
  EXPECT_TRUE(with(99, -1.5F).agrees()) << "20 may be as likely";
  EXPECT_TRUE(with(20, -1.5F).agrees());
}

// 11 and 21 are 2e-4 apart, 12 and 22 by 1.
TEST(Across, TokensMayPartAtACloseCallOnly) {
  const auto close = against([](Sample& sample) {
    sample.tokens = {10, 21, 5, 6};
    sample.text = "one three";
    sample.finish = Finish::end_of_text;
    sample.logprobs = {.chosen = {-0.5F, -0.6F, -9.0F, -9.0F},
                       .top = 2,
                       .top_ids = {10, 20, 21, 11, 5, 6, 6, 5},
                       .top_values = {-0.5F, -1.5F, -0.6F, -0.6002F, -9, -9, -9, -9}};
  });
  EXPECT_TRUE(close.agrees()) << verdict(close);
  EXPECT_EQ(close.across->close, 1U);
  EXPECT_EQ(close.across->tokens, 1U);

  const auto far = against([](Sample& sample) {
    sample.tokens[2] = 22;
    sample.logprobs.chosen[2] = -1.7F;
  });
  ASSERT_EQ(far.differences.size(), 1U);
  EXPECT_EQ(far.differences[0].what, What::tokens);
  EXPECT_EQ(far.differences[0].position, 2);
  EXPECT_THAT(far.differences[0].split, HasSubstr("apart"));
}

TEST(Across, WithoutLogprobsTokensMustBeEqual) {
  auto cpu = result_on("cpu", "avx2", "f32");
  cpu.requests[0].samples[0].logprobs = {};
  auto card = result_on("cuda", "sm_90", "f32");
  card.requests[0].samples[0].logprobs = {};
  const auto equal = compare(cpu, card);
  EXPECT_TRUE(equal.agrees());
  ASSERT_EQ(equal.notes.size(), 1U);
  EXPECT_THAT(equal.notes[0], HasSubstr("no log-probabilities"));
  card.requests[0].samples[0].tokens[1] = 21;
  const auto parted = compare(cpu, card);
  ASSERT_EQ(parted.differences.size(), 1U);
  EXPECT_THAT(parted.differences[0].split, HasSubstr("not recorded"));
  cpu.requests[0].samples[0].media = sound_of(std::vector<float>{0.5F}, 1, 8000);
  EXPECT_THAT(compare(cpu, card).differences.at(0).split, HasSubstr("nothing says how close codes of media"));
}

// A picture of one colour, and one whose every `step`-th colour is `by` off.
TEST(Across, PicturesMayBeOffByTheRowForFramesInTheMean) {
  const auto picture = [](int every, int by) {
    MediaArray media{.kind = MediaKind::picture,
                     .element = MediaElement::u8,
                     .height = 40,
                     .width = 50,
                     .channels = 3,
                     .bytes = {}};
    for (int i = 0; i < 40 * 50 * 3; ++i)
      media.bytes.push_back(static_cast<std::byte>(100 + (i % every == 0 ? by : 0)));
    return media;
  };
  const auto held = [&](const MediaArray& theirs, const std::string& compute) {
    auto cpu = result_on("cpu", "avx2", compute);
    auto card = result_on("cuda", "sm_90", compute);
    for (auto* result : {&cpu, &card}) result->requests[0].samples[0] = {};
    cpu.requests[0].samples[0].media = picture(1, 0);
    card.requests[0].samples[0].media = theirs;
    return compare(cpu, card);
  };
  for (const std::string compute : {"f32", "bf16"}) {
    const double allowed = tolerance(DeviceOp::frame, compute).allowed;
    const int every = static_cast<int>(1 / allowed);
    const auto near = held(picture(2 * every, -1), compute);
    EXPECT_TRUE(near.agrees()) << verdict(near);
    EXPECT_FALSE(near.identical());
    EXPECT_EQ(near.across->colours, 6000U);
    EXPECT_EQ(near.compared.media, 6000U);
    EXPECT_EQ(near.across->largest_colour, 1);
    EXPECT_NEAR(near.across->mean_colour, allowed / 2, allowed / 5);
    EXPECT_THAT(near.notes, testing::IsEmpty());
    const auto far = held(picture(every, 2), compute);
    ASSERT_EQ(far.differences.size(), 1U);
    EXPECT_EQ(far.differences[0].what, What::media);
    EXPECT_THAT(far.differences[0].split, HasSubstr("is allowed"));
  }
  auto narrow = picture(1, 0);
  std::swap(narrow.height, narrow.width);
  EXPECT_EQ(held(narrow, "f32").differences.at(0).what, What::media);
}

TEST(Across, EndsAndTextsOfEqualTokensAreEqual) {
  EXPECT_EQ(against([](Sample& sample) { sample.finish = Finish::stop_string; }).differences.at(0).what,
            What::finish);
  EXPECT_EQ(against([](Sample& sample) { sample.text = "other"; }).differences.at(0).what, What::text);
  EXPECT_EQ(against([](Sample& sample) {
              sample.tokens.pop_back();
              sample.logprobs.chosen.pop_back();
              sample.logprobs.top_ids.resize(4);
              sample.logprobs.top_values.resize(4);
            })
                .differences.at(0)
                .what,
            What::tokens);
  EXPECT_THROW(against([](Sample& sample) { sample.logprobs.chosen.pop_back(); }), Error);
  EXPECT_THROW(against([](Sample& sample) { sample.tokens.pop_back(); }), Error);
}

TEST(Across, LatentsAreHeldAgainstEachOtherByTheirLargest) {
  const auto with = [](std::vector<float> values) {
    return [values = std::move(values)](Sample& sample) {
      sample = {};
      sample.latent = LatentArray{.channels = 1, .frames = 1, .height = 1, .width = 3, .values = values};
    };
  };
  auto whole = result_on("cpu", "avx2", "f32");
  with({4, 0, -8})(whole.requests[0].samples[0]);
  const auto of = [&](std::vector<float> values) {
    auto split = result_on("cuda", "sm_90", "f32");
    with(std::move(values))(split.requests[0].samples[0]);
    return compare(whole, split);
  };
  const auto near = of({4, 0.0004F, -8});
  EXPECT_TRUE(near.agrees()) << verdict(near);
  EXPECT_NEAR(near.across->largest_latent, 0.00005, 1e-7);
  EXPECT_EQ(near.across->latents, 3U);
  EXPECT_EQ(near.compared.media, 3U);
  EXPECT_THAT(verdict(near), HasSubstr("3 elements of latents"));
  const auto far = of({4, 0.002F, -8});
  ASSERT_EQ(far.differences.size(), 1U);
  EXPECT_EQ(far.differences[0].what, What::latent);
  EXPECT_EQ(of({4, NAN, -8}).differences.size(), 1U);
  EXPECT_EQ(of({4, 0}).differences.size(), 1U);
}

TEST(Across, WhatWasNotHeldAgainstAnythingDoesNotAgree) {
  const auto empty = [](const std::string& backend) {
    auto result = result_on(backend, "x", "f32");
    result.requests[0].samples[0] = {};
    return result;
  };
  const auto comparison = compare(empty("cpu"), empty("cuda"));
  EXPECT_THAT(verdict(comparison), HasSubstr("nothing that was answered could be compared"));
  VerificationReport report;
  report.across = make_across({}, comparison);
  EXPECT_FALSE(passed(report));
  EXPECT_THAT(verdict(report), HasSubstr("nothing is known"));
}

TEST(Across, AReportSaysItAndIsReadBack) {
  VerificationReport report;
  report.rows.push_back(
      {.run = {}, .compared = {.answered = 1, .tokens = 1}, .differences = 0, .first = {}, .notes = {}});
  report.across = make_across({}, against([](Sample&) {}));
  EXPECT_TRUE(proven(report));
  EXPECT_TRUE(passed(report));
  EXPECT_THAT(to_markdown(report), HasSubstr("| logprob | 0.001 |"));
  EXPECT_EQ(report_from_json(to_json(report)), report);

  report.across = make_across({}, against([](Sample& sample) { sample.logprobs.chosen[0] = -3; }));
  EXPECT_FALSE(proven(report));
  EXPECT_THAT(verdict(report), HasSubstr("The devices do not agree: "));
  EXPECT_EQ(report_from_json(to_json(report)), report);
  auto json = to_json(report);
  json["across"]["agrees"] = true;
  EXPECT_THROW(report_from_json(json), Error);
  EXPECT_THROW(make_across({}, compare(result_on("cpu", "a", "f32"), result_on("cpu", "a", "f32"))), Error);
}

}  // namespace
}  // namespace diffuse

// Stacks that refine against diffusers, and against themselves: cuts, threads and patches.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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
  std::vector<Named> all = {{"wan", refinement_data() / "wan", refinement_data() / "wan"},
                            {"quiet", refinement_data() / "wan-quiet", refinement_data() / "wan-quiet"}};
#ifndef DIFFUSE_TEST_STANDIN  // it takes a minute there
  const auto demo = std::filesystem::path(DIFFUSE_TEST_DATA).parent_path().parent_path() / "demo" / "wan";
  all.push_back({"demo", demo, refinement_data() / "demo"});
#endif
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

double mean_off(const Floats& found, const Floats& reference) {
  double sum = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    sum += std::abs(static_cast<double>(found[i]) - static_cast<double>(reference[i]));
  return sum / static_cast<double>(found.size());
}

// Both branches of a guided request, in slots 0 and 1 of a stack.
class Guided {
 public:
  Guided(const RefinementCase& subject, Backend& backend, const std::string& slices, int history = 0)
      : subject_(subject),
        texts_(encode(subject.pipeline, backend, subject.texts())),
        stack_(subject.pipeline, backend, slices, subject.grid.tokens(),
               subject.call.at("max_sequence_length").get<std::int64_t>(), 2, history) {
    for (std::int32_t slot = 0; slot < 2; ++slot)
      stack_.admit(slot, subject.grid, texts_[static_cast<std::size_t>(slot)]);
  }

  Floats step(int number, std::int64_t patches = 1, float extrapolation = 0, float balance = 0) {
    const auto latents = subject_.latents_before(number);
    const auto time = subject_.timestep(number);
    auto text = stack_.step(0, time, latents, patches, extrapolation, balance);
    const auto bare = stack_.step(1, time, latents, patches, extrapolation, balance);
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

  // All of them for small pictures, and the best one for the trained model.
  std::vector<std::string> some_processors() const {
    auto names = processors();
    if (subject_.grid.tokens() > 100) names.resize(1);
    return names;
  }

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

// What both branches give at each of a few steps, the later ones in patches.
std::vector<Floats> run_steps(const RefinementCase& subject, Backend& backend, const std::string& slices) {
  Guided guided(subject, backend, slices, 2);
  return {guided.step(1),          guided.step(2, 3),          guided.step(2), guided.step(3),
          guided.step(3, 2, 0.5F), guided.step(3, 3, 1, 0.3F), guided.step(3)};
}

TEST_P(Refinements, CutsChangeNoBit) {
  const auto depth = subject_.pipeline.recipe.depth();
  std::vector<std::string> cuts;
  for (std::int64_t first = 1; first < depth; ++first)
    cuts.push_back("0-" + std::to_string(first - 1) + "," + std::to_string(first) + "-" +
                   std::to_string(depth - 1));
  cuts.push_back("0-0,1-1,2-" + std::to_string(depth - 1));
  const auto processor = processors().front();
  for (const auto compute : {Compute::f32, Compute::bf16}) {
    const auto backend = make_backend(processor, 1, compute);
    const auto expected = run_steps(subject_, *backend, whole(subject_));
    for (const auto& slices : cuts) EXPECT_EQ(run_steps(subject_, *backend, slices), expected) << slices;
  }
}

TEST_P(Refinements, ThreadsChangeNoBit) {
  for (const auto& processor : some_processors()) {
    const auto alone = make_backend(processor, 1, Compute::f32);
    const auto expected = run_steps(subject_, *alone, whole(subject_));
    for (const int threads : {2, 3}) {
      const auto backend = make_backend(processor, threads, Compute::f32);
      EXPECT_EQ(run_steps(subject_, *backend, whole(subject_)), expected) << processor << " " << threads;
    }
  }
}

TEST_P(Refinements, OnePatchIsWholeWhateverIsKept) {
  const auto backend = make_backend(processors().front(), 2, Compute::f32);
  Guided kept(subject_, *backend, whole(subject_), 1);
  Guided plain(subject_, *backend, whole(subject_));
  for (const int step : {1, 2, 3}) EXPECT_EQ(kept.step(step, 1, 0.7F), plain.step(step)) << step;
}

// Where a step is run again, what the one before left is what this one makes: patches find the keys and
// values of the whole picture, as they are or carried on from two equal steps.
TEST_P(Refinements, PatchesOfAStepRunAgainAreWhole) {
  for (const auto& processor : some_processors()) {
    for (const auto compute : {Compute::f32, Compute::bf16}) {
      const auto backend = make_backend(processor, 2, compute);
      for (const int history : {0, 1, 2}) {
        Guided guided(subject_, *backend, whole(subject_), history);
        const auto expected = guided.step(2);
        for (int again = 0; again < history; ++again) ASSERT_EQ(guided.step(2), expected);
        for (const std::int64_t patches : {2, 5, 3})
          ASSERT_EQ(guided.step(2, patches, history > 0 ? 0.6F : 0.0F, history > 1 ? 0.4F : 0.0F), expected)
              << processor << " " << patches << " " << history;
      }
    }
  }
}

// How far patches are from whole, in the mean over a step's values and relative to the largest, as a
// simulation of the same schedule in torch has it: two whole steps, then steps of these patches. Before each
// stand the latents of the reference's own run.
TEST(QuietPatches, AreAsFarFromWholeAsTheReferences) {
  struct Expected {
    std::int64_t patches;
    float extrapolation;
    std::array<double, 4> off;
  };
  const RefinementCase subject(refinement_data() / "wan-quiet", refinement_data() / "wan-quiet");
  const auto backend = make_backend(processors().front(), 2, Compute::f32);
  for (const auto& expected : {Expected{4, 0, {0.000775271, 0.00102087, 0.00114564, 0.00264281}},
                               Expected{4, 1, {0.00119412, 0.00139313, 0.00137873, 0.00288778}},
                               Expected{7, 0.5, {0.000970056, 0.00131278, 0.0013352, 0.00298833}}}) {
    Guided exact(subject, *backend, whole(subject));
    Guided patched(subject, *backend, whole(subject), 1);
    for (const int step : {1, 2}) EXPECT_EQ(patched.step(step), exact.step(step));
    for (int step = 3; step <= 6; ++step) {
      const auto reference = exact.step(step);
      const auto off = mean_off(patched.step(step, expected.patches, expected.extrapolation), reference);
      const auto wanted = expected.off[static_cast<std::size_t>(step - 3)];
      EXPECT_NEAR(off / largest(reference), wanted, 5e-3 * wanted) << expected.patches << ", step " << step;
    }
  }
}

// The same where a part of what predictions were off by is taken back.
TEST(QuietPatches, AreAsFarFromWholeWhereTheyAreBalanced) {
  struct Expected {
    std::int64_t patches;
    float extrapolation, balance;
    std::array<double, 4> off;
  };
  const RefinementCase subject(refinement_data() / "wan-quiet", refinement_data() / "wan-quiet");
  const auto backend = make_backend(processors().front(), 2, Compute::f32);
  for (const auto& expected : {Expected{4, 1, 0.5F, {0.00119412, 0.00184924, 0.00181734, 0.00331206}},
                               Expected{3, 0.8F, 0.25F, {0.00093740, 0.00131729, 0.00131398, 0.00264578}}}) {
    Guided exact(subject, *backend, whole(subject));
    Guided patched(subject, *backend, whole(subject), 2);
    for (const int step : {1, 2}) EXPECT_EQ(patched.step(step), exact.step(step));
    for (int step = 3; step <= 6; ++step) {
      const auto reference = exact.step(step);
      const auto off =
          mean_off(patched.step(step, expected.patches, expected.extrapolation, expected.balance), reference);
      const auto wanted = expected.off[static_cast<std::size_t>(step - 3)];
      EXPECT_NEAR(off / largest(reference), wanted, 5e-3 * wanted) << expected.patches << ", step " << step;
    }
  }
}

// A whole step ends what predictions were off by: patches behind it are those of a slot that was never off.
TEST(QuietPatches, AreBalancedAnewBehindAWholeStep) {
  const RefinementCase subject(refinement_data() / "wan-quiet", refinement_data() / "wan-quiet");
  const auto backend = make_backend(processors().front(), 2, Compute::f32);
  Guided off(subject, *backend, whole(subject), 2);
  Guided never(subject, *backend, whole(subject), 2);
  for (const int step : {1, 2}) off.step(step);
  for (const int step : {3, 4}) off.step(step, 4, 0.9F, 0.5F);
  for (auto* const each : {&off, &never}) {
    for (const int step : {1, 2}) each->step(step);
  }
  for (const int step : {3, 4}) EXPECT_EQ(off.step(step, 4, 0.9F, 0.5F), never.step(step, 4, 0.9F, 0.5F));
}

// In a slot's second step there is nothing to carry on from.
TEST_P(Refinements, ASecondStepIsNotExtrapolated) {
  const auto backend = make_backend(processors().front(), 2, Compute::f32);
  Guided one(subject_, *backend, whole(subject_), 1);
  Guided other(subject_, *backend, whole(subject_), 1);
  one.step(1);
  other.step(1);
  EXPECT_EQ(one.step(2, 3, 0.9F), other.step(2, 3));
}

// In the first patched step nothing was off yet.
TEST_P(Refinements, TheFirstPatchedStepIsALine) {
  const auto backend = make_backend(processors().front(), 2, Compute::f32);
  Guided one(subject_, *backend, whole(subject_), 2);
  Guided other(subject_, *backend, whole(subject_), 1);
  for (const int step : {1, 2}) EXPECT_EQ(one.step(step), other.step(step));
  EXPECT_EQ(one.step(3, 3, 0.9F, 0.5F), other.step(3, 3, 0.9F));
  EXPECT_NE(one.step(3, 3, 0.9F, 0.5F), other.step(3, 3, 0.9F));
}

TEST_P(Refinements, SlotsDoNotKnowOfEachOther) {
  const auto backend = make_backend(processors().front(), 2, Compute::f32);
  const auto texts = encode(subject_.pipeline, *backend, subject_.texts());
  const auto& grid = subject_.grid;
  const auto rows = static_cast<std::int64_t>(texts[0].size()) / subject_.pipeline.recipe.encoder->hidden;
  const auto stack_of = [&](int slots) {
    return std::make_unique<Stack>(subject_.pipeline, *backend, whole(subject_), grid.tokens(), rows, slots,
                                   1);
  };
  const auto latents = subject_.latents_before(1);
  auto others = latents;
  std::reverse(others.begin(), others.end());
  const auto alone = stack_of(1);
  alone->admit(0, grid, texts[0]);
  const auto first = alone->step(0, 900, latents);
  const auto second = alone->step(0, 700, others, 3);
  const auto company = stack_of(2);
  company->admit(1, grid, texts[1]);
  company->admit(0, grid, texts[0]);
  company->step(1, 100, others);
  EXPECT_EQ(company->step(0, 900, latents), first);
  company->step(1, 300, latents, 4, 0.5F);
  EXPECT_EQ(company->step(0, 700, others, 3), second);
  company->release(1);
  company->admit(1, grid, texts[0]);
  EXPECT_EQ(company->step(1, 900, latents), first);
}

TEST_P(Refinements, Bf16IsNear) {
  const auto backend = make_backend(processors().front(), 2, Compute::bf16);
  Guided guided(subject_, *backend, whole(subject_));
  const auto reference = subject_.arrays.floats("prediction.1").values;
  const auto found = guided.step(1);
  EXPECT_LE(worst(found, reference), 0.1 * largest(reference))
      << worst(found, reference) / largest(reference);
}

TEST_P(Refinements, SlicesReadTheirTensorsAlone) {
  const auto backend = make_backend(processors().front(), 1, Compute::f32);
  const auto& pipeline = subject_.pipeline;
  const auto plan = make_plan(pipeline.recipe, pipeline.checkpoint.headers(), 3);
  EXPECT_EQ(plan.stages, 3);
  EXPECT_EQ(plan.encoders, (std::vector<std::int32_t>{0}));
  EXPECT_EQ(plan.shared.size(), 6U);
  for (const auto& slice : plan.ranks) {
    const auto weights = load_slice(pipeline.recipe, slice, pipeline.checkpoint, *backend);
    EXPECT_EQ(weights.bytes_read, slice.weight_bytes) << slice.rank;
    EXPECT_EQ(weights.hashes.size(), slice.tensors.size()) << slice.rank;
    EXPECT_EQ(weights.refinement->front.has_value(), slice.rank == 0);
    EXPECT_EQ(weights.refinement->back.has_value(), slice.rank == 2);
    EXPECT_EQ(weights.encoder.has_value(), slice.rank == 0);
  }
}

class RefusedPasses : public testing::Test {
 public:
  RefusedPasses()
      : subject_(refinement_data() / "wan-quiet", refinement_data() / "wan-quiet"),
        backend_(make_backend(processors().front(), 1, Compute::f32)),
        guided_(subject_, *backend_, whole(subject_)),
        carry_(guided_.stack().executor(0).make_carry()) {}

  std::string refusal(std::int64_t first_row, std::int64_t rows, float extrapolation = 0,
                      std::int32_t slot = 0) {
    const auto hidden = subject_.pipeline.recipe.hidden;
    try {
      guided_.stack().executor(0).run({slot, 500, first_row, rows, extrapolation},
                                      {carry_.floats(), rows, hidden, hidden});
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  }

  RefinementCase subject_;
  std::unique_ptr<Backend> backend_;
  Guided guided_;
  Buffer carry_;
};

TEST_F(RefusedPasses, SayWhatIsWrong) {
  using testing::HasSubstr;
  const auto tokens = subject_.grid.tokens();
  EXPECT_THAT(refusal(0, tokens / 2), HasSubstr("starts with a part of its picture"));
  EXPECT_EQ(refusal(0, tokens), "nothing");
  EXPECT_THAT(refusal(tokens / 2, 5), HasSubstr("goes on at token 0"));
  EXPECT_EQ(refusal(0, 5), "nothing");
  EXPECT_THAT(refusal(0, 5), HasSubstr("goes on at token 5"));
  EXPECT_THAT(refusal(5, tokens), HasSubstr("not of its picture"));
  EXPECT_EQ(refusal(5, tokens - 5), "nothing");
  EXPECT_THAT(refusal(0, 5, 0.5F), HasSubstr("from 2 tables, and 1 are kept"));
  EXPECT_THAT(refusal(0, tokens, 0, 7), HasSubstr("nobody was admitted"));
}

TEST(Patches, AreOfAChannelsOrderInAndAnElementsOrderOut) {
  const PatchSize patch{.frames = 1, .height = 2, .width = 2};
  const TokenGrid grid{.frames = 1, .height = 2, .width = 3};
  Floats latents(2 * 4 * 6);
  for (std::size_t i = 0; i < latents.size(); ++i) latents[i] = static_cast<float>(i);
  Floats rows(2 * 8);
  patchify(patch, 2, grid, 3, latents, rows);
  EXPECT_EQ(rows, (Floats{12, 13, 18, 19, 36, 37, 42, 43, 14, 15, 20, 21, 38, 39, 44, 45}));
  Floats made(latents.size(), -1);
  unpatchify(patch, 2, grid, 3, rows, made);
  EXPECT_EQ(made[12], 12);
  EXPECT_EQ(made[36], 13);
  EXPECT_EQ(made[13], 18);
  EXPECT_EQ(made[37], 19);
  EXPECT_EQ(made[18], 36);
  EXPECT_EQ(made[45], 45);
  EXPECT_EQ(made[0], -1);
  EXPECT_EQ(std::count(made.begin(), made.end(), -1), 48 - 16);
}

TEST(RefinementMemory, CountsPagesAndBytes) {
  EXPECT_EQ(refinement_pages(1560, 512, 0), 25 + 8);
  EXPECT_EQ(refinement_pages(1560, 512, 1), 50 + 8);
  EXPECT_EQ(refinement_pages(1560, 512, 2), 75 + 8);
  const RefinementCase subject(refinement_data() / "wan", refinement_data() / "wan");
  RankSlice slice;
  slice.first_layer = 2;
  slice.end_layer = 5;
  const auto bytes = refinement_kv_bytes(subject.pipeline.recipe, slice, 64, 32, 0, Compute::f32);
  EXPECT_EQ(bytes, std::uint64_t{3} * 2 * 64 * (24 + 24) * 4);
  EXPECT_EQ(refinement_kv_bytes(subject.pipeline.recipe, slice, 64, 32, 0, Compute::bf16), bytes / 2);
}

}  // namespace
}  // namespace diffuse::test

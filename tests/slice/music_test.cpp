// Stacks that walk several codebooks against transformers: memory, rows, logits and codes, whole and split.

#include <gtest/gtest.h>

#include <algorithm>

#include "memory_cases.hpp"
#include "text/codebook_delay.hpp"
#include "text/codebook_sampling.hpp"

namespace diffuse::test {
namespace {

// Of the largest absolute value of the reference array.
constexpr double kTolerance = 2e-5;

void expect_near(const std::vector<float>& found, const GoldenFloats& reference, const std::string& what) {
  ASSERT_EQ(found.size(), reference.values.size()) << what;
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(std::isfinite(found[i])) << what;
    worst = std::max(worst, std::abs(static_cast<double>(found[i] - reference.values[i])));
  }
  EXPECT_LE(worst, kTolerance * static_cast<double>(reference.largest())) << what;
}

struct MusicCase {
  explicit MusicCase(const std::filesystem::path& folder) : model(folder), golden(folder) {
    input.ids = golden.ids("input_ids");
  }
  TestModel model;
  Golden golden;
  EncoderInput input;
};

std::vector<float> memory_of(const MusicCase& subject, const Recipe& recipe, Backend& backend) {
  RankSlice slice;
  slice.encoder = true;
  slice.tensors = tensors_of(*recipe.encoder);
  auto weights = load_slice(recipe, slice, subject.model.checkpoint, backend);
  EncoderRunner runner(recipe, *weights.encoder, backend, memory_rows(*recipe.encoder, subject.input));
  const std::vector inputs = {&subject.input};
  return runner.encode(inputs).front();
}

// The decoder in slices, with two sequences: slot 0 reads the text, slot 1 a row of zeros.
class Walk {
 public:
  Walk(const MusicCase& subject, Backend& backend, const std::vector<float>& memory, std::int32_t ranks,
       std::int64_t positions)
      : recipe_(subject.model.recipe), backend_(backend) {
    const auto width = recipe_.encoder->hidden;
    const auto rows = static_cast<std::int64_t>(memory.size()) / width;
    const auto plan = make_plan(recipe_, subject.model.checkpoint.headers(), ranks);
    for (const auto& slice : plan.ranks) {
      auto& stage = *stages_.emplace_back(std::make_unique<Stage>());
      stage.weights = load_slice(recipe_, slice, subject.model.checkpoint, backend);
      const ExecutorLimits limits = {
          .max_rows = 2 * positions, .max_samples = 2 * positions, .kv_pages = 2 * (2 + positions / 64) + 4};
      stage.executor = std::make_unique<Executor>(recipe_, slice, backend, stage.weights, limits);
      stage.executor->admit(0, positions, rows);
      stage.executor->remember(0, memory);
      stage.executor->admit(1, positions, 1);
      stage.executor->remember(1, std::vector<float>(static_cast<std::size_t>(width)));
      if (slice.back) last_ = &stage;
    }
    carry_ = stages_.front()->executor->make_carry();
  }

  // One step of both or of one of the slots. Ids [rows, codebooks] of each; logits of all rows.
  std::vector<float> step(const std::vector<std::pair<std::int32_t, Ids>>& parts, std::int64_t position) {
    Descriptor step;
    step.command = Command::step;
    step.number = ++steps_;
    Ids ids;
    for (const auto& [slot, fed] : parts) {
      auto& entry = step.entry[step.entries++];
      entry.slot = slot;
      entry.rows = static_cast<std::int32_t>(fed.size()) / static_cast<std::int32_t>(recipe_.codebooks);
      entry.first_position = position;
      ids.insert(ids.end(), fed.begin(), fed.end());
    }
    const Rows hidden{carry_.floats(), step.rows(), recipe_.hidden, recipe_.hidden};
    for (auto& stage : stages_) {
      if (!stage->executor->slice().idle()) stage->executor->run(step, ids, hidden);
    }
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < hidden.rows; ++row) rows.push_back(row);
    const auto logits = last_->executor->logits(hidden, rows);
    return from_device(backend_, logits.data, logits.rows * logits.cols);
  }

 private:
  struct Stage {
    SliceWeights weights;
    std::unique_ptr<Executor> executor;
  };
  const Recipe& recipe_;
  Backend& backend_;
  std::vector<std::unique_ptr<Stage>> stages_;
  Stage* last_ = nullptr;  // with the heads
  Buffer carry_;
  std::uint64_t steps_ = 0;
};

class GoldenMusic : public testing::TestWithParam<GoldenCase> {
 public:
  GoldenMusic() : subject_(GetParam().folder), recipe_(subject_.model.recipe) {}

  void on_every_target(void (GoldenMusic::*check)()) {
    for (const auto& processor : processors()) {
      SCOPED_TRACE(processor);
      backend_ = make_backend(processor, 1, Compute::f32);
      (this->*check)();
    }
  }
  Walk walk(std::int32_t ranks, std::int64_t positions) {
    return {subject_, *backend_, memory_of(subject_, recipe_, *backend_), ranks, positions};
  }

  void check_memory();
  void check_front();
  void check_logits();
  void check_codes();
  void check_split();

  MusicCase subject_;
  const Recipe& recipe_;
  std::unique_ptr<Backend> backend_;
};

void GoldenMusic::check_memory() {
  auto bare = recipe_;
  bare.encoder->projection.reset();
  bare.encoder->hidden = bare.encoder->width;
  expect_near(memory_of(subject_, bare, *backend_), subject_.golden.floats("memory"), "memory");
  if (!subject_.golden.has("projected")) return;  // cases as golden.py makes them have none, nor logits
  expect_near(memory_of(subject_, recipe_, *backend_), subject_.golden.floats("projected"), "projected");
}

void GoldenMusic::check_front() {
  if (!subject_.golden.has("hidden.0")) return;
  const auto fed = subject_.golden.ids("fed");
  const auto reference = subject_.golden.floats("hidden.0");
  RankSlice front;
  front.front = true;
  front.tensors = tensors_of(recipe_.front);
  auto weights = load_slice(recipe_, front, subject_.model.checkpoint, *backend_);
  BlockRunner runner(*backend_, recipe_.ropes, {}, recipe_.hidden, reference.rows);
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < reference.rows; ++i) positions.push_back(i);
  const auto buffer = backend_->allocate(reference.values.size() * sizeof(float));
  const Rows hidden{buffer.floats(), reference.rows, recipe_.hidden, recipe_.hidden};
  runner.embed(*weights.front, recipe_.front, fed, positions, hidden);
  expect_near(from_device(*backend_, hidden.data, hidden.rows * hidden.cols), reference, "hidden.0");
  EXPECT_THROW(runner.embed(*weights.front, recipe_.front, std::span(fed).subspan(1), positions, hidden),
               Error);
}

void GoldenMusic::check_logits() {
  if (!subject_.golden.has("logits")) return;
  const auto fed = subject_.golden.ids("fed");
  const auto reference = subject_.golden.floats("logits");
  auto whole = walk(1, reference.rows);
  expect_near(whole.step({{0, fed}}, 0), reference, "logits");
  expect_near(whole.step({{1, fed}}, 0), subject_.golden.floats("free_logits"), "logits without the text");
}

// Greedy, as transformers makes them; both rows of a guided sequence in one step.
void GoldenMusic::check_codes() {
  constexpr std::int64_t kNewTokens = 30;
  const auto ids = recipe_.vocab / recipe_.codebooks;
  const CodebookDelay delay(recipe_.codebooks, recipe_.codec->passes, kNewTokens,
                            static_cast<std::int32_t>(ids));
  for (const double scale : {1.0, 3.0}) {
    const auto expected = subject_.golden.ids(scale == 1 ? "codes.guidance1" : "codes.guidance3");
    auto stack = walk(1, kNewTokens);
    SamplingScratch scratch;
    Ids chosen;
    auto fed = delay.start();
    for (std::int64_t position = 0; position < kNewTokens; ++position) {
      auto logits =
          is_guided(scale) ? stack.step({{0, fed}, {1, fed}}, position) : stack.step({{0, fed}}, position);
      const auto row = static_cast<std::size_t>(recipe_.vocab);
      if (is_guided(scale))
        guide(std::span(logits).first(row), std::span(logits).subspan(row), static_cast<float>(scale));
      logits.resize(row);
      fed = sample_codes(logits, recipe_.codebooks, {}, {}, scratch);
      delay.mask(position + 1, fed);
      chosen.insert(chosen.end(), fed.begin(), fed.end());
    }
    Ids codes;
    for (const auto& codebook : delay.undo(chosen))
      codes.insert(codes.end(), codebook.begin(), codebook.end());
    EXPECT_EQ(codes, expected) << "guidance " << scale;
  }
}

// Row by row and both slots at once over any number of slices: the bits of one slice that gets all rows.
void GoldenMusic::check_split() {
  const auto books = static_cast<std::size_t>(recipe_.codebooks);
  Ids fed;
  for (std::size_t i = 0; i < 12 * books; ++i)
    fed.push_back(static_cast<std::int32_t>(i * 7 % static_cast<std::size_t>(recipe_.front.embedding.rows)));
  auto all = walk(1, 12);
  const auto with_text = all.step({{0, fed}}, 0);
  const auto without = all.step({{1, fed}}, 0);
  EXPECT_NE(with_text, without);
  const auto row = static_cast<std::size_t>(recipe_.vocab);
  for (std::int32_t ranks = 1; ranks <= recipe_.depth() + 1; ++ranks) {
    auto split = walk(ranks, 12);
    for (std::size_t position = 0; position < 12; ++position) {
      const Ids here(fed.begin() + static_cast<std::ptrdiff_t>(position * books),
                     fed.begin() + static_cast<std::ptrdiff_t>((position + 1) * books));
      const auto both = split.step({{0, here}, {1, here}}, static_cast<std::int64_t>(position));
      const auto at = static_cast<std::ptrdiff_t>(position * row);
      const auto next = at + static_cast<std::ptrdiff_t>(row);
      std::vector<float> expected(with_text.begin() + at, with_text.begin() + next);
      expected.insert(expected.end(), without.begin() + at, without.begin() + next);
      ASSERT_EQ(both, expected) << ranks << " ranks, position " << position;
    }
  }
}

TEST_P(GoldenMusic, Memory) {
  on_every_target(&GoldenMusic::check_memory);
}
TEST_P(GoldenMusic, Front) {
  on_every_target(&GoldenMusic::check_front);
}
TEST_P(GoldenMusic, Logits) {
  on_every_target(&GoldenMusic::check_logits);
}
TEST_P(GoldenMusic, Codes) {
  on_every_target(&GoldenMusic::check_codes);
}
TEST_P(GoldenMusic, SplitIsTheWhole) {
  on_every_target(&GoldenMusic::check_split);
}

INSTANTIATE_TEST_SUITE_P(, GoldenMusic, testing::ValuesIn(golden_cases(GoldenKind::walks_codebooks)),
                         [](const auto& each) { return each.param.name; });

TEST(GoldenMusicCases, AreAllThere) {
  EXPECT_GE(golden_cases(GoldenKind::walks_codebooks).size(), 2U);
}

}  // namespace
}  // namespace diffuse::test

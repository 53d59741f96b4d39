// The small models against transformers: layer outputs, logits and tokens, in f32.

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "backend/backend.hpp"
#include "golden.hpp"
#include "slice/executor.hpp"

namespace diffuse::test {
namespace {

// Of the largest absolute value of the reference array; recomputed in f64 the references differ by 1e-6.
constexpr double kTolerance = 2e-5;

using Ids = std::vector<std::int32_t>;

void expect_near(const float* found, const GoldenFloats& reference, std::int64_t first, std::int64_t rows,
                 const std::string& what) {
  ASSERT_LE(first + rows, reference.rows) << what;
  const double allowed = kTolerance * static_cast<double>(reference.largest());
  double worst = 0;
  std::int64_t at = -1;
  bool finite = true;
  for (std::int64_t i = 0; i < rows * reference.cols; ++i) {
    const double off = std::abs(static_cast<double>(found[i]) - static_cast<double>(reference.row(first)[i]));
    finite = finite && std::isfinite(off);
    if (off <= worst) continue;
    worst = off;
    at = i;
  }
  EXPECT_TRUE(finite) << what << " is not finite";
  EXPECT_LE(worst, allowed) << what << ": row " << first + at / reference.cols << ", column "
                            << at % reference.cols << "; relative to the largest "
                            << worst / static_cast<double>(reference.largest());
}

// The distance of a row's two largest values, and the index of the largest.
std::pair<float, std::int32_t> best(const float* row, std::int64_t cols) {
  const auto top = std::max_element(row, row + cols);
  float second = -INFINITY;
  for (const auto* value = row; value != row + cols; ++value)
    if (value != top) second = std::max(second, *value);
  return {*top - second, static_cast<std::int32_t>(top - row)};
}

// One slice of a model with its own cache for one sequence.
class Runner {
 public:
  Runner(const TestModel& model, Backend& backend, RankSlice slice, std::int64_t positions)
      : recipe_(model.recipe),
        backend_(backend),
        weights_(load_slice(model.recipe, slice, model.checkpoint, backend)),
        executor_(model.recipe, std::move(slice), backend, weights_,
                  {.max_rows = positions,
                   .max_samples = positions,
                   .kv_pages = (positions + kPageTokens - 1) / kPageTokens}),
        carry_(executor_.make_carry()) {
    executor_.admit(0, positions);
  }

  // In place: `hidden` holds what the slice before left.
  void run(std::span<const std::int32_t> ids, std::int64_t first_position, std::vector<float>& hidden) {
    Descriptor step;
    step.command = Command::step;
    step.number = ++steps_;
    step.entries = 1;
    step.entry[0].rows = static_cast<std::int32_t>(ids.size());
    step.entry[0].first_position = first_position;
    const auto rows = put(hidden);
    executor_.run(step, ids, rows);
    hidden = from_device(backend_, rows.data, rows.rows * rows.cols);
  }

  std::vector<float> logits(const std::vector<float>& hidden) {
    const auto out = device_logits(hidden);
    return from_device(backend_, out.data, out.rows * out.cols);
  }

  // The arg-max of a row's logits.
  std::int32_t greedy(const std::vector<float>& row) {
    std::int32_t id = -1;
    backend_.argmax(device_logits(row), std::span(&id, 1));
    return id;
  }

  const SliceWeights& weights() const { return weights_; }

 private:
  // The rows on the backend's device.
  Rows put(const std::vector<float>& hidden) {
    to_device(backend_, carry_, hidden);
    return {carry_.floats(), static_cast<std::int64_t>(hidden.size()) / recipe_.hidden, recipe_.hidden,
            recipe_.hidden};
  }

  Rows device_logits(const std::vector<float>& hidden) {
    const auto rows = put(hidden);
    std::vector<std::int64_t> all(static_cast<std::size_t>(rows.rows));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
    return executor_.logits(rows, all);
  }

  const Recipe& recipe_;
  Backend& backend_;
  SliceWeights weights_;
  Executor executor_;
  Buffer carry_;
  std::uint64_t steps_ = 0;
};

class GoldenModels : public testing::TestWithParam<GoldenCase> {
 public:
  GoldenModels() : model_(GetParam().folder), golden_(GetParam().folder), prompt_(golden_.ids("input_ids")) {}

  void on_every_target(void (GoldenModels::*check)()) {
    for (const auto& processor : processors()) {
      SCOPED_TRACE(processor);
      backend_ = make_backend(processor, 1, Compute::f32);
      (this->*check)();
    }
  }

  void check_layer_outputs();
  void check_prompt_logits();
  void check_greedy_tokens();
  void check_forced_tokens();

  Runner whole(std::int64_t positions) {
    return {model_, *backend_, make_plan(model_.recipe, model_.checkpoint.headers(), 1).ranks[0], positions};
  }

  std::vector<float> carry(std::size_t rows) const {
    return std::vector<float>(rows * static_cast<std::size_t>(model_.recipe.hidden));
  }

  // Runs the prompt in one step and then `fed` one id a step; logits of the prompt's last row and of each id.
  std::vector<float> forced(const Ids& fed) {
    auto runner = whole(static_cast<std::int64_t>(prompt_.size() + fed.size()));
    auto hidden = carry(prompt_.size());
    runner.run(prompt_, 0, hidden);
    const auto vocab = model_.recipe.vocab;
    auto all = runner.logits(hidden);
    all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(vocab));
    for (std::size_t i = 0; i < fed.size(); ++i) {
      auto row = carry(1);
      runner.run(std::span(fed).subspan(i, 1), static_cast<std::int64_t>(prompt_.size() + i), row);
      const auto logits = runner.logits(row);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  // The arg-max is the reference's wherever its two best are further apart than the tolerance.
  void expect_same_best(const float* found, const GoldenFloats& reference, const std::string& what) const {
    const double close = kTolerance * static_cast<double>(reference.largest());
    for (std::int64_t row = 0; row < reference.rows; ++row) {
      const auto [gap, id] = best(reference.row(row), reference.cols);
      if (static_cast<double>(gap) <= close) continue;
      EXPECT_EQ(best(found + row * reference.cols, reference.cols).second, id) << what << " row " << row;
    }
  }

  TestModel model_;
  Golden golden_;
  std::unique_ptr<Backend> backend_;
  Ids prompt_;
};

void GoldenModels::check_layer_outputs() {
  const auto depth = model_.recipe.depth();
  ASSERT_GE(depth, 1);
  const auto positions = static_cast<std::int64_t>(prompt_.size());
  auto hidden = carry(prompt_.size());
  RankSlice front;
  front.front = true;
  front.tensors = tensors_of(model_.recipe.front);
  Runner(model_, *backend_, front, positions).run(prompt_, 0, hidden);
  expect_near(hidden.data(), golden_.floats("hidden.0"), 0, positions, "hidden.0");

  std::string one_each = "0";
  for (std::int64_t layer = 1; layer < depth; ++layer) one_each += "," + std::to_string(layer);
  const auto plan =
      make_plan(model_.recipe, model_.checkpoint.headers(), static_cast<std::int32_t>(depth), one_each);
  for (std::int64_t layer = 0; layer < depth; ++layer) {
    Runner runner(model_, *backend_, plan.ranks[static_cast<std::size_t>(layer)], positions);
    runner.run(prompt_, 0, hidden);
    const auto name = "hidden." + std::to_string(layer + 1);
    const auto reference = golden_.floats(name);
    if (layer + 1 < depth) {
      expect_near(hidden.data(), reference, 0, positions, name);
      continue;
    }
    // Transformers' last one is what the head reads.
    std::vector<float> normed = hidden;
    const auto& norm = runner.weights().back->norm;
    const auto width = model_.recipe.hidden;
    if (norm) {
      const auto rows = backend_->allocate(hidden.size() * sizeof(float));
      to_device(*backend_, rows, hidden);
      backend_->norm({.x = {rows.floats(), positions, width, width},
                      .y = {rows.floats(), positions, width, width},
                      .kind = norm->spec.kind,
                      .weight = norm->weight_data(),
                      .bias = norm->bias_data(),
                      .weight_offset = norm->spec.weight_offset,
                      .eps = norm->spec.eps});
      normed = from_device(*backend_, rows.floats(), positions * width);
    }
    expect_near(normed.data(), reference, 0, positions, name);
  }
}

void GoldenModels::check_prompt_logits() {
  auto runner = whole(static_cast<std::int64_t>(prompt_.size()));
  auto hidden = carry(prompt_.size());
  runner.run(prompt_, 0, hidden);
  const auto reference = golden_.floats("logits");
  ASSERT_EQ(reference.cols, model_.recipe.vocab);
  const auto logits = runner.logits(hidden);
  expect_near(logits.data(), reference, 0, reference.rows, "logits");
  expect_same_best(logits.data(), reference, "logits");
}

void GoldenModels::check_greedy_tokens() {
  const auto tokens = golden_.ids("tokens");
  const auto reference = golden_.floats("decoded_logits");
  ASSERT_EQ(reference.rows, static_cast<std::int64_t>(tokens.size()));
  // Fed with the reference's tokens.
  const auto logits = forced({tokens.begin(), tokens.end() - 1});
  expect_near(logits.data(), reference, 0, reference.rows, "decoded_logits");
  expect_same_best(logits.data(), reference, "decoded_logits");

  // Free running: equal up to the first position whose two best are too close to call.
  auto runner = whole(static_cast<std::int64_t>(prompt_.size() + tokens.size()));
  auto hidden = carry(prompt_.size());
  runner.run(prompt_, 0, hidden);
  auto position = static_cast<std::int64_t>(prompt_.size());
  std::vector<float> row(hidden.end() - static_cast<std::ptrdiff_t>(model_.recipe.hidden), hidden.end());
  const double close = kTolerance * static_cast<double>(reference.largest());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int32_t id = runner.greedy(row);
    if (id != tokens[i]) {
      EXPECT_LE(static_cast<double>(best(reference.row(static_cast<std::int64_t>(i)), reference.cols).first),
                close)
          << "generated token " << i << " is " << id << ", not " << tokens[i];
      break;
    }
    row = carry(1);
    runner.run(std::span(&id, 1), position++, row);
  }
}

void GoldenModels::check_forced_tokens() {
  const auto fed = golden_.ids("forced");
  const auto reference = golden_.floats("forced_logits");
  ASSERT_EQ(reference.rows, static_cast<std::int64_t>(fed.size()));
  const auto logits = forced(fed);
  expect_near(logits.data() + model_.recipe.vocab, reference, 0, reference.rows, "forced_logits");
  expect_same_best(logits.data() + model_.recipe.vocab, reference, "forced_logits");
}

TEST_P(GoldenModels, LayerOutputs) {
  on_every_target(&GoldenModels::check_layer_outputs);
}
TEST_P(GoldenModels, PromptLogits) {
  on_every_target(&GoldenModels::check_prompt_logits);
}
TEST_P(GoldenModels, GreedyTokens) {
  on_every_target(&GoldenModels::check_greedy_tokens);
}
TEST_P(GoldenModels, ForcedTokens) {
  on_every_target(&GoldenModels::check_forced_tokens);
}

INSTANTIATE_TEST_SUITE_P(, GoldenModels, testing::ValuesIn(golden_cases()),
                         [](const auto& each) { return each.param.name; });

TEST(GoldenCases, AreAllThere) {
  std::vector<std::string> names;
  for (const auto& golden : golden_cases()) names.push_back(golden.name);
  EXPECT_GE(names.size(), 14U);
}

}  // namespace
}  // namespace diffuse::test

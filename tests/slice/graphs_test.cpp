// Decode steps that are recorded as CUDA graphs and launched again: slices of golden models give the bits of
// plain launches, over the stand-ins, whose counts say what was launched.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>

#include "golden.hpp"
#include "slice/executor.hpp"
#include "standin_faults.hpp"

namespace diffuse::test {
namespace {

int calls_of(const std::string& function) {
  const auto counts = standin::call_counts();
  const auto found = counts.find(function);
  return found == counts.end() ? 0 : found->second;
}

struct Scene {
  std::string model;
  std::int64_t far = 0;  // positions of the longest prompt, which a few steps carry over a border
  std::int64_t memory_rows = 0;
  Compute compute = Compute::bf16;
};

void PrintTo(const Scene& scene, std::ostream* out) {
  *out << scene.model << " from " << scene.far;
}

struct Part {
  std::int32_t slot = 0;
  std::int64_t first = 0;
  std::int32_t rows = 0;
};

// A model in two slices on one backend, which the rows pass one after the other, and two places for them.
class Slices {
 public:
  Slices(const TestModel& model, const Scene& scene, bool graphs)
      : model_(model),
        scene_(scene),
        backend_(make_cuda_backend(
            {.device = 0, .compute = scene.compute, .graphs = graphs, .warn = [](const std::string& text) {
               ADD_FAILURE() << text;
             }})) {
    const auto depth = model.recipe.depth();
    const auto plan = make_plan(model.recipe, model.checkpoint.headers(), 2,
                                depth < 3 ? "0-0,1-1" : "0-1,2-" + std::to_string(depth - 1));
    for (const auto& slice : plan.ranks) {
      weights_.push_back(
          std::make_unique<SliceWeights>(load_slice(model.recipe, slice, model.checkpoint, *backend_)));
      executors_.push_back(std::make_unique<Executor>(
          model.recipe, slice, *backend_, *weights_.back(),
          ExecutorLimits{.max_rows = scene.far + 8, .max_samples = 8, .kv_pages = 48}));
    }
    for (auto& carry : carries_) carry = executors_.front()->make_carry();
  }

  void admit(std::int32_t slot) {
    for (const auto& executor : executors_) {
      const auto rows = scene_.memory_rows == 0 ? 0 : scene_.memory_rows + 30 * slot;
      executor->admit(slot, 600, rows);
      if (rows == 0) continue;
      std::mt19937 random(static_cast<unsigned>(slot));
      std::normal_distribution<float> normal;
      std::vector<float> memory(static_cast<std::size_t>(rows * model_.recipe.encoder->hidden));
      for (auto& value : memory) value = normal(random);
      executor->remember(slot, memory);
    }
  }
  void release(std::int32_t slot) {
    for (const auto& executor : executors_) executor->release(slot, 0);
  }

  // What the rows are when they leave the last layer, and the logits of the last row of each part.
  std::vector<float> step(const std::vector<Part>& parts, std::size_t place) {
    Descriptor step;
    step.command = Command::step;
    std::vector<std::int32_t> ids;
    std::vector<std::int64_t> sampled;
    for (const auto& part : parts) {
      auto& entry = step.entry[step.entries++];
      entry.slot = part.slot;
      entry.rows = part.rows;
      entry.first_position = part.first;
      for (std::int64_t position = part.first; position < part.first + part.rows; ++position)
        ids.push_back(static_cast<std::int32_t>((position * 31 + part.slot * 17 + position * position) %
                                                model_.recipe.vocab));
      sampled.push_back(static_cast<std::int64_t>(ids.size()) - 1);
    }
    const auto width = model_.recipe.hidden;
    const Rows hidden{carries_.at(place).floats(), step.rows(), width, width};
    for (const auto& executor : executors_)
      executor->run(step, executor == executors_.front() ? ids : std::vector<std::int32_t>(), hidden);
    auto said = from_device(*backend_, hidden.data, hidden.rows * width);
    const auto logits = executors_.back()->logits(hidden, sampled);
    const auto values = from_device(*backend_, logits.data, logits.rows * logits.cols);
    said.insert(said.end(), values.begin(), values.end());
    return said;
  }

 private:
  const TestModel& model_;
  Scene scene_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<SliceWeights>> weights_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::array<Buffer, 2> carries_;
};

constexpr int kSteps = 14;

// Two groups of sequences take turns, each with rows of its own; halfway another sequence takes a place.
std::vector<std::vector<float>> decode(const TestModel& model, const Scene& scene, bool graphs) {
  Slices slices(model, scene, graphs);
  std::vector<std::vector<float>> said;
  std::map<std::int32_t, std::int64_t> lengths;
  const auto begin = [&](std::int32_t slot, std::int64_t prompt, std::size_t group) {
    slices.admit(slot);
    said.push_back(slices.step({{slot, 0, static_cast<std::int32_t>(prompt)}}, group));
    lengths[slot] = prompt;
  };
  const auto page = std::min<std::int64_t>(scene.far, 61);
  begin(0, scene.far, 0);
  begin(1, page, 0);
  begin(2, 1, 0);
  begin(3, page - 1, 1);
  begin(4, scene.far / 2, 1);
  std::array<std::vector<std::int32_t>, 2> groups = {{{0, 1, 2}, {3, 4}}};
  for (int i = 0; i < kSteps; ++i) {
    if (i == kSteps / 2) {
      slices.release(1);
      begin(5, page - 2, 0);
      groups[0][1] = 5;
    }
    for (std::size_t group = 0; group < groups.size(); ++group) {
      std::vector<Part> parts;
      for (const auto slot : groups.at(group)) parts.push_back({slot, lengths[slot]++, 1});
      said.push_back(slices.step(parts, group));
    }
  }
  return said;
}

class Graphs : public ::testing::TestWithParam<Scene> {};

TEST_P(Graphs, HaveTheBitsOfPlainLaunches) {
  const auto& scene = GetParam();
  TestModel model(golden_case(scene.model).folder);
  // Those with rotations go further than they say, which is 256.
  if (scene.far > 200) model.recipe.max_positions = 1024;
  standin::inject("");
  const auto plain = decode(model, scene, false);
  EXPECT_EQ(calls_of("cudaGraphLaunch"), 0);
  const auto launches = calls_of("cudaLaunchKernel");
  standin::inject("");
  const auto recorded = decode(model, scene, true);
  ASSERT_EQ(plain.size(), recorded.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(plain[i].size(), recorded[i].size());
    EXPECT_EQ(std::memcmp(plain[i].data(), recorded[i].data(), plain[i].size() * sizeof(float)), 0)
        << "step " << i;
  }
  if (scene.model == "mixtral") {
    EXPECT_EQ(calls_of("cudaStreamBeginCapture"), 0) << "experts need the host";
    return;
  }
  // Both slices, both groups, at most two shapes of each; three plain runs of a shape.
  const int most = 2 * 2 * kSteps;
  EXPECT_GE(calls_of("cudaGraphLaunch"), most - 2 * 2 * 2 * 3);
  EXPECT_LE(calls_of("cudaGraphLaunch"), most);
  EXPECT_LE(calls_of("cudaGraphInstantiate"), 2 * 2 * 2);
  EXPECT_LT(calls_of("cudaLaunchKernel"), launches);
}

INSTANTIATE_TEST_SUITE_P(All, Graphs,
                         ::testing::Values(Scene{"llama", 250, 0, Compute::f32}, Scene{"llama", 506},
                                           Scene{"mistral-window", 250}, Scene{"qwen3", 250},
                                           Scene{"gemma2", 60}, Scene{"gpt2", 60}, Scene{"mixtral", 60},
                                           Scene{"whisper", 40, 240}, Scene{"t5", 60, 20, Compute::f32},
                                           Scene{"bart", 60, 100}),
                         [](const auto& scene) {
                           auto name = scene.param.model + "_" + std::to_string(scene.param.far);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace diffuse::test

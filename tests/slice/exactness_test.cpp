// Splitting changes no bit: hidden rows, logits and the digests of every layer are compared with the whole
// model's, which runs each sequence alone, in one step and on one thread.
//
// Every cut of two slices is run in both compute modes on the best SIMD target and in one of them on each
// other target; of the cuts of more slices each is run once (a third of them where the model is deep).
// Threads, chunks and groups follow a covering array: each pair of their values comes up.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <set>
#include <utility>

#include "backend/backend.hpp"
#include "core/hash.hpp"
#include "golden.hpp"
#include "slice/executor.hpp"

namespace diffuse::test {
namespace {

using Ids = std::vector<std::int32_t>;

struct Text {
  Ids ids;
  std::int64_t prompt = 0;  // the rest is fed one id a step
};

using Lengths = std::vector<std::pair<int, int>>;  // of the prompt, and of what is fed after it

// Some cross the border of a page, and of windows.
const Lengths kTen = {{62, 5}, {1, 6}, {17, 3}, {3, 4}, {66, 3}, {2, 3}, {16, 3}, {9, 3}, {5, 4}, {4, 3}};
// So long that a backend cuts the attention of one row into parts.
#ifdef DIFFUSE_TEST_STANDIN
const Lengths kLong = {{20, 6}, {5, 9}, {590, 5}};
#else
const Lengths kLong = {{20, 6}, {5, 9}, {1590, 5}};
#endif

std::vector<Text> make_texts(std::int64_t vocab, const Lengths& lengths) {
  std::mt19937 random(20);
  std::vector<Text> texts;
  for (const auto& [prompt, decoded] : lengths) {
    Text text{{}, prompt};
    for (int i = 0; i < prompt + decoded; ++i)
      text.ids.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab)));
    texts.push_back(std::move(text));
  }
  return texts;
}

struct Part {
  std::size_t text = 0;
  std::int64_t first = 0;
  std::int64_t rows = 0;
};
using Script = std::vector<std::vector<Part>>;

// How the texts are run: `others` more beside each one, prompts in chunks of at most `chunk` rows (0: all).
// Texts of a group start four by four, so that decoded rows and chunks of prompts meet in a step, in
// an order that changes from step to step.
Script make_script(const std::vector<Text>& texts, std::size_t others, std::int64_t chunk, unsigned seed) {
  std::mt19937 random(seed);
  Script script;
  for (std::size_t begin = 0; begin < texts.size(); begin += others + 1) {
    const auto count = std::min(others + 1, texts.size() - begin);
    std::vector<std::int64_t> done(count);
    for (std::size_t tick = 0;; ++tick) {
      std::vector<Part> step;
      bool open = false;
      for (std::size_t i = 0; i < count; ++i) {
        const auto& text = texts[begin + i];
        const auto left = static_cast<std::int64_t>(text.ids.size()) - done[i];
        open = open || left > 0;
        if (left == 0 || tick < i / 4) continue;
        const auto of_prompt = text.prompt - done[i];
        const auto rows = of_prompt <= 0 ? 1 : chunk == 0 ? of_prompt : std::min(chunk, of_prompt);
        step.push_back({begin + i, done[i], rows});
        done[i] += rows;
      }
      if (!open) break;
      for (std::size_t i = step.size(); i > 1; --i) std::swap(step[i - 1], step[random() % i]);
      if (!step.empty()) script.push_back(std::move(step));
    }
  }
  return script;
}

Script one_step_each(std::vector<Text> texts) {
  for (auto& text : texts) text.prompt = static_cast<std::int64_t>(text.ids.size());
  return make_script(texts, 0, 0, 0);
}

using Cut = std::vector<std::pair<std::int64_t, std::int64_t>>;  // layers [first, end) of each slice

std::string to_text(const Cut& cut) {
  std::string text;
  for (const auto& [first, end] : cut)
    text += (text.empty() ? "" : ",") + std::to_string(first) + "-" + std::to_string(end - 1);
  return text;
}

// Bit i of `borders` cuts between the layers i and i + 1.
Cut make_cut(std::int64_t depth, std::uint64_t borders) {
  Cut cut;
  std::int64_t first = 0;
  for (std::int64_t layer = 1; layer <= depth; ++layer) {
    if (layer < depth && (borders >> (layer - 1) & 1) == 0) continue;
    cut.emplace_back(first, layer);
    first = layer;
  }
  return cut;
}

// What a run said, a text each.
struct Said {
  std::vector<float> hidden;           // [positions, hidden] that left the last layer
  std::vector<float> logits;           // [positions, vocab]
  std::vector<std::uint64_t> digests;  // [depth + 1][positions]
};

// A backend, and the weights of slices that were loaded on it.
class Machine {
 public:
  Machine(const TestModel& model, int threads, Compute compute, const std::string& processor)
      : model_(model), backend_(make_backend(processor, threads, compute)) {}

  std::vector<Said> run(const std::vector<Text>& texts, const Script& script, const Cut& cut) {
    const auto& recipe = model_.recipe;
    std::int64_t max_rows = 0;
    std::int64_t pages = 0;
    for (const auto& step : script) {
      std::int64_t rows = 0;
      for (const auto& part : step) rows += part.rows;
      max_rows = std::max(max_rows, rows);
    }
    for (const auto& text : texts) pages += pages_of(text);

    const auto plan =
        make_plan(recipe, model_.checkpoint.headers(), static_cast<std::int32_t>(cut.size()), to_text(cut));
    std::vector<std::unique_ptr<Executor>> chain;
    for (const auto& slice : plan.ranks) {
      chain.push_back(std::make_unique<Executor>(
          recipe, slice, *backend_, weights_of(slice),
          ExecutorLimits{.max_rows = max_rows, .max_samples = max_rows, .kv_pages = pages, .trace = true}));
      // In another order in each slice and script: which page holds a position must not matter.
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto text = (i * 7 + chain.size() + script.size()) % texts.size();
        chain.back()->admit(static_cast<std::int32_t>(text),
                            static_cast<std::int64_t>(texts[text].ids.size()));
      }
    }

    std::vector<Said> said(texts.size());
    for (const auto& step : script) run_step(texts, step, chain, said);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      for (auto& executor : chain) {
        const auto digests =
            executor->release(static_cast<std::int32_t>(i), static_cast<std::int64_t>(texts[i].ids.size()));
        said[i].digests.insert(said[i].digests.end(), digests.begin(), digests.end());
      }
    }
    return said;
  }

 private:
  static std::int64_t pages_of(const Text& text) {
    return (static_cast<std::int64_t>(text.ids.size()) + kPageTokens - 1) / kPageTokens;
  }

  void run_step(const std::vector<Text>& texts, const std::vector<Part>& parts,
                const std::vector<std::unique_ptr<Executor>>& chain, std::vector<Said>& said) {
    Descriptor step;
    step.command = Command::step;
    Ids ids;
    for (const auto& part : parts) {
      auto& entry = step.entry[step.entries++];
      entry.slot = static_cast<std::int32_t>(part.text);
      entry.rows = static_cast<std::int32_t>(part.rows);
      entry.first_position = part.first;
      const auto from = texts[part.text].ids.begin() + part.first;
      ids.insert(ids.end(), from, from + part.rows);
    }
    const auto width = model_.recipe.hidden;
    const auto rows = step.rows();
    const auto memory = chain.front()->make_carry();
    const Rows hidden{memory.floats(), rows, width, width};
    for (const auto& executor : chain) executor->run(step, executor == chain.front() ? ids : Ids(), hidden);
    std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
    const auto carry = from_device(*backend_, hidden.data, rows * width);
    const auto on_device = chain.back()->logits(hidden, all);
    const auto vocab = on_device.cols;
    const auto logits = from_device(*backend_, on_device.data, rows * vocab);
    std::int64_t row = 0;
    for (const auto& part : parts) {
      auto& out = said[part.text];
      out.hidden.insert(out.hidden.end(), carry.data() + row * width,
                        carry.data() + (row + part.rows) * width);
      out.logits.insert(out.logits.end(), logits.data() + row * vocab,
                        logits.data() + (row + part.rows) * vocab);
      row += part.rows;
    }
  }

  SliceWeights& weights_of(const RankSlice& slice) {
    auto& weights = weights_[{slice.first_layer, slice.end_layer}];
    if (!weights) {
      weights =
          std::make_unique<SliceWeights>(load_slice(model_.recipe, slice, model_.checkpoint, *backend_));
    }
    return *weights;
  }

  const TestModel& model_;
  std::unique_ptr<Backend> backend_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<SliceWeights>> weights_;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kThin = 4;
#elif defined(DIFFUSE_TEST_STANDIN)
constexpr std::uint64_t kThin = 2;
#else
constexpr std::uint64_t kThin = 1;
#endif

bool chosen(std::size_t slices, std::int64_t depth, std::uint64_t borders, std::uint64_t target,
            std::uint64_t targets, Compute compute) {
  const std::uint64_t mode = compute == Compute::f32 ? 0 : 1;
  if (slices == 1) return true;
  if (slices == 2) {
    const auto border = static_cast<std::uint64_t>(std::countr_zero(borders));
    return kThin == 1 && target == 0 ? true : (border + target + mode) % (2 * kThin) == 0;
  }
  const std::uint64_t spread = targets * 2 * kThin * (depth > 5 ? 3 : 1);
  return borders * 7 % spread == target * 2 + mode;
}

template <typename Value>
bool same_bits(const std::vector<Value>& a, const std::vector<Value>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Value)) == 0;
}

// The first thing that differs; empty where nothing does.
std::string difference(const std::vector<Said>& whole, const std::vector<Said>& split) {
  for (std::size_t text = 0; text < whole.size(); ++text) {
    const auto& a = whole[text];
    const auto& b = split[text];
    const auto name = "text " + std::to_string(text);
    if (a.digests.size() != b.digests.size()) return name + ": other digests";
    for (std::size_t i = 0; i < a.digests.size(); ++i) {
      const auto positions = a.hidden.empty() ? 1 : a.digests.size();
      if (a.digests[i] != b.digests[i])
        return name + ": digest " + std::to_string(i) + " of " + std::to_string(positions);
    }
    if (!same_bits(a.hidden, b.hidden)) return name + ": hidden rows";
    if (!same_bits(a.logits, b.logits)) return name + ": logits";
  }
  return {};
}

class Exactness : public testing::TestWithParam<GoldenCase> {};

TEST_P(Exactness, OfEveryCutThreadChunkAndGroup) {
  constexpr std::array<std::int64_t, 4> kChunks = {1, 3, 16, 0};
  constexpr std::array<std::size_t, 4> kOthers = {0, 1, 5, 9};
  const TestModel model(GetParam().folder);
  const auto depth = model.recipe.depth();
  const auto texts = make_texts(model.recipe.vocab, kTen);
  const auto one_step = one_step_each(texts);

  std::array<std::array<Script, 4>, 4> scripts;  // [chunk][others]
  for (std::size_t chunk = 0; chunk < 4; ++chunk)
    for (std::size_t others = 0; others < 4; ++others)
      scripts[chunk][others] =
          make_script(texts, kOthers[others], kChunks[chunk], static_cast<unsigned>(4 * chunk + others));

  const auto targets = processors();
  std::size_t runs = 0;
  for (std::size_t target = 0; target < targets.size(); ++target) {
    for (const auto compute : {Compute::f32, Compute::bf16}) {
      std::vector<std::unique_ptr<Machine>> machines;  // [threads - 1]
      for (int threads = 1; threads <= 4; ++threads)
        machines.push_back(std::make_unique<Machine>(model, threads, compute, targets[target]));
      const auto whole = machines[0]->run(texts, one_step, make_cut(depth, 0));
      for (std::uint64_t borders = 0; borders < std::uint64_t{1} << (depth - 1); ++borders) {
        const auto cut = make_cut(depth, borders);
        if (!chosen(cut.size(), depth, borders, target, targets.size(), compute)) continue;
        // Rows of a covering array of strength two: the third is fixed by the other two.
        const auto row = (runs++ * 5) % 16;
        const auto threads = row / 4;
        const auto chunk = row % 4;
        const auto others = threads ^ chunk;
        const auto split = machines[threads]->run(texts, scripts[chunk][others], cut);
        EXPECT_EQ(difference(whole, split), "")
            << "slices " << to_text(cut) << ", " << threads + 1 << " threads, chunks of " << kChunks[chunk]
            << ", with " << kOthers[others] << " others, " << (compute == Compute::f32 ? "f32" : "bf16")
            << ", " << targets[target];
        if (HasFailure()) return;
      }
    }
  }
  RecordProperty("runs", static_cast<int>(runs));
  EXPECT_GE(runs, kThin == 1 ? 8U : 2U);
}

TEST(ExactnessOfLongTexts, OfEveryThread) {
  const TestModel model(demo_model());
  const auto depth = model.recipe.depth();
  const auto texts = make_texts(model.recipe.vocab, kLong);
  constexpr std::array<std::int64_t, 4> kChunks = {0, 256, 16, 100};
  const auto all = processors();
  for (const auto& simd : std::set<std::string>{all.front(), all.back()}) {
    for (const auto compute : {Compute::f32, Compute::bf16}) {
      const auto whole =
          Machine(model, 1, compute, simd).run(texts, one_step_each(texts), make_cut(depth, 0));
      for (std::size_t i = 0; i < 4; ++i) {
        const auto threads = static_cast<int>(i) + 1;
        const auto script = make_script(texts, i % 2 == 0 ? 2 : 0, kChunks[i], 1);
        const auto split = Machine(model, threads, compute, simd).run(texts, script, make_cut(depth, i * 5));
        EXPECT_EQ(difference(whole, split), "") << threads << " threads, " << simd;
      }
      if (kThin > 1) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Exactness, testing::ValuesIn(golden_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace diffuse::test

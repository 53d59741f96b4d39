// The small encoder-decoders against transformers: memory, layer outputs, logits and tokens, in f32.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backend/backend.hpp"
#include "memory_cases.hpp"
#include "recipe/build.hpp"
#include "slice/position_bias.hpp"

namespace diffuse::test {
namespace {

// Of the largest absolute value of the reference array.
constexpr double kTolerance = 2e-5;

void expect_near(const std::vector<float>& found, const GoldenFloats& reference, const std::string& what) {
  ASSERT_EQ(found.size(), reference.values.size()) << what;
  const double largest = static_cast<double>(reference.largest());
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double off = std::abs(static_cast<double>(found[i]) - static_cast<double>(reference.values[i]));
    if (off <= worst) continue;  // a NaN is caught below
    worst = off;
    at = i;
  }
  EXPECT_TRUE(std::all_of(found.begin(), found.end(), [](float value) { return std::isfinite(value); }))
      << what;
  EXPECT_LE(worst, kTolerance * largest)
      << what << ", element " << at << "; relative to the largest " << worst / largest;
}

std::int32_t best(const float* row, std::int64_t cols) {
  return static_cast<std::int32_t>(std::max_element(row, row + cols) - row);
}

// One slice of the decoder with its own cache and memory for one sequence.
class Runner {
 public:
  Runner(const MemoryCase& subject, Backend& backend, const RankSlice& slice, std::int64_t positions,
         const std::vector<float>& memory)
      : recipe_(subject.model.recipe),
        backend_(backend),
        weights_(load_slice(recipe_, slice, subject.model.checkpoint, backend)),
        executor_(recipe_, slice, backend, weights_,
                  {.max_rows = positions,
                   .max_samples = positions,
                   .kv_pages = 2 + positions / kPageTokens + rows_of(memory) / kPageTokens}),
        carry_(executor_.make_carry()) {
    executor_.admit(0, positions, rows_of(memory));
    executor_.remember(0, memory);
  }

  // In place: `hidden` holds what the slice before left.
  void run(std::span<const std::int32_t> ids, std::int64_t first_position, std::vector<float>& hidden) {
    Descriptor step;
    step.command = Command::step;
    step.number = ++steps_;
    step.entries = 1;
    step.entry[0].rows = static_cast<std::int32_t>(ids.size());
    step.entry[0].first_position = first_position;
    to_device(backend_, carry_, hidden);
    const Rows rows = carry(static_cast<std::int64_t>(ids.size()));
    executor_.run(step, ids, rows);
    hidden = from_device(backend_, rows.data, rows.rows * rows.cols);
  }

  std::vector<float> logits(const std::vector<float>& hidden) {
    to_device(backend_, carry_, hidden);
    const Rows rows = carry(static_cast<std::int64_t>(hidden.size()) / recipe_.hidden);
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < rows.rows; ++i) all.push_back(i);
    const auto out = executor_.logits(rows, all);
    return from_device(backend_, out.data, out.rows * out.cols);
  }

  const SliceWeights& weights() const { return weights_; }

 private:
  std::int64_t rows_of(const std::vector<float>& memory) const {
    return static_cast<std::int64_t>(memory.size()) / recipe_.encoder->hidden;
  }
  Rows carry(std::int64_t rows) const { return {carry_.floats(), rows, recipe_.hidden, recipe_.hidden}; }

  const Recipe& recipe_;
  Backend& backend_;
  SliceWeights weights_;
  Executor executor_;
  Buffer carry_;
  std::uint64_t steps_ = 0;
};

class GoldenMemory : public testing::TestWithParam<GoldenCase> {
 public:
  GoldenMemory() : subject_(GetParam().folder) {}

  void on_every_target(void (GoldenMemory::*check)()) {
    for (const auto& simd : processors()) {
      SCOPED_TRACE(simd);
      backend_ = make_backend(simd, 1, Compute::f32);
      (this->*check)();
    }
  }

  std::vector<float> memory() { return encode(subject_, *backend_, {&subject_.input}).front(); }

  Runner whole(std::size_t positions) {
    const auto plan = make_plan(subject_.model.recipe, subject_.model.checkpoint.headers(), 1);
    return {subject_, *backend_, plan.ranks[0], static_cast<std::int64_t>(positions), memory()};
  }

  std::vector<float> rows(std::size_t count) const {
    return std::vector<float>(count * static_cast<std::size_t>(subject_.model.recipe.hidden));
  }

  Ids with_prompt(const Ids& tokens) const {
    auto all = subject_.prompt;
    all.insert(all.end(), tokens.begin(), tokens.end());
    return all;
  }

  void check_memory();
  void check_layers();
  void check_logits();
  void check_tokens();

  MemoryCase subject_;
  std::unique_ptr<Backend> backend_;
};

void GoldenMemory::check_memory() {
  expect_near(memory(), subject_.golden.floats("memory"), "memory");
}

void GoldenMemory::check_layers() {
  const auto& recipe = subject_.model.recipe;
  if (!subject_.golden.has("hidden.0")) return;  // cases as golden.py makes them have no layers
  const auto ids = with_prompt(subject_.golden.ids("tokens"));
  const auto memory = this->memory();
  std::string one_each = "0";
  for (std::int64_t layer = 1; layer < recipe.depth(); ++layer) one_each += "," + std::to_string(layer);
  const auto plan = make_plan(recipe, subject_.model.checkpoint.headers(),
                              static_cast<std::int32_t>(recipe.depth()) + 1, one_each);
  auto hidden = rows(ids.size());
  RankSlice front;
  front.front = true;
  front.tensors = tensors_of(recipe.front);
  const auto positions = static_cast<std::int64_t>(ids.size());
  Runner(subject_, *backend_, front, positions, memory).run(ids, 0, hidden);
  expect_near(hidden, subject_.golden.floats("hidden.0"), "hidden.0");
  for (std::int64_t layer = 0; layer < recipe.depth(); ++layer) {
    auto slice = plan.ranks[static_cast<std::size_t>(layer)];
    slice.front = false;  // its rows are given
    Runner runner(subject_, *backend_, slice, positions, memory);
    runner.run(ids, 0, hidden);
    const auto name = "hidden." + std::to_string(layer + 1);
    const bool last = layer + 1 == recipe.depth();
    if (!last || !runner.weights().back->norm) expect_near(hidden, subject_.golden.floats(name), name);
  }
}

void GoldenMemory::check_logits() {
  for (const auto& [fed, reference] : {std::pair("tokens", "logits"), std::pair("forced", "forced_logits")}) {
    const auto expected = subject_.golden.floats(reference);
    const auto ids = with_prompt(subject_.golden.ids(fed));
    auto runner = whole(ids.size());
    auto hidden = rows(ids.size());
    runner.run(ids, 0, hidden);
    expect_near(runner.logits(hidden), expected, reference);
    // One a step, the prompt first.
    auto decoder = whole(ids.size());
    auto start = rows(subject_.prompt.size());
    decoder.run(subject_.prompt, 0, start);
    auto all = decoder.logits(start);
    for (std::size_t i = subject_.prompt.size(); i < ids.size(); ++i) {
      auto row = rows(1);
      decoder.run(std::span(ids).subspan(i, 1), static_cast<std::int64_t>(i), row);
      const auto logits = decoder.logits(row);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    expect_near(all, expected, std::string(reference) + ", one a step");
  }
}

void GoldenMemory::check_tokens() {
  const auto tokens = subject_.golden.ids("tokens");
  const auto reference = subject_.golden.floats("logits");
  const double close = kTolerance * static_cast<double>(reference.largest());
  auto runner = whole(subject_.prompt.size() + tokens.size());
  auto hidden = rows(subject_.prompt.size());
  runner.run(subject_.prompt, 0, hidden);
  std::vector<float> row(hidden.end() - static_cast<std::ptrdiff_t>(subject_.model.recipe.hidden),
                         hidden.end());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = best(runner.logits(row).data(), subject_.model.recipe.vocab);
    if (id != tokens[i]) {
      const auto* at = reference.row(static_cast<std::int64_t>(subject_.prompt.size() + i) - 1);
      EXPECT_LE(static_cast<double>(at[tokens[i]] - at[id]), close) << "generated token " << i;
      return;
    }
    row = rows(1);
    runner.run(std::span(&id, 1), static_cast<std::int64_t>(subject_.prompt.size() + i), row);
  }
}

TEST_P(GoldenMemory, Memory) {
  on_every_target(&GoldenMemory::check_memory);
}
TEST_P(GoldenMemory, LayerOutputs) {
  on_every_target(&GoldenMemory::check_layers);
}
TEST_P(GoldenMemory, Logits) {
  on_every_target(&GoldenMemory::check_logits);
}
TEST_P(GoldenMemory, Tokens) {
  on_every_target(&GoldenMemory::check_tokens);
}

INSTANTIATE_TEST_SUITE_P(, GoldenMemory, testing::ValuesIn(golden_cases(GoldenKind::reads_encoder)),
                         [](const auto& each) { return each.param.name; });

// An input by itself, on one thread.
std::vector<float> alone(const MemoryCase& subject, const EncoderInput& input, const std::string& simd,
                         Compute compute) {
  const auto backend = make_backend(simd, 1, compute);
  return encode(subject, *backend, {&input}).front();
}

TEST(EncoderExactness, OfEveryThreadAndBatch) {
  for (const auto& golden : golden_cases(GoldenKind::reads_encoder)) {
    const MemoryCase subject(golden.folder);
    const bool sound = subject.model.recipe.encoder->vocab == 0;
    std::vector<EncoderInput> inputs = {subject.input, subject.input, subject.input};
    if (sound) {
      std::reverse(inputs[0].frames.begin(), inputs[0].frames.end());
    } else {
      inputs[0].ids.resize(1);
      for (int i = 0; i < 100; ++i) inputs[1].ids.push_back(3 + i % 90);
    }
    const auto targets = processors();
    for (const auto& simd : sound ? std::vector{targets.front()} : targets) {
      for (const auto compute : {Compute::f32, Compute::bf16}) {
        std::vector<std::vector<float>> expected;
        for (const auto& input : inputs) expected.push_back(alone(subject, input, simd, compute));
        for (int threads = 1; threads <= (simd == kCuda ? 1 : 4); ++threads) {
          const auto backend = make_backend(simd, threads, compute);
          EXPECT_EQ(encode(subject, *backend, {&inputs[0], &inputs[1], &inputs[2]}), expected)
              << golden.name << ", " << threads << " threads, " << simd;
        }
      }
    }
  }
}

TEST(PositionBias, HasTorchsBuckets) {
  // transformers' T5Attention._relative_position_bucket for 32 buckets up to 128 and for 16 up to 20.
  const auto buckets = read_json(std::filesystem::path(DIFFUSE_TEST_DATA) / "bias-buckets.json");
  std::size_t seen = 0;
  for (const auto& each : buckets) {
    auto distance = each.at("first").get<std::int64_t>();
    for (const auto& bucket : each.at("buckets")) {
      EXPECT_EQ(bias_bucket(distance, each.at("count"), each.at("max_distance"), each.at("both_sides")),
                bucket.get<std::int64_t>())
          << distance << " of " << each.at("count") << " up to " << each.at("max_distance");
      ++distance;
      ++seen;
    }
  }
  EXPECT_GT(seen, 1000U);
}

TEST(PositionBias, IsLaidOutByDistance) {
  PositionBias bias;
  bias.table.rows = 4;
  bias.table.cols = 2;
  bias.max_distance = 3;
  const std::vector<float> table = {0, 10, 1, 11, 2, 12, 3, 13};
  EXPECT_EQ(bias_by_distance(table, bias),
            (std::vector<float>{3, 2, 1, 0, 0, 0, 0, 13, 12, 11, 10, 10, 10, 10}));
}

std::vector<std::int32_t> up_to(std::int32_t ranks) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Every rank that encodes holds all of the encoder, the others nothing of it; the decoder's layers are there
// once.
void expect_whole_encoders(const Recipe& recipe, const TensorHeaders& headers, const Plan& plan) {
  const auto encoder = tensors_of(*recipe.encoder);
  const auto front = tensors_of(recipe.front);
  std::int64_t layers = 0;
  double encoding = 0;
  for (const auto& slice : plan.ranks) {
    layers += slice.layers();
    encoding += slice.encoder_cost;
    const bool encodes = std::count(plan.encoders.begin(), plan.encoders.end(), slice.rank) == 1;
    EXPECT_EQ(slice.encoder, encodes);
    EXPECT_EQ(slice.encoder_cost > 0, encodes);
    for (const auto& tensor : encoder) {
      const bool has = std::count(slice.tensors.begin(), slice.tensors.end(), tensor) > 0;
      const bool shared = std::count(front.begin(), front.end(), tensor) > 0;
      if (encodes) {
        EXPECT_TRUE(has) << tensor;
      } else if (!shared) {
        EXPECT_FALSE(has) << tensor << " on rank " << slice.rank;
      }
    }
  }
  EXPECT_EQ(layers, recipe.depth());
  EXPECT_FALSE(plan.encoders.empty());
  const auto alone = make_plan(recipe, headers, 1);
  EXPECT_NEAR(encoding / alone.ranks[0].encoder_cost, 1, 1e-9);
}

// Whatever the halves' depths are, the half that answers is cut and the encoder lies whole wherever it is.
TEST(Plans, NeverCutTheEncoder) {
  for (const std::string name : {"t5", "bart", "marian", "whisper"}) {
    const auto checkpoint = Checkpoint::open(golden_case(name).folder);
    const bool t5 = name == "t5";
    for (const std::int64_t depth : {5, 3, 1}) {  // the encoder has 3 layers
      auto headers = checkpoint.headers();
      std::erase_if(headers, [&](const auto& header) {
        const std::string prefix = t5 ? "decoder.block." : "model.decoder.layers.";
        return header.first.starts_with(prefix) && header.first[prefix.size()] - '0' >= depth;
      });
      auto config = checkpoint.config();
      config[t5 ? "num_decoder_layers" : "decoder_layers"] = depth;
      const auto recipe = build_recipe(config, headers);
      ASSERT_EQ(recipe.depth(), depth);
      for (std::int32_t ranks = 1; ranks <= depth + 2; ++ranks) {
        const auto one = make_plan(recipe, headers, ranks, "", EncoderCopies::one);
        const auto all = make_plan(recipe, headers, ranks, "", EncoderCopies::all);
        const auto chosen = make_plan(recipe, headers, ranks);
        EXPECT_EQ(one.encoders,
                  std::vector<std::int32_t>{ranks > depth ? static_cast<std::int32_t>(depth) : 0});
        EXPECT_EQ(all.encoders, up_to(ranks));
        EXPECT_EQ(chosen.encoders, copies_pay(one, all) ? all.encoders : one.encoders);
        for (const auto* plan : {&one, &all, &chosen}) {
          EXPECT_EQ(plan->stages, std::min<std::int64_t>(ranks, depth));
          expect_whole_encoders(recipe, headers, *plan);
        }
      }
    }
  }
}

// A plan of ranks that cost so much.
Plan costing(const std::vector<double>& costs) {
  Plan plan;
  for (const auto cost : costs) plan.ranks.emplace_back().cost = cost;
  return plan;
}

TEST(Plans, CopiesPayWhereOneEncoderHoldsTheOthersUp) {
  EXPECT_FALSE(copies_pay(costing({10, 9}), costing({9.5, 9.5})));
  EXPECT_TRUE(copies_pay(costing({11, 8}), costing({9.5, 9.5})));
  EXPECT_FALSE(copies_pay(costing({3, 10}), costing({4, 11}))) << "another rank holds them up";
  const auto encoders_of = [](const std::string& name, std::int32_t ranks) {
    const TestModel model(golden_case(name).folder);
    return make_plan(model.recipe, model.checkpoint.headers(), ranks).encoders;
  };
  // Encoding is most of the work of a window of sound, and little of a text's.
  EXPECT_EQ(encoders_of("whisper", 1), up_to(1));
  for (std::int32_t ranks = 2; ranks <= 6; ++ranks) EXPECT_EQ(encoders_of("whisper", ranks), up_to(ranks));
  EXPECT_EQ(encoders_of("bart", 2), up_to(1));
  EXPECT_EQ(encoders_of("musicgen", 3), up_to(1));
}

// A window of sound is read by every token: twice as long, and a layer costs as much more as its keys and
// values.
TEST(Plans, ALayerCostsTheMemoryThatItReads) {
  const auto of_decoder = [](const Recipe& recipe, const TestModel& model) {
    std::vector<double> costs;
    const auto plan =
        make_plan(recipe, model.checkpoint.headers(), 2, "0-0,1-" + std::to_string(recipe.depth() - 1));
    for (const auto& slice : plan.ranks) costs.push_back(slice.cost - slice.encoder_cost);
    return costs;
  };
  for (const bool sound : {true, false}) {
    const TestModel model(golden_case(sound ? "whisper" : "bart").folder);
    auto longer = model.recipe;
    longer.encoder->max_positions *= 2;
    const auto before = of_decoder(model.recipe, model), after = of_decoder(longer, model);
    const auto& cross =
        std::get<CrossAttention>(*std::ranges::find_if(model.recipe.blocks[0].steps, [](const auto& step) {
          return std::holds_alternative<CrossAttention>(step);
        }));
    const auto memory = static_cast<double>(model.recipe.encoder->max_positions * cross.kv_heads *
                                            (cross.head_dim + cross.value_dim)) *
                        sizeof(float);
    EXPECT_EQ(after[0] - before[0], sound ? 6 * memory : 0);
    EXPECT_EQ(after[1] - before[1], sound ? 6 * memory * static_cast<double>(model.recipe.depth() - 1) : 0);
  }
}

TEST(Plans, StateTensorsThatEverySliceLoads) {
  const TestModel t5(golden_case("t5").folder);
  const auto plan = make_plan(t5.recipe, t5.checkpoint.headers(), 4);
  ASSERT_EQ(plan.shared.size(), 1U);
  for (std::int32_t rank = 0; rank < plan.stages; ++rank) {
    const auto& tensors = plan.ranks[static_cast<std::size_t>(rank)].tensors;
    EXPECT_EQ(std::count(tensors.begin(), tensors.end(), plan.shared[0]), 1);
  }
  const TestModel bart(golden_case("bart").folder);
  EXPECT_TRUE(make_plan(bart.recipe, bart.checkpoint.headers(), 4).shared.empty());
}

TEST(GoldenMemoryCases, AreAllThere) {
  EXPECT_GE(golden_cases(GoldenKind::reads_encoder).size(), 4U);
}

}  // namespace
}  // namespace diffuse::test

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

  void on_every_target(void (GoldenMusic::*check)(), Compute compute = Compute::f32) {
    for (const auto& processor : processors()) {
      SCOPED_TRACE(processor);
      backend_ = make_backend(processor, 1, compute);
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
  bare.encoder->projections.clear();
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
  on_every_target(&GoldenMusic::check_split, Compute::bf16);
}

INSTANTIATE_TEST_SUITE_P(, GoldenMusic, testing::ValuesIn(golden_cases(GoldenKind::walks_codebooks)),
                         [](const auto& each) { return each.param.name; });

// The headers of a checkpoint in the form of musicgen-small, with the names of its time.
class Headers {
 public:
  explicit Headers(const Json& config) {
    text_encoder(config.at("text_encoder"));
    decoder(config.at("decoder"));
    add("enc_to_dec_proj.weight",
        {config.at("decoder").at("hidden_size"), config.at("text_encoder").at("d_model")});
    add("enc_to_dec_proj.bias", {config.at("decoder").at("hidden_size")});
    codec(config.at("audio_encoder"));
  }
  TensorHeaders all;

 private:
  void add(const std::string& name, std::vector<std::int64_t> shape) { all[name] = {DType::f32, shape}; }
  void norm(const std::string& name, std::int64_t size, bool bias) {
    add(name + ".weight", {size});
    if (bias) add(name + ".bias", {size});
  }
  void text_encoder(const Json& config) {
    const std::int64_t width = config.at("d_model");
    const std::int64_t inner = config.at("d_ff");
    add("text_encoder.shared.weight", {config.at("vocab_size"), width});
    for (int layer = 0; layer < config.at("num_layers"); ++layer) {
      const auto block = "text_encoder.encoder.block." + std::to_string(layer) + ".layer.";
      for (const auto* part : {"q", "k", "v", "o"})
        add(block + "0.SelfAttention." + part + ".weight", {width, width});
      if (layer == 0)
        add(block + "0.SelfAttention.relative_attention_bias.weight", {32, config.at("num_heads")});
      add(block + "1.DenseReluDense.wi.weight", {inner, width});
      add(block + "1.DenseReluDense.wo.weight", {width, inner});
      norm(block + "0.layer_norm", width, false);
      norm(block + "1.layer_norm", width, false);
    }
    norm("text_encoder.encoder.final_layer_norm", width, false);
  }
  void decoder(const Json& config) {
    const std::int64_t width = config.at("hidden_size");
    const std::int64_t inner = config.at("ffn_dim");
    const std::int64_t vocab = config.at("vocab_size");
    const std::string root = "decoder.model.decoder.";
    add(root + "embed_positions.weights", {config.at("max_position_embeddings"), width});
    for (int codebook = 0; codebook < config.at("num_codebooks"); ++codebook) {
      add(root + "embed_tokens." + std::to_string(codebook) + ".weight", {vocab + 1, width});
      add("decoder.lm_heads." + std::to_string(codebook) + ".weight", {vocab, width});
    }
    for (int layer = 0; layer < config.at("num_hidden_layers"); ++layer) {
      const auto block = root + "layers." + std::to_string(layer) + ".";
      for (const auto* attention : {"self_attn", "encoder_attn"}) {
        for (const auto* part : {".q_proj", ".k_proj", ".v_proj", ".out_proj"})
          add(block + attention + part + ".weight", {width, width});
        norm(block + attention + "_layer_norm", width, true);
      }
      add(block + "fc1.weight", {inner, width});
      add(block + "fc2.weight", {width, inner});
      norm(block + "final_layer_norm", width, true);
    }
    norm(root + "layer_norm", width, true);
  }
  void convolution(int layer, const std::string& inside, std::vector<std::int64_t> shape, std::int64_t bias) {
    const auto name = "audio_encoder.decoder.layers." + std::to_string(layer) + inside + ".conv.";
    add(name + "weight_g", {shape.front(), 1, 1});
    add(name + "weight_v", shape);
    add(name + "bias", {bias});
  }
  void codec(const Json& config) {
    const std::int64_t hidden = config.at("hidden_size");
    for (int i = 0; i < 4; ++i)
      add("audio_encoder.quantizer.layers." + std::to_string(i) + ".codebook.embed",
          {config.at("codebook_size"), hidden});
    std::int64_t width = 1024;
    convolution(0, "", {width, hidden, 7}, width);
    for (const auto* layer : {"l0", "l1"}) {
      for (const auto* part : {"ih_", "hh_"}) {
        add(std::string("audio_encoder.decoder.layers.1.lstm.weight_") + part + layer, {4 * width, width});
        add(std::string("audio_encoder.decoder.layers.1.lstm.bias_") + part + layer, {4 * width});
      }
    }
    int layer = 3;
    for (const std::int64_t ratio : config.at("upsampling_ratios")) {
      convolution(layer, "", {width, width / 2, 2 * ratio}, width / 2);
      width /= 2;
      convolution(layer + 1, ".block.1", {width / 2, width, 3}, width / 2);
      convolution(layer + 1, ".block.3", {width, width / 2, 1}, width);
      layer += 3;
    }
    convolution(layer, "", {1, width, 7}, 1);
  }
};

// 12 layers of encoder, 24 of decoder: the decoder is cut, the encoder lies whole on one rank.
TEST(MusicPlan, CutsTheDecoderAndNotTheTextEncoder) {
  const auto config = read_json(std::filesystem::path(DIFFUSE_TEST_DATA) / "musicgen-small.json");
  const auto headers = Headers(config).all;
  const auto recipe = build_recipe(config, headers);
  EXPECT_EQ(recipe.depth(), 24);
  EXPECT_EQ(recipe.encoder->blocks.size(), 12U);
  EXPECT_EQ(recipe.encoder->hidden, 1024);
  EXPECT_EQ(recipe.codec->samples_per_frame(), 640);
  EXPECT_TRUE(recipe.notes.empty());
  const auto encoder = tensors_of(*recipe.encoder);
  for (const std::int32_t ranks : {1, 2, 3, 12, 24, 25, 26}) {
    const auto plan = make_plan(recipe, headers, ranks);
    EXPECT_EQ(plan.stages, std::min(ranks, 24));
    const std::int32_t encoder_rank = ranks > 24 ? 24 : 0;
    EXPECT_EQ(plan.encoders, std::vector<std::int32_t>{encoder_rank});
    std::int64_t layers = 0;
    for (const auto& slice : plan.ranks) {
      layers += slice.layers();
      for (const auto& tensor : slice.tensors) {
        const bool of_encoder = std::find(encoder.begin(), encoder.end(), tensor) != encoder.end();
        EXPECT_TRUE(!of_encoder || slice.rank == encoder_rank) << tensor;
        EXPECT_FALSE(tensor.starts_with("audio_encoder.")) << "the codec is the client's";
      }
    }
    EXPECT_EQ(layers, 24);
  }
}

TEST(GoldenMusicCases, AreAllThere) {
  EXPECT_GE(golden_cases(GoldenKind::walks_codebooks).size(), 2U);
}

}  // namespace
}  // namespace diffuse::test

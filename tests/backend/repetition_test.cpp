// Repeated work of the CUDA backend: recorded as graphs and launched again, with the bits of plain runs. Runs
// over the stand-ins, whose counts say what was really launched.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "core/error.hpp"
#include "harness.hpp"
#include "standin_faults.hpp"
#include "standin_runtime.hpp"

namespace diffuse::test {
namespace {

constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kMostRows = 4;
constexpr std::int64_t kPages = 24;

class Repetitions : public ::testing::Test {
 protected:
  void SetUp() override { standin::inject(""); }
  void TearDown() override {
    standin::inject("");
    standin::reset_device();
    EXPECT_EQ(standin::live_objects(), before_) << "something was not freed";
  }
  std::size_t before_ = standin::live_objects();
};

int calls_of(const std::string& function) {
  const auto counts = standin::call_counts();
  const auto found = counts.find(function);
  return found == counts.end() ? 0 : found->second;
}

// One block with attention and a product, in the backend's memory, and some rows that pass through it.
class Block {
 public:
  explicit Block(bool graphs, Compute compute = Compute::f32)
      : backend_(make_cuda_backend({.device = 0,
                                    .compute = compute,
                                    .graphs = graphs,
                                    .warn = [this](const std::string& text) { warnings_.push_back(text); }})),
        weight_(packed()),
        hidden_(floats(kMostRows)),
        elsewhere_(floats(kMostRows)),
        middle_(floats(kMostRows)) {
    pool_.spec = {.kv_heads = 1, .head_dim = 8, .value_dim = 8};
    pool_.memory = backend_->allocate(kPages * backend_->kv_page_bytes(pool_.spec));
    AttentionArgs args;
    args.kv = &pool_;
    args.heads = 2;
    attentions_ = {args, args};
    backend_->expect({.rows = kMostRows,
                      .samples = kMostRows,
                      .positions = 6 * kPageTokens,
                      .pages = kPages,
                      .attentions = attentions_,
                      .experts = {}});
    repetition_ = backend_->make_repetition(attentions_);
  }

  // A row at each of the positions of sequences 0, 1, ..; what is left in the rows is given back.
  std::vector<float> step(const std::vector<std::int64_t>& positions, bool in_other_rows = false) {
    return step(
        positions, [] {}, in_other_rows);
  }
  std::vector<float> step(const std::vector<std::int64_t>& positions, const std::function<void()>& within,
                          bool in_other_rows = false) {
    const auto count = static_cast<std::int64_t>(positions.size());
    std::vector<Segment> segments;
    std::vector<float> values;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      segments.push_back({static_cast<std::int64_t>(i), 1, positions[i], pages_of(i, positions[i]), 0});
      for (std::int64_t c = 0; c < kWidth; ++c)
        values.push_back(static_cast<float>((positions[i] * 7 + static_cast<std::int64_t>(i) * 3 + c) % 11) /
                         8);
    }
    const auto& memory = in_other_rows ? elsewhere_ : hidden_;
    const Rows hidden{memory.floats(), count, kWidth, kWidth};
    backend_->upload(memory.data(), std::as_bytes(std::span(values)));
    repetition_->run({hidden, segments, {}}, [&] { block(hidden, segments, within); });
    backend_->download(std::as_writable_bytes(std::span(values)), memory.data());
    return values;
  }

  // A product of many rows: memory of the backend's own has to grow for it.
  void grow() {
    const auto rows = backend_->allocate(static_cast<std::size_t>(300 * kWidth) * sizeof(float));
    const auto out = backend_->allocate(static_cast<std::size_t>(300 * kWidth) * sizeof(float));
    backend_->matmul({rows.floats(), 290, kWidth, kWidth}, *weight_, {out.floats(), 290, kWidth, kWidth},
                     {.activation = Activation::silu});
    backend_->synchronize();
  }
  void end_repetition() { repetition_.reset(); }

  Backend& backend() { return *backend_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Buffer floats(std::int64_t rows) const {
    return backend_->allocate(static_cast<std::size_t>(rows * kWidth) * sizeof(float));
  }
  std::shared_ptr<const PackedMatrix> packed() const {
    const Table values = Table::random(kWidth, kWidth, 3, 0, 0.2F);
    const HostMatrix parts[] = {
        {reinterpret_cast<const std::byte*>(values.row(0)), DType::f32, kWidth, kWidth}};
    return backend_->pack(parts);
  }
  // Six pages a sequence, in no order.
  std::span<const std::int32_t> pages_of(std::size_t sequence, std::int64_t position) {
    auto& pages = pages_[sequence];
    if (pages.empty())
      for (std::size_t i = 0; i < 6; ++i)
        pages.push_back(static_cast<std::int32_t>((sequence * 6 + i) * 7 % kPages));
    return std::span(pages).first(static_cast<std::size_t>(position / kPageTokens) + 1);
  }
  void block(Rows hidden, std::span<const Segment> segments, const std::function<void()>& within) {
    const Rows middle{middle_.floats(), hidden.rows, kWidth, kWidth};
    backend_->norm({.x = hidden, .y = middle, .eps = 1e-5F});
    backend_->kv_write(pool_, {middle.data, middle.rows, 8, kWidth},
                       {middle.data + 8, middle.rows, 8, kWidth}, segments);
    AttentionArgs args = attentions_.front();
    args.q = hidden;
    args.out = middle;
    args.segments = segments;
    backend_->attend(args);
    within();
    backend_->matmul(middle, *weight_, hidden, {.activation = Activation::silu, .accumulate = true});
  }

  std::vector<std::string> warnings_;
  std::unique_ptr<Backend> backend_;
  std::shared_ptr<const PackedMatrix> weight_;
  Buffer hidden_, elsewhere_, middle_;
  KvPool pool_;
  std::vector<AttentionArgs> attentions_;
  std::map<std::size_t, std::vector<std::int32_t>> pages_;
  std::unique_ptr<Repetition> repetition_;
};

// Contexts of a few rows that grow over the borders of pages, of a part of attention and of two.
std::vector<std::vector<std::int64_t>> growing() {
  std::vector<std::vector<std::int64_t>> steps;
  for (const std::int64_t far : {0, 244, 300})
    for (std::int64_t i = 0; i < 16; ++i) steps.push_back({far + i, 56 + i, i});
  return steps;
}

TEST_F(Repetitions, HaveTheBitsOfPlainRuns) {
  for (const auto compute : {Compute::f32, Compute::bf16}) {
    Block plain(false, compute);
    Block recorded(true, compute);
    standin::inject("");
    for (const auto& positions : growing()) {
      const auto expected = plain.step(positions);
      const auto found = recorded.step(positions);
      ASSERT_TRUE(same_bits(expected.data(), found.data(), static_cast<std::int64_t>(found.size())))
          << "at " << positions.front();
    }
    // One shape up to 256 keys, and one beyond; three plain runs of each.
    EXPECT_EQ(calls_of("cudaGraphInstantiate"), 2);
    EXPECT_EQ(calls_of("cudaGraphLaunch"), static_cast<int>(growing().size()) - 2 * 3);
    EXPECT_TRUE(recorded.warnings().empty());
  }
}

TEST_F(Repetitions, EachShapeHasAGraphOfItsOwn) {
  Block plain(false);
  Block recorded(true);
  standin::inject("");
  // Other numbers of rows, and other rows, in turns.
  for (std::int64_t i = 0; i < 12; ++i) {
    for (const auto& positions : std::vector<std::vector<std::int64_t>>{{i}, {i, 90 + i}, {200 + i, i, 3}}) {
      for (const bool other : {false, true}) {
        const auto expected = plain.step(positions, other);
        const auto found = recorded.step(positions, other);
        ASSERT_TRUE(same_bits(expected.data(), found.data(), static_cast<std::int64_t>(found.size())));
      }
    }
  }
  EXPECT_EQ(calls_of("cudaGraphInstantiate"), 6);
  EXPECT_EQ(calls_of("cudaGraphLaunch"), 6 * (12 - 3));
}

TEST_F(Repetitions, AreRecordedAgainWhereMemoryMoved) {
  Block plain(false);
  Block recorded(true);
  for (std::int64_t i = 0; i < 20; ++i) {
    if (i == 8) {
      standin::inject("");
      plain.grow();
      recorded.grow();
    }
    const auto expected = plain.step({i, 100 + i});
    const auto found = recorded.step({i, 100 + i});
    ASSERT_TRUE(same_bits(expected.data(), found.data(), static_cast<std::int64_t>(found.size()))) << i;
  }
  EXPECT_EQ(calls_of("cudaGraphInstantiate"), 1);
  EXPECT_EQ(calls_of("cudaGraphLaunch"), 12 - 3);
  EXPECT_EQ(calls_of("cudaGraphExecDestroy"), 1);
}

TEST_F(Repetitions, AreBoundInNumber) {
  auto backend = make_cuda_backend({.device = 0, .compute = Compute::f32});
  constexpr std::int64_t kShapes = 40;
  const auto memory = backend->allocate(static_cast<std::size_t>(kShapes) * sizeof(float));
  {
    const auto repetition = backend->make_repetition({});
    const Segment segment{.first_row = 0, .rows = 1, .first_position = 0, .pages = {}, .keys = 0};
    const std::vector<std::int32_t> pages{0};
    for (std::int64_t shape = 0; shape < kShapes; ++shape) {
      auto own = segment;
      own.pages = pages;
      const Rows row{memory.floats() + shape, 1, 1, 1};
      const float one = 1;
      backend->upload(reinterpret_cast<std::byte*>(row.data), std::as_bytes(std::span(&one, 1)));
      // Not waited for: the graph that goes may be running.
      for (int time = 0; time < 5; ++time)
        repetition->run({row, {&own, 1}, {}}, [&] { backend->scale(row, 2); });
    }
    EXPECT_EQ(calls_of("cudaGraphInstantiate"), kShapes);
    EXPECT_EQ(calls_of("cudaGraphExecDestroy"), kShapes - 32);
  }
  EXPECT_EQ(calls_of("cudaGraphExecDestroy"), kShapes);
  std::vector<float> values(kShapes);
  backend->download(std::as_writable_bytes(std::span(values)), memory.data());
  EXPECT_EQ(values, std::vector<float>(kShapes, 32.0F)) << "each ran five times";
}

TEST_F(Repetitions, ThatNeedTheHostRunPlainlyAndSaySoOnce) {
  Block plain(false);
  Block recorded(true);
  standin::inject("");
  std::vector<std::byte> bytes(4);
  const auto memory = recorded.backend().allocate(4);
  for (std::int64_t i = 0; i < 6; ++i) {
    for (const auto& positions : std::vector<std::vector<std::int64_t>>{{i}, {i, 70 + i}}) {
      const auto expected = plain.step(positions);
      const auto found = recorded.step(positions, [&] { recorded.backend().download(bytes, memory.data()); });
      ASSERT_TRUE(same_bits(expected.data(), found.data(), static_cast<std::int64_t>(found.size()))) << i;
    }
  }
  EXPECT_EQ(calls_of("cudaStreamBeginCapture"), 2) << "tried once for each shape";
  EXPECT_EQ(calls_of("cudaGraphLaunch"), 0);
  ASSERT_EQ(recorded.warnings().size(), 1U);
  EXPECT_EQ(recorded.warnings().front(),
            "CUDA device 0: a repeated step runs launch by launch, for it could not be recorded: CUDA "
            "backend: copying from the card cannot be recorded");
}

// A transport's thread takes memory and orders rows on the backend's stream whenever it likes.
TEST_F(Repetitions, AreNotDisturbedByOtherThreads) {
  Block plain(false);
  Block recorded(true);
  auto* stream = static_cast<cudaStream_t>(recorded.backend().device().stream);
  standin::inject("");
  for (std::int64_t i = 0; i < 6; ++i) {
    const auto expected = plain.step({i, 70 + i});
    const auto found = recorded.step({i, 70 + i}, [&] {
      std::thread([&] {
        void* memory = nullptr;
        EXPECT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
        EXPECT_EQ(cudaMemsetAsync(memory, 0, 64, stream), cudaSuccess);
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        EXPECT_EQ(cudaFree(memory), cudaSuccess);
      }).join();
    });
    ASSERT_TRUE(same_bits(expected.data(), found.data(), static_cast<std::int64_t>(found.size()))) << i;
  }
  EXPECT_EQ(calls_of("cudaGraphLaunch"), 3);
}

TEST_F(Repetitions, EndWhileAGraphStillRuns) {
  auto backend = make_cuda_backend({.device = 0, .compute = Compute::f32});
  const auto memory = backend->allocate(sizeof(float));
  const Rows row{memory.floats(), 1, 1, 1};
  const float one = 1;
  backend->upload(memory.data(), std::as_bytes(std::span(&one, 1)));
  const std::vector<std::int32_t> pages{0};
  const Segment segment{.first_row = 0, .rows = 1, .first_position = 0, .pages = pages, .keys = 0};
  auto repetition = backend->make_repetition({});
  for (int time = 0; time < 5; ++time)
    repetition->run({row, {&segment, 1}, {}}, [&] { backend->scale(row, 2); });
  EXPECT_EQ(calls_of("cudaGraphLaunch"), 2);
  repetition.reset();
  float value = 0;
  backend->download(std::as_writable_bytes(std::span(&value, 1)), memory.data());
  EXPECT_EQ(value, 32);
}

// What the steps of a run with graphs left, or the error that ended it.
struct Outcome {
  std::vector<std::vector<float>> rows;
  std::string error;
  std::size_t warnings = 0;
};

Outcome work() {
  Outcome outcome;
  std::function<void()> released;
  try {
    Block block(true);
    released = block.backend().released();
    for (std::int64_t i = 0; i < 5; ++i) outcome.rows.push_back(block.step({i, 100 + i}));
    block.grow();
    for (std::int64_t i = 5; i < 11; ++i) outcome.rows.push_back(block.step({i, 100 + i}));
    block.end_repetition();
    outcome.warnings = block.warnings().size();
  } catch (const Error& problem) {
    outcome.error = problem.what();
  }
  try {
    if (released) released();
  } catch (const Error& problem) {
    if (outcome.error.empty()) outcome.error = problem.what();
  }
  return outcome;
}

// Each call fails once: what belongs to recording leaves plain runs with the same bits, everything else one
// line that names it.
TEST_F(Repetitions, AFaultAtAnyCallEndsInPlainRunsOrInOneLine) {
  const auto whole = work();
  ASSERT_EQ(whole.error, "");
  const auto counts = standin::call_counts();
  ASSERT_GE(counts.at("cudaStreamBeginCapture"), 2);
  ASSERT_GE(counts.at("cudaGraphLaunch"), 3);
  int plain = 0;
  int faults = 0;
  for (const auto& [function, count] : counts) {
    for (int call = 1; call <= count; ++call, ++faults) {
      standin::inject(function + ":" + std::to_string(call));
      const auto outcome = work();
      const auto what = function + " " + std::to_string(call) + ": " + outcome.error;
      EXPECT_TRUE(standin::fault_happened()) << what;
      standin::inject("");
      standin::reset_device();
      ASSERT_EQ(standin::live_objects(), before_) << what;
      EXPECT_EQ(outcome.error.find('\n'), std::string::npos) << what;
      const auto named = function == "kernel"             ? std::string("an illegal memory access")
                         : function == "cudaLaunchKernel" ? std::string("a kernel's launch")
                                                          : function;
      if (outcome.error.empty()) {
        ++plain;
        EXPECT_EQ(outcome.warnings, 1U) << what << "a recording that failed is said";
        EXPECT_TRUE(outcome.rows == whole.rows) << what;
      } else {
        EXPECT_NE(outcome.error.find(named), std::string::npos) << what;
      }
      const bool recording = function == "cudaStreamBeginCapture" || function == "cudaStreamEndCapture" ||
                             function == "cudaGraphInstantiate";
      if (recording) {
        EXPECT_EQ(outcome.error, "") << what;
      }
      if (function == "cudaGraphLaunch") {
        EXPECT_NE(outcome.error, "") << what;
      }
    }
  }
  EXPECT_GT(plain, 15);
  RecordProperty("faults", faults);
  RecordProperty("plain", plain);
}

}  // namespace
}  // namespace diffuse::test

// The CUDA backend against the CPU's, operation by operation, within the table of verify/tolerance.hpp: on
// the same inputs, in both compute modes. Where a card stands in for another, over the stand-ins.

#include <algorithm>
#include <functional>
#include <numeric>

#include "harness.hpp"

namespace diffuse::test {
namespace {

class Across : public ::testing::TestWithParam<Mode> {
 protected:
  Compute compute() const { return GetParam().compute; }

  // What `run` leaves in a table on the card, held against what it leaves there on the CPU.
  void expect_close(DeviceOp operation, const Table& start, const std::function<void(Backend&, Table&)>& run,
                    std::int64_t summed = 0) {
    Table expected = start;
    const auto cpu = make_cpu_backend({.threads = 2, .compute = compute(), .simd = ""});
    run(*cpu, expected);
    Table found = start;
    const auto card = make(GetParam());
    run(*card, found);
    Difference difference;
    bool same = true;
    for (std::int64_t r = 0; r < expected.rows(); ++r) {
      for (std::int64_t c = 0; c < expected.cols(); ++c) {
        difference.see(expected.at(r, c), found.at(r, c));
        same = same && expected.at(r, c) == found.at(r, c);
      }
    }
    const auto& row = tolerance(operation, compute() == Compute::f32 ? "f32" : "bf16");
    const double most = allowed_for(row, summed);
    if (most == 0)
      EXPECT_TRUE(same) << name_of(operation);
    else
      EXPECT_LE(difference.relative(), most) << name_of(operation);
    largest_ = std::max(largest_, difference.relative());
    RecordProperty(std::string(name_of(operation)), testing::PrintToString(largest_));
    EXPECT_GT(difference.largest, 0) << "an operation that did nothing";
  }

  static std::shared_ptr<const PackedMatrix> packed(Backend& backend, const Stored& weight,
                                                    WeightUse use = WeightUse::matmul) {
    const HostMatrix parts[] = {weight.view()};
    return backend.pack(parts, use);
  }

 private:
  double largest_ = 0;
};

std::vector<Mode> cards() {
  auto modes = all_modes(false);
  std::erase_if(modes, [](const Mode& mode) { return mode.simd != kCuda; });
  return modes;
}

INSTANTIATE_TEST_SUITE_P(, Across, ::testing::ValuesIn(cards()),
                         [](const auto& each) { return name_of_mode(each.param); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Across);

constexpr Activation kActivations[] = {Activation::silu,      Activation::gelu_erf,
                                       Activation::gelu_tanh, Activation::quick_gelu,
                                       Activation::relu,      Activation::relu_squared};

TEST_P(Across, EmbeddingAndPositions) {
  for (const auto type : {DType::f32, DType::f16, DType::bf16}) {
    const Stored table(Table::random(90, 37, 1), type);
    const std::vector<std::int32_t> ids{89, 0, 3, 3};
    const Table positions = Table::random(5, 37, 2);
    const std::vector<std::int32_t> at{4, 0, 1, 2};
    expect_close(DeviceOp::embedding, Table(4, 37), [&](Backend& backend, Table& out) {
      backend.embed(*packed(backend, table), ids, 3.0F, out.view());
      backend.add_positions(positions.row(0), at, out.view());
    });
  }
}

TEST_P(Across, Elementwise) {
  const Table x = Table::random(20, 203, 3);
  expect_close(DeviceOp::elementwise, Table::random(20, 203, 4), [&](Backend& backend, Table& y) {
    backend.add(x.view(), y.view(), -0.3F);
    backend.scale(y.view(), 1.7F);
  });
}

TEST_P(Across, Activations) {
  const Table x = Table::random(20, 2 * 203, 5, 0, 3.0F);
  for (const auto kind : kActivations) {
    expect_close(DeviceOp::activation, Table(20, 203),
                 [&](Backend& backend, Table& y) { backend.gate(x.view(), y.view(), kind); });
    expect_close(DeviceOp::activation, Table(20, 2 * 203),
                 [&](Backend& backend, Table& y) { backend.activate(x.view(), y.view(), kind); });
  }
  expect_close(DeviceOp::activation, x, [](Backend& backend, Table& y) { backend.softcap(y.view(), 5.0F); });
}

TEST_P(Across, Norms) {
  for (const std::int64_t size : {5, 64, 896, 4099}) {
    for (const auto kind : {NormKind::rms, NormKind::layer}) {
      const Table x = Table::random(9, 2 * size, 6, 0, 4.0F);
      const Table weight = Table::random(1, size, 7);
      const Table bias = Table::random(1, size, 8);
      expect_close(DeviceOp::norm, Table(9, 2 * size), [&](Backend& backend, Table& y) {
        backend.norm({.x = x.view(),
                      .y = y.view(),
                      .kind = kind,
                      .weight = weight.row(0),
                      .bias = bias.row(0),
                      .weight_offset = 1,
                      .eps = 1e-5F,
                      .groups = 2});
      });
    }
  }
}

TEST_P(Across, Rope) {
  Table cosines(12, 32);
  Table sines(12, 32);
  for (std::int64_t r = 0; r < 12; ++r) {
    for (std::int64_t i = 0; i < 32; ++i) {
      cosines.at(r, i) = std::cos(static_cast<float>(r * 37) * std::pow(0.7F, static_cast<float>(i)));
      sines.at(r, i) = std::sin(static_cast<float>(r * 37) * std::pow(0.7F, static_cast<float>(i)));
    }
  }
  for (const auto style : {RopeStyle::half, RopeStyle::interleaved}) {
    expect_close(DeviceOp::rope, Table::random(12, 3 * 80, 9), [&](Backend& backend, Table& x) {
      backend.rope({.x = x.view(),
                    .heads = 3,
                    .head_dim = 80,
                    .pairs = 32,
                    .style = style,
                    .cos = cosines.row(0),
                    .sin = sines.row(0)});
    });
  }
}

TEST_P(Across, GatedAddition) {
  const Table gate = Table::random(1, 75, 14);
  const Table x = Table::random(9, 75, 15);
  expect_close(DeviceOp::elementwise, Table::random(9, 75, 16),
               [&](Backend& backend, Table& y) { backend.add_gated(x.view(), gate.row(0), y.view()); });
}

TEST_P(Across, Unfolding) {
  const Table x = Table::random(30, 7, 10);
  expect_close(DeviceOp::unfolding, Table(15, 21), [&](Backend& backend, Table& y) {
    backend.unfold({.x = x.view(), .out = y.view(), .width = 3, .stride = 2, .padding = 1});
  });
}

TEST_P(Across, Products) {
  struct Shape {
    std::int64_t outputs;
    std::int64_t inputs;
  };
  for (const auto [outputs, inputs] : {Shape{203, 101}, Shape{64, 896}, Shape{40, 4864}}) {
    for (const auto type : {DType::f32, DType::bf16}) {
      const Stored weight(Table::random(outputs, inputs, 11), type);
      const Table x = Table::random(70, inputs, 12);
      const Table bias = Table::random(1, outputs, 13);
      for (const auto kind : {Activation::none, Activation::silu, Activation::gelu_tanh, Activation::relu}) {
        for (const bool accumulate : {false, true}) {
          expect_close(
              DeviceOp::product, Table::random(70, outputs, 14),
              [&](Backend& backend, Table& y) {
                backend.matmul(x.view(), *packed(backend, weight), y.view(),
                               {.bias = bias.row(0), .activation = kind, .accumulate = accumulate});
              },
              inputs);
        }
      }
    }
  }
}

// Keys and values that are written by the backend, then read by queries of a prefill and of a decode step.
TEST_P(Across, Attention) {
  struct Shape {
    std::int64_t heads;
    std::int64_t kv_heads;
    std::int64_t dim;
    std::int64_t window;
    float softcap;
  };
  for (const auto& shape : {Shape{6, 2, 24, 0, 0}, Shape{7, 1, 64, 0, 0}, Shape{4, 4, 16, 70, 3.0F}}) {
    constexpr std::int64_t kRows = 700;
    const Table q = Table::random(kRows, shape.heads * shape.dim, 15);
    const Table k = Table::random(kRows, shape.kv_heads * shape.dim, 16);
    const Table v = Table::random(kRows, shape.kv_heads * shape.dim, 17);
    std::vector<std::int32_t> pages((kRows + kPageTokens - 1) / kPageTokens);
    std::iota(pages.rbegin(), pages.rend(), 0);
    expect_close(
        DeviceOp::attention, Table(kRows, shape.heads * shape.dim), [&](Backend& backend, Table& out) {
          KvPool pool{{shape.kv_heads, shape.dim, shape.dim}, {}};
          pool.memory = backend.allocate(pages.size() * backend.kv_page_bytes(pool.spec));
          for (const auto& [first, count] :
               {std::pair<std::int64_t, std::int64_t>{0, kRows - 1}, {kRows - 1, 1}}) {
            const Segment segment{0, count, first, pages};
            backend.kv_write(pool, k.view(first, count), v.view(first, count), std::span(&segment, 1));
            backend.attend({.q = q.view(first, count),
                            .out = out.view(first, count),
                            .kv = &pool,
                            .segments = std::span(&segment, 1),
                            .heads = shape.heads,
                            .scale = 1 / std::sqrt(static_cast<float>(shape.dim)),
                            .window = shape.window,
                            .softcap = shape.softcap});
          }
        });
  }
}

// The weights of one head over what an encoder made: keys on a page's border, and beyond many pages.
TEST_P(Across, AttentionWeights) {
  struct Shape {
    std::int64_t heads;
    std::int64_t kv_heads;
    std::int64_t dim;
    std::int64_t keys;
  };
  for (const auto& shape : {Shape{6, 6, 64, 1500}, Shape{6, 2, 24, 64}, Shape{1, 1, 5, 203}}) {
    constexpr std::int64_t kRows = 9;
    const Table q = Table::random(kRows, shape.heads * shape.dim, 22);
    const Table k = Table::random(shape.keys, shape.kv_heads * shape.dim, 23);
    const Table v = Table::random(shape.keys, shape.kv_heads * shape.dim, 24);
    std::vector<std::int32_t> pages(static_cast<std::size_t>((shape.keys + kPageTokens - 1) / kPageTokens));
    std::iota(pages.rbegin(), pages.rend(), 0);
    expect_close(DeviceOp::attention_weights, Table(kRows, shape.keys), [&](Backend& backend, Table& out) {
      KvPool pool{{shape.kv_heads, shape.dim, shape.dim}, {}};
      pool.memory = backend.allocate(pages.size() * backend.kv_page_bytes(pool.spec));
      const Segment whole{0, shape.keys, 0, pages};
      backend.kv_write(pool, k.view(), v.view(), std::span(&whole, 1));
      backend.attention_weights({.q = q.view(),
                                 .out = out.view(),
                                 .kv = &pool,
                                 .pages = pages,
                                 .heads = shape.heads,
                                 .head = shape.heads - 1,
                                 .scale = 1 / std::sqrt(static_cast<float>(shape.dim))});
    });
  }
}

TEST_P(Across, Experts) {
  constexpr std::int64_t kHidden = 48;
  constexpr std::int64_t kInner = 72;
  const Stored router(Table::random(6, kHidden, 18), DType::bf16);
  const Stored up(Table::random(2 * kInner, kHidden, 19, 0, 0.3F), DType::bf16);
  const Stored down(Table::random(kHidden, kInner, 20, 0, 0.3F), DType::bf16);
  const Table x = Table::random(40, kHidden, 21);
  for (const auto score : {RouterScore::softmax, RouterScore::sigmoid}) {
    expect_close(DeviceOp::experts, Table(40, kHidden), [&](Backend& backend, Table& out) {
      const std::vector<ExpertWeights> experts(
          6, {.gate_up = packed(backend, up), .down = packed(backend, down)});
      const auto routing = packed(backend, router, WeightUse::router);
      backend.experts({.x = x.view(),
                       .out = out.view(),
                       .router = routing.get(),
                       .experts = experts,
                       .top_k = 2,
                       .score = score});
    });
  }
}

}  // namespace
}  // namespace diffuse::test

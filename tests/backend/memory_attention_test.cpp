// What models that read an encoder need beside: attention over a fixed number of keys without cause, a bias
// by distance, and the windows of a convolution.

#include <limits>
#include <numeric>

#include "harness.hpp"

namespace diffuse::test {
namespace {

struct Shape {
  std::int64_t heads = 4;
  std::int64_t kv_heads = 4;
  std::int64_t head_dim = 16;
  bool causal = false;
  std::int64_t reach = 0;  // of the bias by distance; 0: none
};

constexpr float kScale = 0.2F;  // about head_dim ^ -1/2, as models have it

// Queries over keys that may be of another sequence: as many rows as keys where causal.
struct Case {
  Case(const Shape& made, std::int64_t rows, std::int64_t keys, unsigned seed)
      : shape(made),
        q(Table::random(rows, made.heads * made.head_dim, seed)),
        k(Table::random(keys, made.kv_heads * made.head_dim, seed + 1)),
        v(Table::random(keys, made.kv_heads * made.head_dim, seed + 2)),
        bias(Table::random(made.heads, 2 * made.reach + 1, seed + 3)) {}
  Shape shape;
  Table q, k, v, bias;
};

// The keys and values of a case in a pool whose other pages hold NaN.
struct Filled {
  Filled(const Mode& mode, int threads, const Case& c)
      : backend(make(mode, threads)),
        pages(static_cast<std::size_t>((c.k.rows() + kPageTokens - 1) / kPageTokens)) {
    pool.spec = {c.shape.kv_heads, c.shape.head_dim, c.shape.head_dim};
    pool.memory = backend->allocate((pages.size() + 2) * backend->kv_page_bytes(pool.spec));
    backend->upload(pool.memory.data(), std::vector<std::byte>(pool.memory.bytes(), std::byte{0xff}));
    std::iota(pages.rbegin(), pages.rend(), 1);
    const Segment whole{0, c.k.rows(), 0, pages};
    backend->kv_write(pool, c.k.view(), c.v.view(), std::span(&whole, 1));
  }
  std::unique_ptr<Backend> backend;
  KvPool pool;
  std::vector<std::int32_t> pages;
};

// The values of pages [first, first + count), as f32, whichever way they are stored.
std::vector<float> page_values(Backend& backend, const KvPool& pool, std::int64_t first, std::int64_t count) {
  const auto page = backend.kv_page_bytes(pool.spec);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * page);
  backend.download(bytes, pool.memory.data() + static_cast<std::size_t>(first) * page);
  const auto type = backend.compute() == Compute::bf16 ? DType::bf16 : DType::f32;
  std::vector<float> values(bytes.size() / size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = element_as_f32(bytes.data() + i * size_of(type), type);
  return values;
}

float rounded(float value, Compute compute) {
  if (compute == Compute::f32) return value;
  const auto bits = f32_to_bf16(value);
  return element_as_f32(reinterpret_cast<const std::byte*>(&bits), DType::bf16);
}

// Rows of `asked` queries at a time.
Table attend(const Mode& mode, int threads, const Case& c, std::int64_t asked) {
  const Filled filled(mode, threads, c);
  Table out(c.q.rows(), c.shape.heads * c.shape.head_dim, 3);
  for (std::int64_t first = 0; first < c.q.rows(); first += asked) {
    const auto count = std::min(asked, c.q.rows() - first);
    const Segment segment{0, count, first, filled.pages, c.k.rows()};
    filled.backend->attend({.q = c.q.view(first, count),
                            .out = out.view(first, count),
                            .kv = &filled.pool,
                            .segments = std::span(&segment, 1),
                            .heads = c.shape.heads,
                            .scale = kScale,
                            .causal = c.shape.causal,
                            .position_bias = c.shape.reach > 0 ? c.bias.row(0) : nullptr,
                            .bias_reach = c.shape.reach});
  }
  EXPECT_TRUE(out.gaps_kept());
  return out;
}

// The plain formula in double.
Table plain(const Mode& mode, const Case& c) {
  Table out(c.q.rows(), c.shape.heads * c.shape.head_dim);
  const auto dim = c.shape.head_dim;
  for (std::int64_t t = 0; t < c.q.rows(); ++t) {
    for (std::int64_t h = 0; h < c.shape.heads; ++h) {
      const auto kv = h / (c.shape.heads / c.shape.kv_heads);
      const auto keys = c.shape.causal ? t + 1 : c.k.rows();
      std::vector<double> weights;
      for (std::int64_t j = 0; j < keys; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < dim; ++d)
          score +=
              rounded(c.q.at(t, h * dim + d), mode.compute) * rounded(c.k.at(j, kv * dim + d), mode.compute);
        score *= kScale;
        if (c.shape.reach > 0)
          score += c.bias.at(h, std::clamp(j - t, -c.shape.reach, c.shape.reach) + c.shape.reach);
        weights.push_back(score);
      }
      const auto largest = *std::max_element(weights.begin(), weights.end());
      double total = 0;
      for (auto& weight : weights) total += weight = std::exp(weight - largest);
      for (std::int64_t d = 0; d < dim; ++d) {
        double sum = 0;
        for (std::int64_t j = 0; j < keys; ++j)
          sum += weights[static_cast<std::size_t>(j)] * rounded(c.v.at(j, kv * dim + d), mode.compute);
        out.at(t, h * dim + d) = static_cast<float>(sum / total);
      }
    }
  }
  return out;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {},
      {.heads = 6, .kv_heads = 2, .head_dim = 24},
      {.heads = 3, .kv_heads = 3, .head_dim = 5, .reach = 20},
      {.reach = 128},
      {.causal = true, .reach = 40},
      {.heads = 8, .kv_heads = 2, .head_dim = 8, .causal = true, .reach = 300},
  };
  return all;
}

using MemoryAttention = EveryMode;
DIFFUSE_EVERY_MODE(MemoryAttention, false);

TEST_P(MemoryAttention, AgreesWithDouble) {
  for (const auto& shape : shapes()) {
    const Case c(shape, 131, shape.causal ? 131 : 203, 1);
    const Table expected = plain(GetParam(), c);
    const Table found = attend(GetParam(), 1, c, 131);
    Difference difference;
    for (std::int64_t r = 0; r < expected.rows(); ++r)
      for (std::int64_t col = 0; col < expected.cols(); ++col)
        difference.see(expected.at(r, col), found.at(r, col));
    EXPECT_LT(difference.relative(), allowed(DeviceOp::attention, GetParam().compute))
        << shape.heads << " heads, reach " << shape.reach;
  }
}

TEST_P(MemoryAttention, BitsAreTheSameForAnyNumberOfRowsAndThreads) {
  for (const auto& shape : shapes()) {
    // Over 512 keys a few rows are shared among threads in parts.
    for (const std::int64_t keys : {203, 580}) {
      const Case c(shape, shape.causal ? keys : 70, keys, 2);
      const Table expected = attend(GetParam(), 1, c, c.q.rows());
      for (const int threads : thread_counts(GetParam())) {
        for (const std::int64_t asked : {1, 3, 64}) {
          if (asked == 3 && keys > 512) continue;
          ASSERT_TRUE(same_bits(expected, attend(GetParam(), threads, c, asked)))
              << asked << " rows a call, " << threads << " threads, " << keys << " keys, reach "
              << shape.reach;
        }
      }
    }
  }
}

// The weights of a head, of `asked` queries at a time.
Table weights(const Mode& mode, int threads, const Case& c, std::int64_t head, std::int64_t asked) {
  const Filled filled(mode, threads, c);
  Table out(c.q.rows(), c.k.rows(), 3);
  for (std::int64_t first = 0; first < c.q.rows(); first += asked) {
    const auto count = std::min(asked, c.q.rows() - first);
    filled.backend->attention_weights({.q = c.q.view(first, count),
                                       .out = out.view(first, count),
                                       .kv = &filled.pool,
                                       .pages = filled.pages,
                                       .heads = c.shape.heads,
                                       .head = head,
                                       .scale = kScale});
  }
  EXPECT_TRUE(out.gaps_kept());
  return out;
}

TEST_P(MemoryAttention, WeightsAreThoseOfTheSoftmax) {
  for (const Shape& shape : {Shape{}, Shape{.heads = 6, .kv_heads = 2, .head_dim = 24},
                             Shape{.heads = 1, .kv_heads = 1, .head_dim = 5}}) {
    for (const std::int64_t keys : {1, 64, 203, 580}) {
      const Case c(shape, 37, keys, 4);
      const auto head = shape.heads - 1;
      const auto kv = head / (shape.heads / shape.kv_heads);
      const Table found = weights(GetParam(), 1, c, head, 37);
      Difference difference;
      for (std::int64_t t = 0; t < c.q.rows(); ++t) {
        std::vector<double> expected;
        double total = 0;
        for (std::int64_t j = 0; j < keys; ++j) {
          double score = 0;
          for (std::int64_t d = 0; d < shape.head_dim; ++d)
            score += rounded(c.q.at(t, head * shape.head_dim + d), GetParam().compute) *
                     rounded(c.k.at(j, kv * shape.head_dim + d), GetParam().compute);
          expected.push_back(std::exp(score * kScale));
          total += expected.back();
        }
        for (std::int64_t j = 0; j < keys; ++j)
          difference.see(expected[static_cast<std::size_t>(j)] / total, found.at(t, j));
      }
      EXPECT_LT(difference.relative(), allowed(DeviceOp::attention_weights, GetParam().compute))
          << shape.heads << " heads, " << keys << " keys";
      for (const int threads : thread_counts(GetParam()))
        EXPECT_TRUE(same_bits(found, weights(GetParam(), threads, c, head, 5))) << threads << " threads";
    }
  }
}

TEST(MemoryAttentionArguments, AreChecked) {
  const Mode mode{cpu_simd_targets().front(), Compute::f32};
  Case c({}, 3, 5, 1);
  const auto backend = make(mode);
  KvPool pool{{4, 16, 16}, {}};
  pool.memory = backend->allocate(backend->kv_page_bytes(pool.spec));
  Table out(3, 64);
  const std::int32_t page = 0;
  const Segment no_keys{0, 3, 0, std::span(&page, 1)};
  EXPECT_ANY_THROW(backend->attend({.q = c.q.view(),
                                    .out = out.view(),
                                    .kv = &pool,
                                    .segments = std::span(&no_keys, 1),
                                    .heads = 4,
                                    .causal = false}));
}

class Unfold : public MemoryAttention {};
DIFFUSE_EVERY_MODE(Unfold, false);

// Its product with the weights is the convolution.
TEST_P(Unfold, MakesConvolutionsOfProducts) {
  const auto mode = GetParam();
  constexpr std::int64_t kIn = 7;
  constexpr std::int64_t kOut = 9;
  constexpr std::int64_t kWidth = 3;
  const Table x = Table::random(50, kIn, 1, 2);
  const Table weight = Table::random(kOut, kIn * kWidth, 2);
  for (const std::int64_t stride : {1, 2}) {
    const std::int64_t windows = (50 + 2 - kWidth) / stride + 1;
    std::vector<Table> found;
    for (const int threads : thread_counts(mode)) {
      auto backend = make(mode, threads);
      Table unfolded(windows, kIn * kWidth, 1);
      backend->unfold(
          {.x = x.view(), .out = unfolded.view(), .width = kWidth, .stride = stride, .padding = 1});
      EXPECT_TRUE(unfolded.gaps_kept());
      const HostMatrix host{reinterpret_cast<const std::byte*>(weight.row(0)), DType::f32, kOut,
                            kIn * kWidth};
      Table y(windows, kOut);
      backend->matmul(unfolded.view(), *backend->pack(std::span(&host, 1)), y.view(), {});
      found.push_back(y);
    }
    for (const auto& y : found) EXPECT_TRUE(same_bits(found.front(), y));
    Difference difference;
    for (std::int64_t t = 0; t < windows; ++t) {
      for (std::int64_t o = 0; o < kOut; ++o) {
        double sum = 0;
        for (std::int64_t in = 0; in < kIn; ++in) {
          for (std::int64_t k = 0; k < kWidth; ++k) {
            const auto frame = t * stride + k - 1;
            if (frame < 0 || frame >= 50) continue;
            sum +=
                rounded(x.at(frame, in), mode.compute) * rounded(weight.at(o, in * kWidth + k), mode.compute);
          }
        }
        difference.see(static_cast<float>(sum), found.front().at(t, o));
      }
    }
    EXPECT_LT(difference.relative(), allowed(DeviceOp::product, mode.compute)) << "stride " << stride;
  }
}

using PageOps = EveryMode;
DIFFUSE_EVERY_MODE(PageOps, false);

TEST_P(PageOps, AWeightOfZeroCopiesOverAnything) {
  const auto& mode = GetParam();
  auto backend = make(mode, 1);
  KvPool pool{{2, 20, 20}, {}};
  pool.memory = backend->allocate(2 * backend->kv_page_bytes(pool.spec));
  const std::vector<std::int32_t> pages = {0, 1};
  const Table k = Table::random(kPageTokens, 40, 21);
  const Table v = Table::random(kPageTokens, 40, 22);
  Table nothing(kPageTokens, 40);
  for (std::int64_t row = 0; row < kPageTokens; ++row)
    for (std::int64_t i = 0; i < 40; ++i) nothing.at(row, i) = std::numeric_limits<float>::quiet_NaN();
  const Segment first{0, kPageTokens, 0, pages};
  const Segment second{0, kPageTokens, kPageTokens, pages};
  backend->kv_write(pool, k.view(), v.view(), std::span(&first, 1));
  backend->kv_write(pool, nothing.view(), nothing.view(), std::span(&second, 1));
  backend->extrapolate(pool, std::vector<std::int32_t>{0}, std::vector<std::int32_t>{1}, 0);
  EXPECT_EQ(page_values(*backend, pool, 1, 1), page_values(*backend, pool, 0, 1));
}

TEST_P(PageOps, ExtrapolatedPagesGoOnAsTheyDid) {
  const auto& mode = GetParam();
  constexpr float kWeight = 0.7F;
  for (const int threads : {1, 3}) {
    auto backend = make(mode, mode.simd == kCuda ? 1 : threads);
    KvPool pool{{3, 20, 20}, {}};
    pool.memory = backend->allocate(6 * backend->kv_page_bytes(pool.spec));
    const std::vector<std::int32_t> pages = {0, 1, 2, 3, 4, 5};
    const Table k = Table::random(6 * kPageTokens, 60, 21);
    const Table v = Table::random(6 * kPageTokens, 60, 22);
    const Segment all{0, k.rows(), 0, pages};
    backend->kv_write(pool, k.view(), v.view(), std::span(&all, 1));
    const auto before = page_values(*backend, pool, 0, 6);
    const std::vector<std::int32_t> from = {4, 0};
    const std::vector<std::int32_t> to = {1, 5};
    backend->extrapolate(pool, from, to, kWeight);
    const auto after = page_values(*backend, pool, 0, 6);
    const auto page = before.size() / 6;
    auto expected = before;
    for (std::size_t i = 0; i < from.size(); ++i) {
      for (std::size_t at = 0; at < page; ++at) {
        const float ahead = before[static_cast<std::size_t>(from[i]) * page + at];
        float& moved = expected[static_cast<std::size_t>(to[i]) * page + at];
        moved = rounded(std::fma(kWeight, ahead - moved, ahead), mode.compute);
      }
    }
    const bool fused = mode.simd != "baseline";
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (fused) {
        ASSERT_EQ(after[i], expected[i]) << i;
      } else {
        ASSERT_NEAR(after[i], expected[i], 0.01 * std::abs(expected[i]) + 1e-6) << i;
      }
    }
  }
}

}  // namespace
}  // namespace diffuse::test

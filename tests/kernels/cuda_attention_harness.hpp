#pragma once
// Sequences, pages and calls of attention for the tests of the CUDA kernels.

#include <algorithm>
#include <numeric>
#include <optional>

#include "cuda_harness.hpp"
#include "kernels/cuda/attention_layout.hpp"

namespace diffuse::kernels::cuda::test {

struct Case {
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 16;
  std::int64_t value_dim = 16;
  bool bf16 = false;
  bool causal = true;
  std::int64_t window = 0;
  float softcap = 0;
  bool alibi = false;
  std::int64_t bias_reach = -1;  // of a bias by distance; negative: none

  PageShape shape() const { return {kv_heads, head_dim, value_dim, bf16}; }
};

inline void PrintTo(const Case& c, std::ostream* out) {
  *out << c.heads << "/" << c.kv_heads << " heads of " << c.head_dim << " and " << c.value_dim
       << (c.bf16 ? " bf16" : " f32") << (c.causal ? "" : " whole") << " window " << c.window << " cap "
       << c.softcap << (c.alibi ? " alibi" : "") << " bias " << c.bias_reach;
}

inline constexpr std::int64_t kAmpleScratch = 227 << 10;
inline constexpr float kScale = 0.3F;

struct Sequence {
  Sequence(const Case& c, std::int64_t length, unsigned seed, std::int64_t queries = 0)
      : q(Rows::normal(queries > 0 ? queries : length, c.heads * c.head_dim, seed)),
        k(Rows::normal(length, c.kv_heads * c.head_dim, seed + 1)),
        v(Rows::normal(length, c.kv_heads * c.value_dim, seed + 2)) {}
  Rows q;
  Rows k;
  Rows v;
};

// A pool whose pages are handed out in shuffled order, full of NaN: what an earlier sequence left.
class Pool {
 public:
  Pool(const Case& c, std::int64_t pages, unsigned seed) : case_(c) {
    const auto bytes = static_cast<std::size_t>(pages * c.shape().page_bytes());
    memory_.resize(bytes / sizeof(Word));
    std::memset(memory_.data(), 0xff, bytes);
    free_.resize(static_cast<std::size_t>(pages));
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), std::mt19937(seed));
  }

  std::vector<std::int32_t> take(std::int64_t length) {
    std::vector<std::int32_t> pages;
    for (std::int64_t p = 0; p * kTile < length; ++p) {
      pages.push_back(free_.back());
      free_.pop_back();
    }
    return pages;
  }
  std::byte* data() { return memory_.data()->bytes; }

  // Writes the rows [first, first + count) of a sequence.
  void write(const Sequence& sequence, const std::vector<std::int32_t>& pages, std::int64_t first,
             std::int64_t count) {
    std::vector<KvSlot> slots;
    for (std::int64_t p = first; p < first + count; ++p)
      slots.push_back({pages[static_cast<std::size_t>(p / kTile)], static_cast<std::int32_t>(p % kTile)});
    const Rows k = sequence.k.part(first, count, 3);
    const Rows v = sequence.v.part(first, count, 1);
    ASSERT_EQ(kv_write(nullptr, {case_.shape(), data(), k.in(), v.in(), slots.data()}), cudaSuccess);
  }

 private:
  struct alignas(16) Word {
    std::byte bytes[16];
  };
  Case case_;
  std::vector<Word> memory_;
  std::vector<std::int32_t> free_;
};

inline std::vector<float> slopes_of(const Case& c) {
  std::vector<float> slopes;
  for (std::int64_t h = 0; h < c.heads; ++h) slopes.push_back(0.02F * static_cast<float>(h + 1));
  return slopes;
}

// [heads, 2 * bias_reach + 1]
inline std::vector<float> biases_of(const Case& c) {
  return normal_floats(c.heads * (2 * std::max<std::int64_t>(c.bias_reach, 0) + 1), 90);
}

// Rows of one sequence that a call attends with.
struct Piece {
  const Sequence* sequence = nullptr;
  const std::vector<std::int32_t>* pages = nullptr;
  std::int64_t first = 0;  // row of its queries
  std::int64_t count = 0;
  std::int64_t keys = 0;    // where not causal
  Rows* out = nullptr;      // rows [first, first + count) are filled
  std::int64_t offset = 0;  // position of the query row 0
};

// Attends with the pieces as one batch and returns what the plan was.
inline AttentionCounts attend_batch(const Case& c, Pool& pool, const std::vector<Piece>& pieces,
                                    const AttentionLimits& limits, std::int64_t out_gap = 0,
                                    std::int64_t out_shift = 0) {
  std::int64_t rows = 0;
  for (const auto& piece : pieces) rows += piece.count;
  Rows q(rows, c.heads * c.head_dim, 5, 1);
  Rows out(rows, c.heads * c.value_dim, out_gap, out_shift);
  std::vector<AttentionSpan> spans;
  std::vector<std::int32_t> pages;
  std::int64_t at = 0;
  for (const auto& piece : pieces) {
    spans.push_back({static_cast<std::int32_t>(at), static_cast<std::int32_t>(piece.count),
                     static_cast<std::int32_t>(piece.offset + piece.first),
                     static_cast<std::int32_t>(piece.keys), static_cast<std::int32_t>(pages.size()), 0});
    pages.insert(pages.end(), piece.pages->begin(), piece.pages->end());
    for (std::int64_t r = 0; r < piece.count; ++r, ++at)
      std::copy_n(piece.sequence->q.row(piece.first + r), q.cols(), q.row(at));
  }
  const auto plan = plan_attention(spans, c.shape(), c.heads, c.causal, c.window, limits);
  // Exactly as much as the plan asks for, 16-byte aligned, and full of NaN.
  std::vector<Rows> workspace(1, Rows(1, std::max<std::int64_t>(1, plan.counts.workspace_floats)));
  for (std::int64_t i = 0; i < workspace[0].cols(); ++i) workspace[0].at(0, i) = NAN;
  const auto slopes = slopes_of(c);
  Attention args;
  args.shape = c.shape();
  args.pool = pool.data();
  args.q = q.in();
  args.out = out.out();
  args.heads = c.heads;
  args.scale = kScale;
  args.causal = c.causal;
  args.window = c.window;
  args.softcap = c.softcap;
  args.alibi_slopes = c.alibi ? slopes.data() : nullptr;
  const auto biases = biases_of(c);
  args.position_bias = c.bias_reach < 0 ? nullptr : biases.data();
  args.bias_reach = c.bias_reach;
  args.counts = plan.counts;
  args.tasks = plan.tasks.data();
  args.merges = plan.merges.data();
  args.pages = pages.data();
  args.workspace = workspace[0].row(0);
  EXPECT_EQ(attend(nullptr, args), cudaSuccess);
  EXPECT_TRUE(out.guards_kept());
  at = 0;
  for (const auto& piece : pieces)
    for (std::int64_t r = 0; r < piece.count; ++r, ++at)
      std::copy_n(out.row(at), out.cols(), piece.out->row(piece.first + r));
  return plan.counts;
}

inline double rounded(float value, bool bf16) {
  return bf16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

// The plain formula in double.
inline Rows plain_attention(const Case& c, const Sequence& s, std::int64_t keys, std::int64_t offset = 0) {
  Rows out(s.q.rows(), c.heads * c.value_dim);
  const std::int64_t group = c.heads / c.kv_heads;
  const auto slopes = slopes_of(c);
  const auto biases = biases_of(c);
  for (std::int64_t t = 0; t < s.q.rows(); ++t) {
    const std::int64_t position = offset + t;
    const std::int64_t from =
        c.causal && c.window > 0 ? std::max<std::int64_t>(0, position - c.window + 1) : 0;
    const std::int64_t to = c.causal ? position + 1 : keys;
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const std::int64_t kv = h / group;
      std::vector<double> weights;
      double largest = -INFINITY;
      for (std::int64_t j = from; j < to; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < c.head_dim; ++d)
          score += rounded(s.q.at(t, h * c.head_dim + d), c.bf16) *
                   rounded(s.k.at(j, kv * c.head_dim + d), c.bf16);
        score *= kScale;
        if (c.softcap != 0) score = c.softcap * std::tanh(score / c.softcap);
        if (c.alibi)
          score += static_cast<double>(slopes[static_cast<std::size_t>(h)]) * static_cast<double>(j);
        if (c.bias_reach >= 0)
          score += biases[static_cast<std::size_t>(h * (2 * c.bias_reach + 1) + c.bias_reach +
                                                   std::clamp(j - position, -c.bias_reach, c.bias_reach))];
        weights.push_back(score);
        largest = std::max(largest, score);
      }
      double total = 0;
      for (auto& weight : weights) total += weight = std::exp(weight - largest);
      for (std::int64_t d = 0; d < c.value_dim; ++d) {
        double sum = 0;
        for (std::int64_t j = from; j < to; ++j)
          sum +=
              weights[static_cast<std::size_t>(j - from)] * rounded(s.v.at(j, kv * c.value_dim + d), c.bf16);
        out.at(t, h * c.value_dim + d) = static_cast<float>(sum / total);
      }
    }
  }
  return out;
}

// `allowed` is relative to the largest element of `b`.
inline ::testing::AssertionResult near_rows(const Rows& a, const Rows& b, double allowed) {
  double largest = 0;
  for (std::int64_t r = 0; r < b.rows(); ++r)
    for (std::int64_t c = 0; c < b.cols(); ++c) largest = std::max(largest, std::abs(double{b.at(r, c)}));
  for (std::int64_t r = 0; r < a.rows(); ++r)
    for (std::int64_t c = 0; c < a.cols(); ++c)
      if (!(std::abs(double{a.at(r, c)} - double{b.at(r, c)}) <= allowed * largest))
        return ::testing::AssertionFailure()
               << a.at(r, c) << " is not " << b.at(r, c) << " at row " << r << ", column " << c;
  return ::testing::AssertionSuccess();
}

// Prefill of a whole sequence in chunks of `chunk` rows.
inline Rows in_chunks(const Case& c, const Sequence& s, std::int64_t chunk, const AttentionLimits& limits) {
  Pool pool(c, (s.k.rows() + kTile - 1) / kTile + 3, static_cast<unsigned>(chunk));
  const auto pages = pool.take(s.k.rows());
  Rows out(s.q.rows(), c.heads * c.value_dim);
  for (std::int64_t first = 0; first < s.k.rows(); first += chunk) {
    const std::int64_t count = std::min(chunk, s.k.rows() - first);
    pool.write(s, pages, first, count);
    attend_batch(c, pool, {{&s, &pages, first, count, 0, &out}}, limits, chunk % 2 * 3, chunk % 3);
  }
  return out;
}

}  // namespace diffuse::kernels::cuda::test

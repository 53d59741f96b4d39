#include "harness.hpp"

#include <algorithm>
#include <numeric>

namespace diffuse::test {
namespace {

struct Shape {
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 16;
  std::int64_t value_dim = 16;
  std::int64_t window = 0;
  float softcap = 0;
  bool alibi = false;
};

struct Sequence {
  Sequence(const Shape& shape, std::int64_t length, unsigned seed)
      : q(Table::random(length, shape.heads * shape.head_dim, seed, 3)),
        k(Table::random(length, shape.kv_heads * shape.head_dim, seed + 1, 1)),
        v(Table::random(length, shape.kv_heads * shape.value_dim, seed + 2)) {}
  std::int64_t length() const { return q.rows(); }
  Table q;
  Table k;
  Table v;
};

// A pool whose pages are handed out in a shuffled order, and filled with NaN: what an earlier sequence left.
class Cache {
 public:
  Cache(Backend& backend, const Shape& shape, std::int64_t pages, unsigned seed)
      : backend_(backend), shape_(shape) {
    pool_.spec = {shape.kv_heads, shape.head_dim, shape.value_dim};
    pool_.memory = backend.allocate(static_cast<std::size_t>(pages) * backend.kv_page_bytes(pool_.spec));
    backend.upload(pool_.memory.data(), std::vector<std::byte>(pool_.memory.bytes(), std::byte{0xff}));
    free_.resize(static_cast<std::size_t>(pages));
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), std::mt19937(seed));
    std::vector<float> slopes;
    for (std::int64_t h = 0; h < shape.heads; ++h) slopes.push_back(0.05F * static_cast<float>(h + 1));
    slopes_ = backend.allocate(slopes.size() * sizeof(float));
    backend.upload(slopes_.data(), std::as_bytes(std::span(slopes)));
  }

  std::vector<std::int32_t> take(std::int64_t length) {
    std::vector<std::int32_t> pages;
    for (std::int64_t p = 0; p < (length + kPageTokens - 1) / kPageTokens; ++p) {
      pages.push_back(free_.back());
      free_.pop_back();
    }
    return pages;
  }

  // Writes and attends the rows [first, first + count) of each sequence as one batch, into out[i].
  struct Piece {
    const Sequence* sequence;
    std::span<const std::int32_t> pages;
    std::int64_t first;
    std::int64_t count;
    Table* out;
  };
  void run(const std::vector<Piece>& pieces) {
    std::int64_t rows = 0;
    for (const auto& piece : pieces) rows += piece.count;
    Table q(rows, shape_.heads * shape_.head_dim, 2);
    Table k(rows, shape_.kv_heads * shape_.head_dim);
    Table v(rows, shape_.kv_heads * shape_.value_dim, 5);
    Table out(rows, shape_.heads * shape_.value_dim, 1);
    std::vector<Segment> segments;
    std::int64_t at = 0;
    for (const auto& piece : pieces) {
      segments.push_back({at, piece.count, piece.first, piece.pages});
      backend_.copy(piece.sequence->q.view(piece.first, piece.count), q.view(at, piece.count));
      backend_.copy(piece.sequence->k.view(piece.first, piece.count), k.view(at, piece.count));
      backend_.copy(piece.sequence->v.view(piece.first, piece.count), v.view(at, piece.count));
      at += piece.count;
    }
    backend_.kv_write(pool_, k.view(), v.view(), segments);
    backend_.attend({.q = q.view(),
                     .out = out.view(),
                     .kv = &pool_,
                     .segments = segments,
                     .heads = shape_.heads,
                     .scale = 0.3F,
                     .window = shape_.window,
                     .softcap = shape_.softcap,
                     .alibi_slopes = shape_.alibi ? slopes_.floats() : nullptr});
    EXPECT_TRUE(out.gaps_kept());
    at = 0;
    for (const auto& piece : pieces) {
      backend_.copy(out.view(at, piece.count), piece.out->view(piece.first, piece.count));
      at += piece.count;
    }
  }

 private:
  Backend& backend_;
  Shape shape_;
  KvPool pool_;
  std::vector<std::int32_t> free_;
  Buffer slopes_;
};

Table in_chunks(const Mode& mode, int threads, const Shape& shape, const Sequence& sequence,
                std::int64_t chunk) {
  auto backend = make(mode, threads);
  Cache cache(*backend, shape, 40, static_cast<unsigned>(chunk));
  const auto pages = cache.take(sequence.length());
  Table out(sequence.length(), shape.heads * shape.value_dim);
  for (std::int64_t first = 0; first < sequence.length(); first += chunk)
    cache.run({{&sequence, pages, first, std::min(chunk, sequence.length() - first), &out}});
  return out;
}

// The plain formula in double.
Table plain(const Mode& mode, const Shape& shape, const Sequence& s) {
  Table out(s.length(), shape.heads * shape.value_dim);
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (std::int64_t t = 0; t < s.length(); ++t) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const std::int64_t kv = h / group;
      const std::int64_t from = shape.window > 0 ? std::max<std::int64_t>(0, t - shape.window + 1) : 0;
      std::vector<double> weights;
      double largest = -INFINITY;
      for (std::int64_t j = from; j <= t; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < shape.head_dim; ++d)
          score += rounded(s.q.at(t, h * shape.head_dim + d), mode.compute) *
                   rounded(s.k.at(j, kv * shape.head_dim + d), mode.compute);
        score *= 0.3F;
        if (shape.softcap != 0) score = shape.softcap * std::tanh(score / shape.softcap);
        if (shape.alibi)
          score += static_cast<double>(0.05F * static_cast<float>(h + 1)) * static_cast<double>(j);
        weights.push_back(score);
        largest = std::max(largest, score);
      }
      double total = 0;
      for (auto& weight : weights) total += weight = std::exp(weight - largest);
      for (std::int64_t d = 0; d < shape.value_dim; ++d) {
        double sum = 0;
        for (std::int64_t j = from; j <= t; ++j)
          sum += weights[static_cast<std::size_t>(j - from)] *
                 rounded(s.v.at(j, kv * shape.value_dim + d), mode.compute);
        out.at(t, h * shape.value_dim + d) = static_cast<float>(sum / total);
      }
    }
  }
  return out;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {},
      {.heads = 7, .kv_heads = 1, .head_dim = 64, .value_dim = 64},
      {.heads = 3, .kv_heads = 3, .head_dim = 5, .value_dim = 9},
      {.window = 1},
      {.window = 70},
      {.heads = 2, .kv_heads = 2, .window = 64, .softcap = 2.0F},
      {.softcap = 1.5F},
      {.alibi = true},
      {.heads = 50, .kv_heads = 1, .head_dim = 8, .value_dim = 20},
  };
  return all;
}

using Attention = EveryMode;
DIFFUSE_EVERY_MODE(Attention, false);

TEST_P(Attention, AgreesWithDouble) {
  for (const auto& shape : shapes()) {
    const Sequence sequence(shape, 201, 1);
    const Table expected = plain(GetParam(), shape, sequence);
    const Table found = in_chunks(GetParam(), 1, shape, sequence, 201);
    Difference difference;
    for (std::int64_t r = 0; r < expected.rows(); ++r)
      for (std::int64_t c = 0; c < expected.cols(); ++c) difference.see(expected.at(r, c), found.at(r, c));
    EXPECT_LT(difference.relative(), allowed(DeviceOp::attention, GetParam().compute))
        << shape.heads << " heads, window " << shape.window;
  }
}

TEST_P(Attention, BitsAreTheSameInEveryChunkOnAnyNumberOfThreadsAndPages) {
  for (const auto& shape : shapes()) {
    const Sequence sequence(shape, 201, 2);
    const Table expected = in_chunks(GetParam(), 1, shape, sequence, 1);
    for (const int threads : thread_counts(GetParam())) {
      for (const std::int64_t chunk : {3, 16, 64, 65, 201}) {
        ASSERT_TRUE(same_bits(expected, in_chunks(GetParam(), threads, shape, sequence, chunk)))
            << "chunks of " << chunk << ", " << threads << " threads, " << shape.heads << " heads, window "
            << shape.window;
      }
    }
  }
}

// Contexts of more than one part, which threads share in decoding but not in prefill.
TEST_P(Attention, LongContextsAreMergedAlikeInPrefillAndDecode) {
  for (const std::int64_t window : {0, 530, 600}) {
    const Shape shape{.heads = 2, .kv_heads = 1, .head_dim = 8, .value_dim = 8, .window = window};
    const Sequence sequence(shape, 1400, 3);
    const Table whole = in_chunks(GetParam(), 1, shape, sequence, 1400);
    EXPECT_TRUE(same_bits(whole, in_chunks(GetParam(), 2, shape, sequence, 100)));
    EXPECT_TRUE(same_bits(whole, in_chunks(GetParam(), 3, shape, sequence, 1)));
    const Table expected = plain(GetParam(), shape, sequence);
    Difference difference;
    for (std::int64_t r = 0; r < expected.rows(); ++r)
      for (std::int64_t c = 0; c < expected.cols(); ++c) difference.see(expected.at(r, c), whole.at(r, c));
    EXPECT_LT(difference.relative(), allowed(DeviceOp::attention, GetParam().compute));
  }
}

TEST_P(Attention, SequencesInOneBatchDoNotTouchEachOther) {
  const Shape shape{.heads = 6, .kv_heads = 2, .head_dim = 24, .value_dim = 24};
  std::vector<Sequence> sequences;
  std::vector<Table> alone;
  for (const std::int64_t length : {1, 64, 65, 130, 17}) {
    sequences.emplace_back(shape, length, static_cast<unsigned>(length));
    alone.push_back(in_chunks(GetParam(), 1, shape, sequences.back(), length));
  }
  auto backend = make(GetParam(), 2);
  Cache cache(*backend, shape, 40, 4);
  std::vector<std::vector<std::int32_t>> pages;
  std::vector<Table> together;
  for (const auto& sequence : sequences) {
    pages.push_back(cache.take(sequence.length()));
    together.emplace_back(sequence.length(), shape.heads * shape.value_dim);
  }
  // Mixed steps: each sequence advances by its own stride until it ends.
  std::vector<std::int64_t> done(sequences.size());
  for (bool more = true; more;) {
    std::vector<Cache::Piece> pieces;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const std::int64_t count =
          std::min<std::int64_t>(1 + 13 * static_cast<std::int64_t>(i), sequences[i].length() - done[i]);
      if (count == 0) continue;
      pieces.push_back({&sequences[i], pages[i], done[i], count, &together[i]});
      done[i] += count;
    }
    more = !pieces.empty();
    if (more) cache.run(pieces);
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) EXPECT_TRUE(same_bits(alone[i], together[i])) << i;
}

TEST_P(Attention, EqualScoresGiveTheMean) {
  const Shape shape{.heads = 1, .kv_heads = 1, .head_dim = 4, .value_dim = 4};
  Sequence sequence(shape, 128, 5);
  for (std::int64_t t = 0; t < 128; ++t) {
    for (std::int64_t d = 0; d < 4; ++d) {
      sequence.q.at(t, d) = 0;
      sequence.v.at(t, d) = static_cast<float>(t % 8 - d);
    }
  }
  const Table out = in_chunks(GetParam(), 1, shape, sequence, 128);
  for (std::int64_t d = 0; d < 4; ++d) {
    EXPECT_EQ(out.at(0, d), static_cast<float>(-d));
    EXPECT_EQ(out.at(127, d), 3.5F - static_cast<float>(d));
  }
}

// What a later position holds never reaches an earlier row, be it NaN.
TEST_P(Attention, ABadValueLeavesEarlierRowsAlone) {
  const Shape shape{.heads = 4, .kv_heads = 2, .head_dim = 16, .value_dim = 16};
  Sequence sequence(shape, 100, 6);
  const Table clean = in_chunks(GetParam(), 1, shape, sequence, 100);
  sequence.v.at(70, 3) = NAN;
  sequence.k.at(80, 3) = INFINITY;
  const Table found = in_chunks(GetParam(), 1, shape, sequence, 100);
  for (std::int64_t t = 0; t < 70; ++t) EXPECT_TRUE(same_bits(clean.row(t), found.row(t), clean.cols())) << t;
  EXPECT_TRUE(std::isnan(found.at(75, 3)));
}

}  // namespace
}  // namespace diffuse::test

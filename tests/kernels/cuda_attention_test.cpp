// The CUDA kernels' attention: against the plain formula, and in bits against itself however the rows are
// cut: decode and prefill, contexts in parts and whole, large tiles and small ones, alone and among other
// sequences.

#include "cuda_attention_harness.hpp"

namespace diffuse::kernels::cuda::test {
namespace {

const Case kCases[] = {
    {.heads = 4, .kv_heads = 2, .head_dim = 16, .value_dim = 16},
    {.heads = 4, .kv_heads = 2, .head_dim = 16, .value_dim = 16, .bf16 = true},
    {.heads = 3, .kv_heads = 3, .head_dim = 5, .value_dim = 7},
    {.heads = 3, .kv_heads = 1, .head_dim = 13, .value_dim = 6, .bf16 = true},
    {.heads = 7, .kv_heads = 1, .head_dim = 64, .value_dim = 64, .bf16 = true},
    {.heads = 14, .kv_heads = 2, .head_dim = 8, .value_dim = 20, .window = 37},
    {.heads = 2, .kv_heads = 1, .head_dim = 24, .value_dim = 9, .bf16 = true, .window = 300},
    {.heads = 5, .kv_heads = 1, .head_dim = 16, .value_dim = 16, .window = 64, .softcap = 2},
    {.heads = 2, .kv_heads = 2, .head_dim = 128, .value_dim = 32, .softcap = 1.5F, .alibi = true},
    {.heads = 4, .kv_heads = 4, .head_dim = 10, .value_dim = 10, .bf16 = true, .alibi = true},
    {.heads = 40, .kv_heads = 1, .head_dim = 8, .value_dim = 8},
    {.heads = 24, .kv_heads = 1, .head_dim = 12, .value_dim = 4, .bf16 = true, .window = 1},
    {.heads = 4, .kv_heads = 2, .head_dim = 8, .value_dim = 8, .bias_reach = 100},
    {.heads = 3, .kv_heads = 1, .head_dim = 8, .value_dim = 8, .bf16 = true, .window = 90, .bias_reach = 0},
};

AttentionLimits limits_with(std::int64_t scratch, std::int64_t blocks = 0, std::int64_t row_parts = 1) {
  AttentionLimits limits;
  limits.scratch_bytes = scratch;
  limits.blocks = blocks;
  limits.row_parts = row_parts;
  return limits;
}
const AttentionLimits kAmple = limits_with(kAmpleScratch);

class CudaAttention : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(, CudaAttention, ::testing::ValuesIn(kCases),
                         [](const auto& each) { return "case" + std::to_string(each.index); });

TEST_P(CudaAttention, IsThePlainFormula) {
  const Case& c = GetParam();
  for (const std::int64_t length : {1, 63, 64, 65, 257, 600}) {
    const Sequence s(c, length, 20);
    const Rows out = in_chunks(c, s, length, kAmple);
    ASSERT_TRUE(near_rows(out, plain_attention(c, s, 0), allowed(DeviceOp::attention, c.bf16))) << length;
  }
}

TEST_P(CudaAttention, AnyCutOfRowsAndContextsHasTheSameBits) {
  const Case& c = GetParam();
  constexpr std::int64_t kLength = 530;
  const Sequence s(c, kLength, 30);
  const Rows whole = in_chunks(c, s, kLength, kAmple);
  // Chunks of one row are decode.
  for (const std::int64_t chunk : {1, 70}) {
    ASSERT_TRUE(same_bits(in_chunks(c, s, chunk, kAmple), whole)) << "chunks of " << chunk;
  }
  // Tiles cut into parts, as where few rows meet a long context.
  for (const std::int64_t chunk : {41, 530}) {
    ASSERT_TRUE(same_bits(in_chunks(c, s, chunk, limits_with(kAmpleScratch, 1000)), whole))
        << "tiles in parts, chunks of " << chunk;
  }
  // A smaller tile, and scratch for no tile at all.
  const PageShape shape = c.shape();
  const std::int64_t small = tile_scratch(shape, kSmallTileQueries).bytes;
  ASSERT_TRUE(same_bits(in_chunks(c, s, 100, limits_with(small)), whole));
  for (const std::int64_t queries : {1, 4}) {
    const std::int64_t scratch = row_scratch(shape, queries, false).bytes;
    if (scratch >= small) continue;
    ASSERT_TRUE(same_bits(in_chunks(c, s, queries == 4 ? 100 : 9, limits_with(scratch)), whole)) << queries;
  }
  // Room for a longer context than there is, and values that are not staged.
  Pool pool(c, 12, 6);
  const auto pages = pool.take(kLength);
  pool.write(s, pages, 0, kLength);
  const auto group = static_cast<std::uint64_t>(c.heads / c.kv_heads);
  const auto held = std::min(static_cast<std::int64_t>(std::bit_ceil(group)), kMostRowQueries);
  const std::int64_t unstaged = row_scratch(shape, held, false).bytes;
  for (const bool staged : {true, false}) {
    const std::int64_t scratch = staged ? kAmpleScratch : unstaged;
    Rows decoded(kLength, c.heads * c.value_dim);
    for (std::int64_t row = 0; row < kLength; row += 23) {
      const auto counts =
          attend_batch(c, pool, {{&s, &pages, row, 1, 0, &decoded}}, limits_with(scratch, 0, 9));
      EXPECT_EQ(counts.row_staged, staged);
      EXPECT_EQ(counts.row_parts, 9);
      ASSERT_TRUE(same_bits(decoded.part(row, 1), whole.part(row, 1))) << row;
    }
  }
}

TEST_P(CudaAttention, ARowAmongOtherSequencesIsTheRowAlone) {
  const Case& c = GetParam();
  constexpr std::int64_t kLengths[] = {300, 1, 64, 577, 129};
  std::vector<Sequence> sequences;
  std::vector<Rows> alone;
  for (std::size_t i = 0; i < std::size(kLengths); ++i) {
    sequences.emplace_back(c, kLengths[i], static_cast<unsigned>(40 + 3 * i));
    alone.push_back(in_chunks(c, sequences[i], kLengths[i], kAmple));
  }
  Pool pool(c, 40, 1);
  std::vector<std::vector<std::int32_t>> pages;
  std::vector<Rows> out;
  for (std::size_t i = 0; i < std::size(kLengths); ++i) {
    pages.push_back(pool.take(kLengths[i]));
    pool.write(sequences[i], pages[i], 0, kLengths[i]);
    out.emplace_back(kLengths[i], c.heads * c.value_dim);
  }
  // Some sequences decode their last row while others prefill, in one call; then the other way round.
  for (const bool flip : {false, true}) {
    std::vector<Piece> decode;
    std::vector<Piece> mixed;
    for (std::size_t i = 0; i < std::size(kLengths); ++i) {
      const bool last = (i % 2 == 0) != flip;
      mixed.push_back(
          {&sequences[i], &pages[i], last ? kLengths[i] - 1 : 0, last ? 1 : kLengths[i], 0, &out[i]});
      decode.push_back({&sequences[i], &pages[i], kLengths[i] - 1, 1, 0, &out[i]});
    }
    for (auto& rows : out) rows = Rows(rows.rows(), rows.cols());
    const AttentionCounts counts = attend_batch(c, pool, mixed, kAmple);
    EXPECT_GT(counts.row_tasks, 0);
    EXPECT_GT(counts.tile_tasks, 0);
    for (std::size_t i = 0; i < std::size(kLengths); ++i) {
      const std::int64_t first = mixed[i].first;
      ASSERT_TRUE(same_bits(out[i].part(first, mixed[i].count), alone[i].part(first, mixed[i].count))) << i;
    }
    attend_batch(c, pool, decode, kAmple, 1);
    for (std::size_t i = 0; i < std::size(kLengths); ++i)
      ASSERT_TRUE(same_bits(out[i].part(kLengths[i] - 1, 1), alone[i].part(kLengths[i] - 1, 1))) << i;
  }
}

TEST_P(CudaAttention, WithoutCauseEveryRowReachesAllKeys) {
  Case c = GetParam();
  c.causal = false;
  c.window = 0;
  for (const std::int64_t keys : {1, 64, 300, 520}) {
    const Sequence s(c, keys, 50, 37);
    Pool pool(c, 12, 2);
    const auto pages = pool.take(keys);
    pool.write(s, pages, 0, keys);
    Rows out(37, c.heads * c.value_dim);
    attend_batch(c, pool, {{&s, &pages, 0, 37, keys, &out}}, kAmple);
    ASSERT_TRUE(near_rows(out, plain_attention(c, s, keys), allowed(DeviceOp::attention, c.bf16))) << keys;
    for (const std::int64_t blocks : {0, 1000}) {
      for (const std::int64_t chunk : {1, 5}) {
        Rows again(37, c.heads * c.value_dim);
        for (std::int64_t first = 0; first < 37; first += chunk)
          attend_batch(c, pool, {{&s, &pages, first, std::min(chunk, 37 - first), keys, &again}},
                       limits_with(kAmpleScratch, blocks));
        ASSERT_TRUE(same_bits(again, out)) << keys << " keys, chunks of " << chunk;
      }
    }
  }
}

TEST(CudaAttentionEdges, WhatARowDoesNotReachMayBeNan) {
  // Keys 0 to 9 and their values are NaN: with a window, rows from 10 + window - 1 on never see them.
  const Case c{.heads = 2, .kv_heads = 1, .head_dim = 8, .value_dim = 8, .window = 20};
  Sequence s(c, 300, 60);
  const Rows clean = in_chunks(c, s, 300, kAmple);
  for (std::int64_t p = 0; p < 10; ++p) {
    for (std::int64_t d = 0; d < 8; ++d) s.k.at(p, d) = s.v.at(p, d) = NAN;
  }
  for (const std::int64_t chunk : {1, 7, 300}) {
    const Rows out = in_chunks(c, s, chunk, kAmple);
    for (std::int64_t p = 0; p < 29; ++p) ASSERT_TRUE(std::isnan(out.at(p, 3))) << p;
    ASSERT_TRUE(same_bits(out.part(29, 271), clean.part(29, 271))) << chunk;
  }
}

TEST(CudaAttentionEdges, ANanOrAnInfiniteScoreShows) {
  const Case c{.heads = 1, .kv_heads = 1, .head_dim = 4, .value_dim = 4};
  for (const float bad : {NAN, INFINITY}) {
    Sequence s(c, 600, 61);
    s.k.at(5, 2) = bad;
    for (std::int64_t p = 0; p < 600; ++p) s.q.at(p, 2) = 1;
    for (const std::int64_t chunk : {1, 600}) {
      const Rows out = in_chunks(c, s, chunk, kAmple);
      ASSERT_FALSE(std::isnan(out.at(4, 0)));
      for (std::int64_t p = 5; p < 600; ++p) ASSERT_TRUE(std::isnan(out.at(p, 0))) << p;
    }
  }
}

TEST(CudaAttentionEdges, LargeScoresDoNotOverflow) {
  const Case c{.heads = 2, .kv_heads = 1, .head_dim = 8, .value_dim = 8};
  Sequence s(c, 400, 62);
  for (std::int64_t p = 0; p < 400; ++p)
    for (std::int64_t d = 0; d < 16; ++d) s.q.at(p, d) *= 1000;
  const Rows out = in_chunks(c, s, 400, kAmple);
  // Scores of some thousands are known that much less exactly, and with them the weights.
  EXPECT_TRUE(near_rows(out, plain_attention(c, s, 0), 2000 * allowed(DeviceOp::attention)));
  EXPECT_TRUE(same_bits(in_chunks(c, s, 1, kAmple), out));
}

TEST(CudaAttentionEdges, ALongContextMergesMoreThanOneRoundOfParts) {
  // 256 parts are merged at once; this has 263.
  const Case c{.heads = 1, .kv_heads = 1, .head_dim = 4, .value_dim = 4};
  const std::int64_t keys = 263 * kPartKeys - 5;
  Sequence s(c, keys, 63, 1);
  Pool pool(c, keys / kTile + 2, 3);
  const auto pages = pool.take(keys);
  pool.write(s, pages, 0, keys);
  Rows decoded(1, 4);
  Rows tiled(2, 4);
  const auto counts = attend_batch(c, pool, {{&s, &pages, 0, 1, 0, &decoded, keys - 1}}, kAmple);
  EXPECT_EQ(counts.row_parts, 263);
  Sequence twice(c, 2, 64);
  for (std::int64_t d = 0; d < 4; ++d) twice.q.at(1, d) = s.q.at(0, d);
  attend_batch(c, pool, {{&twice, &pages, 0, 2, 0, &tiled, keys - 2}}, kAmple);
  EXPECT_TRUE(same_bits(decoded, tiled.part(1, 1)));
  ASSERT_TRUE(near_rows(decoded, plain_attention(c, s, 0, keys - 1), allowed(DeviceOp::attention, c.bf16)));
}

TEST(CudaAttentionEdges, WhatCannotBeServedIsRefused) {
  const Case c;
  Rows q(1, 64);
  Rows out(1, 64);
  Attention args;
  args.shape = c.shape();
  args.q = q.in();
  args.out = out.out();
  args.heads = 3;  // not a multiple of 2
  EXPECT_EQ(attend(nullptr, args), cudaErrorInvalidValue);
  args.heads = 4;
  args.causal = false;
  args.window = 5;
  EXPECT_EQ(attend(nullptr, args), cudaErrorInvalidValue);
  args.window = 0;
  EXPECT_EQ(attend(nullptr, args), cudaSuccess);  // no tasks: nothing to do
  KvWrite write{c.shape(), nullptr, q.in(), q.in(), nullptr};
  EXPECT_EQ(kv_write(nullptr, write), cudaErrorInvalidValue);
}

TEST(CudaPages, HoldChunksOfKeysAndRowsOfValues) {
  for (const bool bf16 : {false, true}) {
    const Case c{.heads = 2, .kv_heads = 2, .head_dim = 5, .value_dim = 9, .bf16 = bf16};
    const PageShape shape = c.shape();
    const std::int64_t chunk = bf16 ? 8 : 4;
    EXPECT_EQ(shape.value_stride(), bf16 ? 16 : 12);
    EXPECT_EQ(shape.page_bytes() % 16, 0);
    const Sequence s(c, 70, 70);
    Pool pool(c, 5, 4);
    const auto pages = pool.take(70);
    pool.write(s, pages, 0, 70);
    const auto element = [&](const std::byte* head, std::int64_t index) {
      return bf16 ? bf16_to_f32(reinterpret_cast<const std::uint16_t*>(head)[index])
                  : reinterpret_cast<const float*>(head)[index];
    };
    for (std::int64_t p = 0; p < 70; ++p) {
      for (std::int64_t h = 0; h < 2; ++h) {
        const std::byte* head = pool.data() +
                                pages[static_cast<std::size_t>(p / kTile)] * shape.page_bytes() +
                                h * shape.head_bytes();
        const std::int64_t slot = p % kTile;
        for (std::int64_t d = 0; d < round_up(5, chunk); ++d)
          ASSERT_EQ(element(head, (d / chunk * kTile + slot) * chunk + d % chunk),
                    d < 5 ? rounded(s.k.at(p, h * 5 + d), bf16) : 0);
        for (std::int64_t d = 0; d < shape.value_stride(); ++d)
          ASSERT_EQ(element(head + shape.key_bytes(), slot * shape.value_stride() + d),
                    d < 9 ? rounded(s.v.at(p, h * 9 + d), bf16) : 0);
      }
    }
    // The slots behind the last position were not touched.
    const std::byte* last = pool.data() + pages[1] * shape.page_bytes();
    EXPECT_TRUE(std::isnan(element(last, 6 * chunk)));
  }
}

TEST(CudaPlan, CutsSingleRowsByPartsAndManyRowsByTiles) {
  const Case c{.heads = 14, .kv_heads = 2, .head_dim = 64, .value_dim = 64, .bf16 = true};
  const std::vector<AttentionSpan> spans{
      {0, 1, 1000, 0, 0, 0}, {1, 100, 0, 0, 16, 0}, {101, 1, 10, 0, 18, 0}, {102, 5, 500, 0, 19, 0}};
  const auto plan = plan_attention(spans, c.shape(), 14, true, 0, limits_with(160 << 10));
  EXPECT_EQ(plan.counts.row_tasks, 2);
  EXPECT_EQ(plan.counts.row_queries, 8);  // 7 heads of a group
  EXPECT_EQ(plan.counts.row_chunks, 1);
  EXPECT_TRUE(plan.counts.row_staged);
  EXPECT_FALSE(plan_attention(spans, c.shape(), 14, true, 0, limits_with(80 << 10)).counts.row_staged);
  EXPECT_EQ(plan.counts.row_parts, 4);
  EXPECT_EQ(plan.counts.tile_queries, 32);
  EXPECT_EQ(plan.counts.tile_tasks, 25 + 2);  // 4 rows of 7 heads a tile
  EXPECT_EQ(plan.counts.tile_parts, 1);
  EXPECT_EQ(plan.counts.merges, 2);
  EXPECT_EQ(plan.merges[0].parts, 4);
  EXPECT_EQ(plan.merges[1].row, 101);
  EXPECT_EQ(plan.merges[1].parts, 1);
  // The longest tiles come first.
  EXPECT_EQ(plan.tasks[2].first_row, 102);
  std::int64_t rows = 0;
  for (const auto& task : plan.tasks) rows += task.rows;
  EXPECT_EQ(rows, 107);
  // Too few tiles for the card: cut by parts, if there is memory for it.
  auto limits = limits_with(160 << 10, 500);
  EXPECT_EQ(plan_attention(spans, c.shape(), 14, true, 0, limits).counts.tile_parts, 2);
  limits.workspace_floats = 1000;
  EXPECT_EQ(plan_attention(spans, c.shape(), 14, true, 0, limits).counts.tile_parts, 1);
  // A recorded graph keeps its blocks.
  EXPECT_EQ(plan_attention(spans, c.shape(), 14, true, 0, limits_with(160 << 10, 0, 16)).counts.row_parts,
            16);
}

TEST(CudaPlan, AWindowSkipsThePartsBeforeIt) {
  const Case c{.window = 100};
  const std::vector<AttentionSpan> spans{{0, 1, 5000, 0, 0, 0}, {1, 1, 5120, 0, 0, 0}};
  const auto plan = plan_attention(spans, c.shape(), 4, true, 100, kAmple);
  EXPECT_EQ(plan.counts.row_parts, 2);  // 4901 to 5000 is one part; 5021 to 5120 is two
  EXPECT_EQ(plan.merges[0].parts, 1);
  EXPECT_EQ(plan.merges[1].parts, 2);
}

TEST(CudaPlan, RefusesHeadsThatNoBlockCanHold) {
  const PageShape shape{1, 200000, 8, false};
  const std::vector<AttentionSpan> spans{{0, 1, 0, 0, 0, 0}};
  EXPECT_THROW(plan_attention(spans, shape, 1, true, 0, kAmple), std::invalid_argument);
}

}  // namespace
}  // namespace diffuse::kernels::cuda::test

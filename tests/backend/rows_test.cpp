// Operations on rows: norms, activations, rope, embedding, arg-max.

#include "harness.hpp"

#include <functional>

namespace diffuse::test {
namespace {

using RowOps = EveryMode;
DIFFUSE_EVERY_MODE(RowOps, false);

// Runs an operation on all rows at once and on pieces, with one to four threads, and wants the same bits.
void expect_rows_independent(
    const Mode& mode, const Table& x, std::int64_t out_cols,
    const std::function<void(Backend&, Table&, Table&, std::int64_t, std::int64_t)>& run) {
  Table expected(x.rows(), out_cols);
  {
    auto backend = make(mode);
    Table input = x;
    for (std::int64_t r = 0; r < x.rows(); ++r) run(*backend, input, expected, r, 1);
  }
  for (const int threads : thread_counts(mode)) {
    auto backend = make(mode, threads);
    for (const std::int64_t piece : {std::int64_t{3}, std::int64_t{16}, x.rows()}) {
      Table input = x;
      Table found(x.rows(), out_cols, 3);
      for (std::int64_t r = 0; r < x.rows(); r += piece)
        run(*backend, input, found, r, std::min(piece, x.rows() - r));
      EXPECT_TRUE(same_bits(expected, found)) << piece << " rows at a time, " << threads << " threads";
      EXPECT_TRUE(found.gaps_kept());
    }
  }
}

TEST_P(RowOps, NormAgreesWithDouble) {
  auto backend = make(GetParam());
  for (const std::int64_t size : {1, 3, 12, 64, 101, 896}) {
    for (const std::int64_t groups : {1, 3}) {
      for (const auto kind : {NormKind::rms, NormKind::layer}) {
        const Table x = Table::random(4, size * groups, 1, 2);
        const Table weight = Table::random(1, size, 2);
        const Table bias = Table::random(1, size, 3);
        Table y(4, size * groups, 1);
        backend->norm({.x = x.view(),
                       .y = y.view(),
                       .kind = kind,
                       .weight = weight.row(0),
                       .bias = bias.row(0),
                       .weight_offset = 1,
                       .eps = 1e-5F,
                       .groups = groups});
        Difference difference;
        for (std::int64_t r = 0; r < 4; ++r) {
          for (std::int64_t g = 0; g < groups; ++g) {
            double mean = 0;
            for (std::int64_t i = 0; i < size; ++i) mean += x.at(r, g * size + i) / static_cast<double>(size);
            if (kind == NormKind::rms) mean = 0;
            double squares = 0;
            for (std::int64_t i = 0; i < size; ++i)
              squares += std::pow(x.at(r, g * size + i) - mean, 2) / static_cast<double>(size);
            for (std::int64_t i = 0; i < size; ++i) {
              const double normed = (x.at(r, g * size + i) - mean) / std::sqrt(squares + 1e-5F);
              difference.see(normed * (1.0 + weight.at(0, i)) + bias.at(0, i), y.at(r, g * size + i));
            }
          }
        }
        EXPECT_LT(difference.relative(), allowed(DeviceOp::norm, GetParam().compute))
            << size << " x " << groups;
        EXPECT_TRUE(y.gaps_kept());
      }
    }
  }
}

TEST_P(RowOps, NormIsIndependentOfTheOtherRows) {
  const Table weight = Table::random(1, 203, 4);
  for (const auto kind : {NormKind::rms, NormKind::layer}) {
    expect_rows_independent(
        GetParam(), Table::random(150, 203, 5, 1), 203,
        [&](Backend& backend, Table& x, Table& y, std::int64_t first, std::int64_t count) {
          backend.norm({.x = x.view(first, count),
                        .y = y.view(first, count),
                        .kind = kind,
                        .weight = weight.row(0),
                        .eps = 1e-6F});
        });
  }
}

TEST_P(RowOps, GateActivateAddScaleSoftcap) {
  auto backend = make(GetParam(), 2);
  const Table x = Table::random(6, 2 * 37, 6, 3, 3.0F);
  Table y(6, 37, 2);
  backend->gate(x.view(), y.view(), Activation::silu);
  Table z(6, 74);
  backend->activate(x.view(), z.view(), Activation::relu);
  Table sum = Table::random(6, 74, 7);
  const Table before = sum;
  backend->add(x.view(), sum.view(), -0.5F);
  Table scaled = before;
  backend->scale(scaled.view(), 3.0F);
  Table capped = x;
  backend->softcap(capped.view(), 2.0F);
  Table copied(6, 74, 4);
  backend->copy(x.view(), copied.view());
  Difference gated;
  Difference summed;
  Difference cap;
  for (std::int64_t r = 0; r < 6; ++r) {
    for (std::int64_t c = 0; c < 74; ++c) {
      const double value = x.at(r, c);
      if (c < 37) gated.see(value / (1 + std::exp(-value)) * x.at(r, 37 + c), y.at(r, c));
      EXPECT_EQ(z.at(r, c), std::max(x.at(r, c), 0.0F));
      summed.see(before.at(r, c) - 0.5 * value, sum.at(r, c));
      EXPECT_EQ(scaled.at(r, c), 3.0F * before.at(r, c));
      cap.see(2 * std::tanh(value / 2), capped.at(r, c));
      EXPECT_EQ(copied.at(r, c), x.at(r, c));
    }
  }
  EXPECT_LT(gated.relative(), allowed(DeviceOp::activation, GetParam().compute));
  EXPECT_LT(summed.relative(), allowed(DeviceOp::elementwise, GetParam().compute));
  EXPECT_LT(cap.relative(), allowed(DeviceOp::activation, GetParam().compute));
  EXPECT_TRUE(y.gaps_kept());
  EXPECT_TRUE(copied.gaps_kept());
}

TEST_P(RowOps, GatedAddition) {
  auto backend = make(GetParam(), 2);
  const Table x = Table::random(6, 75, 9, 3, 3.0F);
  const Table gate = Table::random(1, 75, 10);
  Table sum = Table::random(6, 75, 11, 2);
  const Table before = sum;
  backend->add_gated(x.view(), gate.row(0), sum.view());
  Difference summed;
  for (std::int64_t r = 0; r < 6; ++r) {
    for (std::int64_t c = 0; c < 75; ++c)
      summed.see(before.at(r, c) + static_cast<double>(gate.at(0, c)) * x.at(r, c), sum.at(r, c));
  }
  EXPECT_LT(summed.relative(), allowed(DeviceOp::elementwise, GetParam().compute));
  EXPECT_TRUE(sum.gaps_kept());
}

TEST_P(RowOps, GatedAdditionIsTheSameInEveryCompany) {
  const Table gate = Table::random(1, 203, 12);
  expect_rows_independent(GetParam(), Table::random(130, 203, 13, 1), 203,
                          [&](Backend& backend, Table& x, Table& y, std::int64_t first, std::int64_t count) {
                            backend.copy(x.view(first, count), y.view(first, count));
                            backend.add_gated(x.view(first, count), gate.row(0), y.view(first, count));
                          });
}

TEST_P(RowOps, ElementwiseBitsAreTheSameInEveryCompany) {
  expect_rows_independent(GetParam(), Table::random(130, 2 * 203, 8, 1), 203,
                          [](Backend& backend, Table& x, Table& y, std::int64_t first, std::int64_t count) {
                            backend.gate(x.view(first, count), y.view(first, count), Activation::gelu_tanh);
                            backend.softcap(y.view(first, count), 5.0F);
                          });
}

TEST_P(RowOps, RopeRotatesPairs) {
  auto backend = make(GetParam());
  for (const std::int64_t head_dim : {2, 12, 64, 80}) {
    for (const std::int64_t pairs : {head_dim / 2, std::max<std::int64_t>(1, head_dim / 4)}) {
      for (const auto style : {RopeStyle::half, RopeStyle::interleaved}) {
        const std::int64_t heads = 3;
        Table x = Table::random(5, heads * head_dim, 9, 2);
        const Table before = x;
        Table cosines(5, pairs);
        Table sines(5, pairs);
        for (std::int64_t r = 0; r < 5; ++r) {
          for (std::int64_t i = 0; i < pairs; ++i) {
            const double angle = static_cast<double>(r + 1) * std::pow(0.7, static_cast<double>(i));
            cosines.at(r, i) = static_cast<float>(std::cos(angle));
            sines.at(r, i) = static_cast<float>(std::sin(angle));
          }
        }
        backend->rope({.x = x.view(),
                       .heads = heads,
                       .head_dim = head_dim,
                       .pairs = pairs,
                       .style = style,
                       .cos = cosines.row(0),
                       .sin = sines.row(0)});
        Table expected = before;
        for (std::int64_t r = 0; r < 5; ++r) {
          for (std::int64_t h = 0; h < heads; ++h) {
            for (std::int64_t i = 0; i < pairs; ++i) {
              const bool half = style == RopeStyle::half;
              const std::int64_t a = h * head_dim + (half ? i : 2 * i);
              const std::int64_t b = h * head_dim + (half ? i + pairs : 2 * i + 1);
              const double c = cosines.at(r, i);
              const double s = sines.at(r, i);
              expected.at(r, a) = static_cast<float>(before.at(r, a) * c - before.at(r, b) * s);
              expected.at(r, b) = static_cast<float>(before.at(r, b) * c + before.at(r, a) * s);
            }
          }
        }
        Difference difference;
        for (std::int64_t r = 0; r < 5; ++r) {
          for (std::int64_t c = 0; c < heads * head_dim; ++c) difference.see(expected.at(r, c), x.at(r, c));
        }
        EXPECT_LT(difference.relative(), allowed(DeviceOp::rope, GetParam().compute))
            << head_dim << " " << pairs;
        EXPECT_TRUE(x.gaps_kept());
      }
    }
  }
}

TEST_P(RowOps, EmbedGivesTheStoredRowsScaled) {
  auto backend = make(GetParam(), 2);
  for (const auto type : {DType::f32, DType::bf16}) {
    const Stored table(Table::random(150, 33, 10), type);
    const HostMatrix parts[] = {table.view()};
    const auto packed = backend->pack(parts);
    const std::vector<std::int32_t> ids{149, 0, 64, 64, 7};
    Table out(5, 33, 1);
    backend->embed(*packed, ids, 2.0F, out.view());
    for (std::int64_t r = 0; r < 5; ++r) {
      for (std::int64_t c = 0; c < 33; ++c)
        EXPECT_EQ(out.at(r, c),
                  2.0 * rounded(table.at(ids[static_cast<std::size_t>(r)], c), GetParam().compute));
    }
    const Table positions = Table::random(8, 33, 11);
    const std::vector<std::int32_t> at{7, 0, 1, 2, 3};
    const Table before = out;
    backend->add_positions(positions.row(0), at, out.view());
    for (std::int64_t r = 0; r < 5; ++r) {
      for (std::int64_t c = 0; c < 33; ++c)
        EXPECT_EQ(out.at(r, c), before.at(r, c) + positions.at(at[static_cast<std::size_t>(r)], c));
    }
  }
}

TEST_P(RowOps, ArgmaxTakesTheLowestOfEqualsAndNeitherNaNNorInfinity) {
  auto backend = make(GetParam(), 2);
  for (const std::int64_t cols : {1, 5, 16, 17, 203}) {
    Table logits = Table::random(6, cols, 12, 1);
    logits.at(1, cols - 1) = 50;
    logits.at(2, cols / 2) = 50;
    logits.at(2, cols - 1) = 50;
    logits.at(3, cols - 1) = NAN;
    for (std::int64_t c = 0; c < cols; ++c) logits.at(4, c) = -INFINITY;
    logits.at(5, 0) = INFINITY;
    std::vector<std::int32_t> ids(6);
    backend->argmax(logits.view(), ids);
    std::int32_t best = 0;
    for (std::int64_t c = 1; c < cols; ++c)
      if (logits.at(0, c) > logits.at(0, best)) best = static_cast<std::int32_t>(c);
    EXPECT_EQ(ids, (std::vector<std::int32_t>{best, static_cast<std::int32_t>(cols - 1),
                                              static_cast<std::int32_t>(cols / 2), -1, -1, -1}))
        << cols;
  }
}

}  // namespace
}  // namespace diffuse::test

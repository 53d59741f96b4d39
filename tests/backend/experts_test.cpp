#include "harness.hpp"

#include <algorithm>
#include <numeric>

namespace diffuse::test {
namespace {

using Experts = EveryMode;
DIFFUSE_EVERY_MODE(Experts, true);

struct Model {
  Model(Backend& backend, std::int64_t count, std::int64_t hidden, std::int64_t inner, bool gated)
      : router(Table::random(count, hidden, 1), DType::bf16) {
    for (std::int64_t e = 0; e < count; ++e) {
      const auto seed = static_cast<unsigned>(100 + 2 * e);
      up.emplace_back(Table::random(gated ? 2 * inner : inner, hidden, seed, 0, 0.3F), DType::bf16);
      down.emplace_back(Table::random(hidden, inner, seed + 1, 0, 0.3F), DType::bf16);
      const HostMatrix up_parts[] = {up.back().view()};
      const HostMatrix down_parts[] = {down.back().view()};
      weights.push_back({.gate_up = backend.pack(up_parts), .down = backend.pack(down_parts)});
    }
    const HostMatrix router_parts[] = {router.view()};
    packed_router = backend.pack(router_parts, WeightUse::router);
  }
  Stored router;
  std::vector<Stored> up;
  std::vector<Stored> down;
  std::shared_ptr<const PackedMatrix> packed_router;
  std::vector<ExpertWeights> weights;
};

double silu(double x) {
  return x / (1 + std::exp(-x));
}

TEST_P(Experts, AgreeWithDouble) {
  const Compute compute = GetParam().compute;
  auto backend = make(GetParam());
  for (const bool gated : {true, false}) {
    for (const auto score : {RouterScore::softmax, RouterScore::sigmoid}) {
      const std::int64_t count = 7;
      const std::int64_t hidden = 24;
      const std::int64_t inner = 19;
      const Model model(*backend, count, hidden, inner, gated);
      const Table x = Table::random(11, hidden, 2, 1);
      Table out(11, hidden, 2);
      backend->experts({.x = x.view(),
                        .out = out.view(),
                        .router = model.packed_router.get(),
                        .experts = model.weights,
                        .top_k = 2,
                        .score = score,
                        .renormalize = true,
                        .scale = 1.5F,
                        .activation = Activation::silu,
                        .gated = gated});
      Difference difference;
      for (std::int64_t r = 0; r < 11; ++r) {
        std::vector<double> scores;
        for (std::int64_t e = 0; e < count; ++e) {
          double sum = 0;
          for (std::int64_t k = 0; k < hidden; ++k) sum += x.at(r, k) * model.router.at(e, k);
          scores.push_back(score == RouterScore::softmax ? std::exp(sum) : 1 / (1 + std::exp(-sum)));
        }
        std::vector<std::size_t> order(static_cast<std::size_t>(count));
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
        const double total = scores[order[0]] + scores[order[1]];
        std::vector<double> expected(static_cast<std::size_t>(hidden));
        for (const std::size_t e : {order[0], order[1]}) {
          std::vector<double> middle;
          for (std::int64_t i = 0; i < inner; ++i) {
            double a = 0;
            double b = 0;
            for (std::int64_t k = 0; k < hidden; ++k) {
              a += rounded(x.at(r, k), compute) * model.up[e].at(i, k);
              if (gated) b += rounded(x.at(r, k), compute) * model.up[e].at(inner + i, k);
            }
            middle.push_back(rounded(gated ? silu(a) * b : silu(a), compute));
          }
          for (std::int64_t n = 0; n < hidden; ++n) {
            double sum = 0;
            for (std::int64_t i = 0; i < inner; ++i)
              sum += middle[static_cast<std::size_t>(i)] * model.down[e].at(n, i);
            expected[static_cast<std::size_t>(n)] += 1.5 * scores[e] / total * sum;
          }
        }
        for (std::int64_t n = 0; n < hidden; ++n)
          difference.see(expected[static_cast<std::size_t>(n)], out.at(r, n));
      }
      EXPECT_LT(difference.relative(), allowed(DeviceOp::experts, compute));
      EXPECT_TRUE(out.gaps_kept());
    }
  }
}

TEST_P(Experts, RowsHaveTheSameBitsInEveryCompany) {
  const Table x = Table::random(100, 37, 3);
  Table alone(100, 37);
  const auto run = [&](Backend& backend, const Model& model, Table& out, std::int64_t first,
                       std::int64_t count) {
    backend.experts({.x = x.view(first, count),
                     .out = out.view(first, count),
                     .router = model.packed_router.get(),
                     .experts = model.weights,
                     .top_k = 3});
  };
  {
    auto backend = make(GetParam());
    const Model model(*backend, 8, 37, 45, true);
    for (std::int64_t r = 0; r < 100; ++r) run(*backend, model, alone, r, 1);
  }
  for (const int threads : thread_counts(GetParam())) {
    auto backend = make(GetParam(), threads);
    const Model model(*backend, 8, 37, 45, true);
    for (const std::int64_t company : {7, 64, 100}) {
      Table together(100, 37);
      for (std::int64_t first = 0; first < 100; first += company)
        run(*backend, model, together, first, std::min(company, 100 - first));
      EXPECT_TRUE(same_bits(alone, together)) << company << " rows, " << threads << " threads";
    }
  }
}

TEST_P(Experts, EqualScoresChooseTheLowestExperts) {
  auto backend = make(GetParam());
  Model model(*backend, 4, 8, 8, true);
  const Stored flat(Table(4, 8), DType::bf16);
  const HostMatrix parts[] = {flat.view()};
  model.packed_router = backend->pack(parts, WeightUse::router);
  Table zero(1, 8);
  for (std::int64_t c = 0; c < 8; ++c) zero.at(0, c) = c == 0 ? 1.0F : -1.0F / 7.0F;
  Table both(1, 8);
  backend->experts({.x = zero.view(),
                    .out = both.view(),
                    .router = model.packed_router.get(),
                    .experts = model.weights,
                    .top_k = 2});
  Table lowest(1, 8);
  const std::vector<ExpertWeights> two(model.weights.begin(), model.weights.begin() + 2);
  const Stored small(Table(2, 8), DType::bf16);
  const HostMatrix small_parts[] = {small.view()};
  const auto router = backend->pack(small_parts, WeightUse::router);
  backend->experts(
      {.x = zero.view(), .out = lowest.view(), .router = router.get(), .experts = two, .top_k = 2});
  EXPECT_TRUE(same_bits(both, lowest));
}

}  // namespace
}  // namespace diffuse::test

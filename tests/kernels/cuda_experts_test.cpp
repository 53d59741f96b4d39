#include <algorithm>
#include <numeric>

#include "cuda_harness.hpp"

namespace diffuse::kernels::cuda::test {
namespace {

struct Chosen {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
};

Chosen routed(const Rows& logits, std::int64_t top_k, bool sigmoid, bool renormalize, float scale) {
  Chosen chosen{std::vector<std::int32_t>(static_cast<std::size_t>(logits.rows() * top_k), -7),
                std::vector<float>(static_cast<std::size_t>(logits.rows() * top_k))};
  EXPECT_EQ(route(nullptr, {logits.in(), top_k, sigmoid, renormalize, scale, chosen.experts.data(),
                            chosen.weights.data()}),
            cudaSuccess);
  return chosen;
}

TEST(CudaExperts, RoutingIsTheChoiceOfTheBest) {
  for (const std::int64_t experts : {1, 2, 5, 8, 60, 64, 257}) {
    for (const std::int64_t top_k : {std::int64_t{1}, std::int64_t{2}, std::min<std::int64_t>(8, experts)}) {
      if (top_k > experts) continue;
      for (const bool sigmoid : {false, true}) {
        for (const bool renormalize : {false, true}) {
          const Rows logits = Rows::normal(7, experts, 3, 2);
          const Chosen chosen = routed(logits, top_k, sigmoid, renormalize, 2.5F);
          for (std::int64_t r = 0; r < 7; ++r) {
            std::vector<double> scores;
            double total = 0;
            for (std::int64_t e = 0; e < experts; ++e) total += std::exp(double{logits.at(r, e)});
            for (std::int64_t e = 0; e < experts; ++e)
              scores.push_back(sigmoid ? 1 / (1 + std::exp(-double{logits.at(r, e)}))
                                       : std::exp(double{logits.at(r, e)}) / total);
            std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
              return logits.at(r, a) > logits.at(r, b);
            });
            order.resize(static_cast<std::size_t>(top_k));
            double sum = 0;
            for (const auto e : order) sum += scores[static_cast<std::size_t>(e)];
            std::sort(order.begin(), order.end());
            for (std::int64_t k = 0; k < top_k; ++k) {
              const auto at = static_cast<std::size_t>(r * top_k + k);
              const auto expert = order[static_cast<std::size_t>(k)];
              ASSERT_EQ(chosen.experts[at], expert);
              const double expected =
                  2.5 * scores[static_cast<std::size_t>(expert)] / (renormalize ? sum : 1.0);
              ASSERT_NEAR(chosen.weights[at], expected, allowed(DeviceOp::routing) * expected);
            }
          }
        }
      }
    }
  }
}

TEST(CudaExperts, TheLowerExpertWinsATieAndNanIsNeverBetter) {
  Rows logits(3, 6);
  const float rows[3][6] = {{1, 2, 2, 0, 2, 1}, {NAN, NAN, NAN, NAN, NAN, NAN}, {5, 5, 5, 5, 5, 5}};
  for (std::int64_t r = 0; r < 3; ++r) std::copy_n(rows[r], 6, logits.row(r));
  const Chosen chosen = routed(logits, 2, false, true, 1);
  EXPECT_EQ(chosen.experts, (std::vector<std::int32_t>{1, 2, 0, 1, 0, 1}));
  EXPECT_EQ(chosen.weights[0], 0.5F);
  EXPECT_TRUE(std::isnan(chosen.weights[2]) && std::isnan(chosen.weights[3]));
  Rows one(1, 4);
  const float some[] = {NAN, -3, 4, NAN};
  std::copy_n(some, 4, one.row(0));
  EXPECT_EQ(routed(one, 3, true, false, 1).experts, (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(CudaExperts, ARowIsRoutedAloneAsAmongOthers) {
  const Rows logits = Rows::normal(40, 64, 5);
  const Chosen all = routed(logits, 4, false, true, 1);
  for (std::int64_t r = 0; r < 40; ++r) {
    const Chosen alone = routed(logits.part(r, 1, 0, 3), 4, false, true, 1);
    for (std::size_t k = 0; k < 4; ++k) {
      ASSERT_EQ(alone.experts[k], all.experts[static_cast<std::size_t>(r) * 4 + k]);
      ASSERT_EQ(bits(alone.weights[k]), bits(all.weights[static_cast<std::size_t>(r) * 4 + k]));
    }
  }
}

struct Grouped {
  std::vector<std::int32_t> counts;
  std::vector<std::int32_t> offsets;
  std::vector<std::int32_t> members;
  std::vector<std::int32_t> places;
};

Grouped grouped(const std::vector<std::int32_t>& chosen, std::int64_t rows, std::int64_t top_k,
                std::int64_t experts, std::int64_t row_step) {
  const auto places = static_cast<std::size_t>(group_places(rows, top_k, experts, row_step));
  Grouped made{std::vector<std::int32_t>(static_cast<std::size_t>(experts), -7),
               std::vector<std::int32_t>(static_cast<std::size_t>(experts), -7),
               std::vector<std::int32_t>(places, -7), std::vector<std::int32_t>(chosen.size(), -7)};
  EXPECT_EQ(group_rows(nullptr, {chosen.data(), rows, top_k, experts, row_step, made.counts.data(),
                                 made.offsets.data(), made.members.data(), made.places.data()}),
            cudaSuccess);
  return made;
}

TEST(CudaExperts, MembersAreSortedByExpertThenRow) {
  for (const std::int64_t rows : {1, 5, 300, 1000}) {
    for (const std::int64_t experts : {1, 3, 16}) {
      for (const std::int64_t row_step : {1, 8, 64}) {
        const std::int64_t top_k = std::min<std::int64_t>(2, experts);
        const auto chosen = routed(Rows::normal(rows, experts, 7), top_k, false, false, 1).experts;
        const Grouped made = grouped(chosen, rows, top_k, experts, row_step);
        std::int32_t place = 0;
        for (std::int32_t e = 0; e < experts; ++e) {
          place = static_cast<std::int32_t>(round_up(place, row_step));
          ASSERT_EQ(made.offsets[static_cast<std::size_t>(e)], place);
          std::int32_t count = 0;
          for (std::size_t i = 0; i < chosen.size(); ++i) {
            if (chosen[i] != e) continue;
            ASSERT_EQ(made.members[static_cast<std::size_t>(place)], static_cast<std::int32_t>(i) / top_k);
            ASSERT_EQ(made.places[i], place);
            ++place;
            ++count;
          }
          ASSERT_EQ(made.counts[static_cast<std::size_t>(e)], count);
          for (auto i = static_cast<std::size_t>(place);
               i < made.members.size() && i % static_cast<std::size_t>(row_step) != 0; ++i)
            ASSERT_EQ(made.members[i], -1);
        }
        for (auto i = static_cast<std::size_t>(place); i < made.members.size(); ++i)
          ASSERT_EQ(made.members[i], -1);
      }
    }
  }
}

TEST(CudaExperts, PlacesSufficeWhereEveryExpertIsUsedOnce) {
  EXPECT_EQ(group_places(3, 1, 100, 64), 3 * 64);
  EXPECT_EQ(group_places(1000, 2, 4, 1), 2000);
  const std::vector<std::int32_t> chosen{7, 2, 5};
  const Grouped made = grouped(chosen, 3, 1, 8, 16);
  EXPECT_EQ(made.places, (std::vector<std::int32_t>{32, 0, 16}));
}

TEST(CudaExperts, GatherAndCombineAreTheSumOverExpertsInAscendingOrder) {
  constexpr std::int64_t kRows = 21;
  constexpr std::int64_t kExperts = 6;
  for (const std::int64_t hidden : {1, 10, 64}) {
    const Rows x = Rows::normal(kRows, hidden, 8, 1);
    const Chosen chosen = routed(Rows::normal(kRows, kExperts, 9), 3, false, true, 1);
    const Grouped made = grouped(chosen.experts, kRows, 3, kExperts, 4);
    const auto places = static_cast<std::int64_t>(made.members.size());
    Rows gathered(places, hidden + 2);
    LAUNCHED(gather_rows(nullptr, x.in(), made.members.data(), gathered.out()));
    std::vector<std::uint16_t> narrow(static_cast<std::size_t>(places * (hidden + 2)), 0xabcd);
    LAUNCHED(gather_narrow_rows(nullptr, x.in(), made.members.data(), narrow.data(), places, hidden + 2,
                                hidden + 2));
    for (std::int64_t p = 0; p < places; ++p) {
      for (std::int64_t c = 0; c < hidden + 2; ++c) {
        const auto member = made.members[static_cast<std::size_t>(p)];
        const float expected = member >= 0 && c < hidden ? x.at(member, c) : 0.0F;
        ASSERT_EQ(bits(gathered.at(p, c)), bits(expected));
        ASSERT_EQ(narrow[static_cast<std::size_t>(p * (hidden + 2) + c)], f32_to_bf16(expected));
      }
    }

    // An expert's result is its number times the row.
    Rows results(places, hidden);
    for (std::size_t i = 0; i < made.places.size(); ++i)
      for (std::int64_t c = 0; c < hidden; ++c)
        results.at(made.places[i], c) =
            static_cast<float>(chosen.experts[i] + 1) * x.at(static_cast<std::int64_t>(i) / 3, c);
    Rows out(kRows, hidden, 3);
    LAUNCHED(combine(nullptr, {results.in(), made.places.data(), chosen.weights.data(), 3, out.out()}));
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t c = 0; c < hidden; ++c) {
        float expected = 0;
        for (std::size_t k = 0; k < 3; ++k) {
          const std::size_t at = static_cast<std::size_t>(r) * 3 + k;
          expected =
              std::fma(static_cast<float>(chosen.experts[at] + 1) * x.at(r, c), chosen.weights[at], expected);
        }
        ASSERT_EQ(bits(out.at(r, c)), bits(expected));
      }
    }
    EXPECT_TRUE(out.guards_kept());
  }
}

TEST(CudaExperts, WhatCannotBeServedIsRefused) {
  const Rows logits = Rows::normal(2, 4, 1);
  EXPECT_EQ(route(nullptr, {logits.in(), 5, false, true, 1, nullptr, nullptr}), cudaErrorInvalidValue);
  EXPECT_EQ(route(nullptr, {logits.in(), 0, false, true, 1, nullptr, nullptr}), cudaErrorInvalidValue);
  EXPECT_EQ(group_rows(nullptr, {nullptr, 3, 2, 4, 0, nullptr, nullptr, nullptr, nullptr}),
            cudaErrorInvalidValue);
}

}  // namespace
}  // namespace diffuse::kernels::cuda::test

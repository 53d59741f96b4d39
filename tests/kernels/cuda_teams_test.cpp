// Every CUDA kernel run by teams of real threads: a missing sync is a data race (thread sanitizer) or another
// result, and no result may depend on the size of the team.

#include <functional>

#include "cuda_attention_harness.hpp"

namespace diffuse::kernels::cuda::test {
namespace {

using Results = std::vector<Rows>;

Rows as_rows(const std::vector<std::int32_t>& values) {
  Rows rows(1, static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i)
    rows.at(0, static_cast<std::int64_t>(i)) = static_cast<float>(values[i]);
  return rows;
}

void expect_launched(cudaError_t error) {
  EXPECT_EQ(error, cudaSuccess);
}

Results run_rows() {
  const Rows x = Rows::normal(3, 150, 1, 2);
  const auto bias = normal_floats(150, 2);
  Rows y = Rows::normal(3, 150, 3);
  expect_launched(finish(nullptr, {x.in(), y.out(), bias.data(), Activation::gelu_tanh, 2, true}));
  Rows gated(3, 75);
  expect_launched(gate(nullptr, y.in(), gated.out(), Activation::silu));
  expect_launched(add_scaled(nullptr, x.in(), y.out(), 0.5F));
  expect_launched(add_gated(nullptr, x.in(), bias.data(), y.out()));
  expect_launched(softcap(nullptr, y.out(), 3));
  const std::vector<std::int32_t> ids{2, 0, 1};
  Rows embedded(3, 150);
  expect_launched(embed(nullptr, x.row(0), Element::f32, ids.data(), 2, embedded.out()));
  expect_launched(
      add_positions(nullptr, bias.data(), std::vector<std::int32_t>{0, 0, 0}.data(), embedded.out()));
  const auto cosines = normal_floats(3 * 15, 4);
  expect_launched(rope(nullptr, {embedded.out(), 5, 30, 15, false, cosines.data(), cosines.data()}));
  Rows padded(4, 152);
  expect_launched(copy_rows(nullptr, embedded.in(), padded.out()));
  Rows pages = Rows::normal(4, 96, 5);
  const std::vector<std::int32_t> from{3, 0};
  const std::vector<std::int32_t> to{1, 2};
  expect_launched(extrapolate(nullptr, {.pool = reinterpret_cast<std::byte*>(pages.row(0)),
                                        .page_bytes = 96 * 4,
                                        .bf16 = false,
                                        .from = from.data(),
                                        .to = to.data(),
                                        .pages = 2,
                                        .weight = 0.5F}));
  return {y, gated, embedded, padded, pages};
}

Results run_norms() {
  Results results;
  for (const std::int64_t size : {70, 1500}) {
    for (const bool layer : {false, true}) {
      const Rows x = Rows::normal(5, 2 * size, 5);
      const auto weight = normal_floats(size, 6);
      Rows y(5, 2 * size);
      expect_launched(norm(nullptr, {x.in(), y.out(), layer, weight.data(), weight.data(), 1, 1e-5F, 2}));
      results.push_back(y);
    }
  }
  return results;
}

Results run_argmax() {
  Rows logits = Rows::normal(3, 9000, 7);
  logits.at(0, 8500) = logits.at(0, 4300) = 50;
  logits.at(2, 77) = NAN;
  std::vector<std::int64_t> workspace(argmax_workspace_bytes(3, 9000) / 8);
  std::vector<std::int32_t> ids(3);
  expect_launched(argmax(nullptr, logits.in(), reinterpret_cast<std::byte*>(workspace.data()), ids.data()));
  return {as_rows(ids)};
}

Results run_experts() {
  constexpr std::int64_t kRows = 70;
  constexpr std::int64_t kExperts = 9;
  std::vector<std::int32_t> chosen(kRows * 3);
  Rows weights(1, kRows * 3);
  for (const bool sigmoid : {true, false})
    expect_launched(route(nullptr, {Rows::normal(kRows, kExperts, 8).in(), 3, sigmoid, true, 1, chosen.data(),
                                    weights.row(0)}));
  std::vector<std::int32_t> counts(kExperts);
  std::vector<std::int32_t> offsets(kExperts);
  std::vector<std::int32_t> members(static_cast<std::size_t>(group_places(kRows, 3, kExperts, 8)));
  std::vector<std::int32_t> places(chosen.size());
  expect_launched(group_rows(nullptr, {chosen.data(), kRows, 3, kExperts, 8, counts.data(), offsets.data(),
                                       members.data(), places.data()}));
  const Rows x = Rows::normal(kRows, 12, 9);
  Rows gathered(static_cast<std::int64_t>(members.size()), 12);
  expect_launched(gather_rows(nullptr, x.in(), members.data(), gathered.out()));
  Rows out(kRows, 12);
  expect_launched(combine(nullptr, {gathered.in(), places.data(), weights.row(0), 3, out.out()}));
  return {as_rows(chosen),  weights,         as_rows(counts), as_rows(offsets),
          as_rows(members), as_rows(places), gathered,        out};
}

Results run_attention(const Case& c, std::int64_t length, std::int64_t blocks,
                      std::int64_t scratch_bytes = kAmpleScratch) {
  const Sequence s(c, length, 80);
  AttentionLimits limits;
  limits.scratch_bytes = scratch_bytes;
  limits.blocks = blocks;
  Pool pool(c, 8, 5);
  const auto pages = pool.take(length);
  pool.write(s, pages, 0, length);
  Rows out(length, c.heads * c.value_dim);
  // The last row decodes, a few before it prefill.
  attend_batch(c, pool, {{&s, &pages, length - 1, 1, 0, &out}, {&s, &pages, length - 12, 11, 0, &out}},
               limits);
  return {out.part(length - 12, 12)};
}

struct Scenario {
  const char* name;
  std::function<Results()> run;
};

void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << scenario.name;
}

const Scenario kScenarios[] = {
    {"rows", run_rows},
    {"norms", run_norms},
    {"argmax", run_argmax},
    {"experts", run_experts},
    {"attention",
     [] { return run_attention({.heads = 4, .kv_heads = 1, .head_dim = 12, .value_dim = 10}, 330, 0); }},
    {"attention_in_parts",
     [] {
       return run_attention({.heads = 4, .kv_heads = 1, .head_dim = 12, .value_dim = 10, .bf16 = true}, 330,
                            1000);
     }},
    {"attention_unstaged",
     [] {
       const Case c{.heads = 2, .kv_heads = 1, .head_dim = 12, .value_dim = 10};
       return run_attention(c, 330, 0, row_scratch(c.shape(), 2, false).bytes);
     }},
    {"attention_window",
     [] {
       return run_attention({.heads = 3, .kv_heads = 1, .head_dim = 8, .value_dim = 8, .window = 70}, 300, 0);
     }},
};

class CudaTeams : public ::testing::TestWithParam<Scenario> {};
INSTANTIATE_TEST_SUITE_P(, CudaTeams, ::testing::ValuesIn(kScenarios),
                         [](const auto& each) { return each.param.name; });

TEST_P(CudaTeams, OfAnySizeGiveTheSameBits) {
  const Results expected = GetParam().run();
  for (const int size : {2, 3, 32, 64}) {
    for (const bool copies_at_once : {false, true}) {
      const Teams teams({size, copies_at_once});
      const Results results = GetParam().run();
      ASSERT_EQ(results.size(), expected.size());
      for (std::size_t i = 0; i < results.size(); ++i)
        ASSERT_TRUE(same_bits(results[i], expected[i])) << "teams of " << size << ", result " << i;
    }
  }
}

}  // namespace
}  // namespace diffuse::kernels::cuda::test

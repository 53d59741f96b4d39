// Whole and split say the same: tokens, text, log-probabilities and the digest of every layer, whatever the
// cut, the groups, the chunks and the key-value budget.

#include <gtest/gtest.h>

#include <set>

#include "support.hpp"
#include "verify/compare.hpp"

namespace diffuse::test {
namespace {

void expect_identical(const Subject& subject, const Job& job, const std::vector<Setting>& settings) {
  const auto prepared = subject.prepare(job);
  std::map<Compute, Heard> wholes;
  for (const auto& setting : settings) {
    auto& whole = wholes[setting.compute];
    if (whole.errors.empty()) {
      Setting alone;
      alone.compute = setting.compute;
      whole = run_well(subject, prepared, alone);
    }
    const auto split = run_well(subject, prepared, setting);
    EXPECT_EQ(difference(whole.result, split.result), "") << to_text(setting);
    EXPECT_EQ(whole.tensors_hash, split.tensors_hash);
    const auto counts = compare(whole.result, split.result).compared;
    EXPECT_GT(counts.tokens, 0U);
    EXPECT_GT(counts.digests, counts.tokens);
    EXPECT_EQ(counts.answered, job.requests.size());
    if (testing::Test::HasFailure()) return;
  }
}

class SplitOfGolden : public testing::TestWithParam<GoldenCase> {};

TEST_P(SplitOfGolden, IsTheWhole) {
  const Subject subject(GetParam().folder);
  std::uint32_t seed = 0;
  for (const auto letter : GetParam().name) seed = seed * 31 + static_cast<unsigned char>(letter);
  auto settings = random_settings(seed, subject.model.recipe.depth(), 7);  // 1 to 7 ranks
  for (std::size_t i = 0; i < settings.size(); ++i)
    settings[i].compute = i % 3 == 2 ? Compute::bf16 : Compute::f32;
  expect_identical(subject, random_job(seed, subject.model.recipe.vocab, 14, 90), settings);
}

INSTANTIATE_TEST_SUITE_P(, SplitOfGolden,
                         testing::Values(golden_case("gemma2"), golden_case("gpt2"),
                                         golden_case("llama-wide"), golden_case("mistral-window"),
                                         golden_case("mixtral"), golden_case("qwen2-tied")),
                         [](const auto& each) {
                           auto name = each.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Split, OfManyRequestsIsTheWhole) {
  const Subject subject(golden_case("llama").folder);
  const auto settings = random_settings(3, subject.model.recipe.depth(), 5);
  expect_identical(subject, random_job(7, subject.model.recipe.vocab, 150, 40), settings);
}

struct Story {
  Request request;
  std::vector<std::int32_t> prompt, tokens;
  std::string text;
  std::vector<double> gaps;
};

std::vector<Story> demo_stories() {
  std::vector<Story> stories;
  const std::filesystem::path data(DIFFUSE_TEST_DATA);
  for (const auto& entry : read_json(data / "demo-lm-golden.json")) {
    Story story;
    story.request.input = Messages{Json::array({{{"role", "user"}, {"content", entry.at("user")}}})};
    story.request.generate = {{"max_new_tokens", 120}};
    story.prompt = entry.at("prompt_ids").get<std::vector<std::int32_t>>();
    story.tokens = entry.at("tokens").get<std::vector<std::int32_t>>();
    story.text = entry.at("text");
    story.gaps = entry.at("gaps").get<std::vector<double>>();
    stories.push_back(std::move(story));
  }
  return stories;
}

TEST(SplitOfDemo, SaysWhatTransformersSays) {
  const Subject subject(demo_model());
  const auto stories = demo_stories();
  ASSERT_GE(stories.size(), 6U);
  std::vector<Request> requests;
  for (const auto& story : stories) requests.push_back(story.request);
  const auto prepared = subject.prepare(job_of(requests));
  for (std::size_t i = 0; i < stories.size(); ++i) EXPECT_EQ(prepared[i].prompt, stories[i].prompt);

  const auto whole = run_well(subject, prepared, {});
  std::size_t equal = 0;
  for (std::size_t i = 0; i < stories.size(); ++i) {
    const auto& request = whole.result.requests[i];
    const auto& story = stories[i];
    ASSERT_EQ(request.status, Status::done) << request.message;
    const auto& sample = request.samples.at(0);
    const auto [own, theirs] =
        std::mismatch(sample.tokens.begin(), sample.tokens.end(), story.tokens.begin(), story.tokens.end());
    if (own == sample.tokens.end() && theirs == story.tokens.end()) {
      ++equal;
      EXPECT_EQ(sample.text, story.text);
      EXPECT_EQ(sample.finish, Finish::end_of_text);
      continue;
    }
    // Only where their two best logits are too close to call.
    const auto at = static_cast<std::size_t>(theirs - story.tokens.begin());
    ASSERT_LT(at, story.gaps.size()) << "request " << i;
    EXPECT_LT(story.gaps[at], 1e-3) << "request " << i << ", generated token " << at;
  }
  EXPECT_GE(equal, 4U);  // in four of them no two logits are close

  for (std::int32_t ranks = 2; ranks <= 7; ++ranks) {
    const auto split = run_well(subject, prepared, {.ranks = ranks});
    EXPECT_EQ(difference(whole.result, split.result), "") << ranks << " ranks";
  }
}

TEST(SplitOfDemo, IsTheWholeInBf16) {
  const Subject subject(demo_model());
  auto settings = random_settings(11, subject.model.recipe.depth(), 3);
  for (auto& setting : settings) setting.compute = Compute::bf16;
  expect_identical(subject, random_job(12, subject.model.recipe.vocab, 12, 120), settings);
}

// Each rank opens the folder itself, as on a cluster, so that what it reads can be counted.
TEST(Loading, ReadsExactlyWhatThePlanSays) {
  for (const auto& name : {"qwen2-tied", "mixtral", "gpt2", "llama-wide"}) {
    for (const auto mode : {LoadMode::mmap, LoadMode::read}) {
      std::set<std::string> hashes;
      for (std::int32_t ranks = 1; ranks <= 6; ++ranks) {
        const Subject subject(golden_case(name).folder);
        std::vector<std::unique_ptr<TestModel>> own;
        for (std::int32_t rank = 0; rank < ranks; ++rank)
          own.push_back(std::make_unique<TestModel>(subject.folder, mode));
        Hooks hooks;
        hooks.model = [&](int rank) -> const TestModel& { return *own[static_cast<std::size_t>(rank)]; };
        const auto prepared = subject.prepare(job_of({request_of({3, 4, 5}, {{"max_new_tokens", 2}})}));
        const auto heard = run_well(subject, prepared, {.ranks = ranks}, hooks);
        ASSERT_EQ(heard.loads.size(), static_cast<std::size_t>(ranks));
        for (std::size_t rank = 0; rank < heard.loads.size(); ++rank) {
          const auto& slice = heard.plan.ranks[rank];
          EXPECT_EQ(heard.loads[rank].bytes_read, slice.weight_bytes) << name << ", rank " << rank;
          EXPECT_EQ(own[rank]->checkpoint.bytes_read(), slice.weight_bytes) << name << ", rank " << rank;
          EXPECT_EQ(slice.weight_bytes == 0, slice.idle());
        }
        hashes.insert(heard.tensors_hash);
      }
      EXPECT_EQ(hashes.size(), 1U) << "the hash of all tensors depends on the split";
    }
  }
}

TEST(Loading, PutsATiedHeadOnBothEnds) {
  const Subject subject(golden_case("qwen2-tied").folder);
  ASSERT_TRUE(subject.model.recipe.back.tied);
  const auto& table = subject.model.recipe.front.embedding.tensor;
  const auto plan = make_plan(subject.model.recipe, subject.model.checkpoint.headers(), 4);
  ASSERT_EQ(plan.stages, 4);
  for (const auto& slice : plan.ranks) {
    const auto holds = std::count(slice.tensors.begin(), slice.tensors.end(), table);
    EXPECT_EQ(holds, slice.front || slice.back ? 1 : 0) << "rank " << slice.rank;
  }
  const auto whole = make_plan(subject.model.recipe, subject.model.checkpoint.headers(), 1);
  std::uint64_t sum = 0;
  for (const auto& slice : plan.ranks) sum += slice.weight_bytes;
  EXPECT_EQ(sum, whole.ranks[0].weight_bytes + subject.model.checkpoint.bytes_of(table));
}

TEST(Loading, FindsRanksThatSeeOtherBytes) {
  const Subject subject(golden_case("qwen2-tied").folder);
  const ModelCopy copy(subject.folder);
  copy.fill_row(subject.model.recipe.front.embedding.tensor, 7, 0.25F);
  const TestModel other(copy.folder());
  Hooks hooks;
  hooks.model = [&](int rank) -> const TestModel& { return rank == 2 ? other : subject.model; };
  Setting setting{.ranks = 3};
  setting.network.timeout = std::chrono::milliseconds(200);
  const auto heard = run(subject, subject.prepare(job_of({request_of({3})})), setting, hooks);
  EXPECT_NE(heard.errors[0].find("rank"), std::string::npos) << heard.errors[0];
  EXPECT_NE(heard.errors[0].find("2 read different bytes"), std::string::npos) << heard.errors[0];
  EXPECT_NE(heard.errors[0].find(subject.model.recipe.front.embedding.tensor), std::string::npos);
}

}  // namespace
}  // namespace diffuse::test

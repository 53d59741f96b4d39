// Models whose stack reads an encoder: whole and split say the same wherever the encoder is, and tokens are
// the reference's.

#include <gtest/gtest.h>

#include "memory_cases.hpp"
#include "support.hpp"
#include "verify/compare.hpp"

namespace diffuse::test {
namespace {

// Settings of 1 to depth + 2 ranks: one that encodes or all of them, with and without ranks for that alone,
// and one that idles.
std::vector<Setting> settings_of(const Recipe& recipe, std::uint32_t seed) {
  auto settings = random_settings(seed, recipe.depth(), 6);
  for (std::int32_t ranks = 1; ranks <= recipe.depth() + 2; ++ranks) settings.push_back({.ranks = ranks});
  for (std::size_t i = 0; i < settings.size(); ++i) {
    settings[i].compute = i % 3 == 2 ? Compute::bf16 : Compute::f32;
    settings[i].encoders = i % 2 == 0 ? EncoderCopies::all : EncoderCopies::one;
  }
  return settings;
}

void expect_identical(const Subject& subject, const std::vector<PreparedRequest>& prepared,
                      const std::vector<Setting>& settings) {
  std::map<Compute, Heard> wholes;
  for (const auto& setting : settings) {
    auto& whole = wholes[setting.compute];
    if (whole.errors.empty()) {
      Setting alone;
      alone.compute = setting.compute;
      whole = run_well(subject, prepared, alone);
      for (const auto& request : whole.result.requests)
        EXPECT_EQ(request.status, Status::done) << request.message;
    }
    const auto split = run_well(subject, prepared, setting);
    EXPECT_EQ(difference(whole.result, split.result), "") << to_text(setting);
    EXPECT_EQ(whole.tensors_hash, split.tensors_hash);
    EXPECT_GT(split.report.encoded_rows, 0U);
    EXPECT_EQ(split.report.encoded_rows, whole.report.encoded_rows);
    if (testing::Test::HasFailure()) return;
  }
}

// Requests of sources of all lengths; some of several samples, some drawn.
Job random_sources(std::uint32_t seed, const Recipe& recipe) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < 17; ++i) {
    const auto length = 1 + static_cast<std::int64_t>(random() % (i % 4 == 0 ? 120 : 30));
    Json generate = {{"max_new_tokens", 1 + random() % 20}, {"ignore_eos", i % 2 == 0}};
    if (i % 5 == 1) generate["temperature"] = 0.8;
    if (i % 7 == 2) generate["n"] = 2;
    if (i % 3 == 1) generate["no_repeat_ngram_size"] = 2;
    if (i % 6 == 3) generate["logprobs"] = 2;
    if (i % 6 == 4) generate["repetition_penalty"] = 1.3;
    requests.push_back(request_of(random_ids(random, recipe.encoder->vocab, length), generate));
  }
  return job_of(std::move(requests));
}

class TextToText : public testing::TestWithParam<const char*> {
 public:
  TextToText() : subject_(golden_case(GetParam()).folder), golden_(subject_.folder) {}
  Subject subject_;
  Golden golden_;
};

TEST_P(TextToText, SplitIsTheWhole) {
  const auto prepared = subject_.prepare(random_sources(5, subject_.model.recipe));
  expect_identical(subject_, prepared, settings_of(subject_.model.recipe, 11));
}

TEST_P(TextToText, SaysWhatTransformersSays) {
  const auto tokens = golden_.ids("tokens");
  const auto prepared = subject_.prepare(job_of(
      {request_of(golden_.ids("input_ids"), {{"max_new_tokens", tokens.size()}, {"ignore_eos", true}})}));
  for (const std::int32_t ranks : {1, 3, 6}) {
    const auto heard = run_well(subject_, prepared, {.ranks = ranks});
    const auto& request = heard.result.requests.at(0);
    ASSERT_EQ(request.status, Status::done) << request.message;
    EXPECT_EQ(request.samples.at(0).tokens, tokens) << ranks << " ranks";
    EXPECT_EQ(request.prompt_tokens, static_cast<std::int64_t>(golden_.ids("input_ids").size()));
  }
}

TEST_P(TextToText, RunsInSmallMemory) {
  const auto prepared = subject_.prepare(random_sources(6, subject_.model.recipe));
  const auto whole = run_well(subject_, prepared, {});
  for (const std::int32_t ranks : {1, 2, 6}) {
    Setting setting{.ranks = ranks, .encoders = EncoderCopies::all};
    setting.options.kv_pages = 4;  // one or two sequences at a time
    EXPECT_EQ(difference(whole.result, run_well(subject_, prepared, setting).result), "") << ranks;
  }
}

TEST_P(TextToText, StopsWhileItEncodes) {
  const auto prepared = subject_.prepare(random_sources(7, subject_.model.recipe));
  for (const std::int32_t ranks : {1, 2, 6}) {
    for (const std::uint64_t after : {0U, 1U, 40U}) {
      const auto heard = run_well(subject_, prepared, {.ranks = ranks, .encoders = EncoderCopies::all},
                                  {.stop = [after](std::uint64_t tokens) { return tokens >= after; }});
      EXPECT_TRUE(heard.report.stopped);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, TextToText, testing::Values("t5", "bart", "marian"),
                         [](const auto& each) { return std::string(each.param); });

// A prepared request of frames, as the text side of speech makes it.
PreparedRequest of_frames(const MemoryCase& subject, std::int64_t new_tokens, float louder) {
  PreparedRequest request;
  auto input = std::make_shared<EncoderInput>(subject.input);
  for (auto& value : input->frames) value *= louder;
  request.id = "f" + std::to_string(louder);
  request.memory_rows = memory_rows(*subject.model.recipe.encoder, *input);
  request.input = std::move(input);
  request.prompt = subject.prompt;
  request.max_new_tokens = new_tokens;
  request.options.ignore_eos = true;
  return request;
}

TEST(SoundToText, SplitIsTheWholeAndTheReference) {
  const auto folder = golden_case("whisper").folder;
  const Subject subject(folder);
  const MemoryCase reference(folder);
  const auto tokens = reference.golden.ids("tokens");
  std::vector<PreparedRequest> prepared;
  for (const float louder : {1.0F, 0.5F, 2.0F, 0.9F})
    prepared.push_back(of_frames(reference, static_cast<std::int64_t>(tokens.size()), louder));
  std::vector<Setting> settings;
  for (const std::int32_t ranks : {1, 2, 4, 6})
    settings.push_back({.ranks = ranks, .threads = ranks % 3 + 1});
  expect_identical(subject, prepared, settings);
  const auto heard = run_well(subject, prepared, {.ranks = 2});
  EXPECT_EQ(heard.result.requests.at(0).samples.at(0).tokens, tokens);
}

struct BadSource {
  std::vector<std::int32_t> ids;
  const char* message;
};

TEST(Sources, ThatCannotBeReadSayWhy) {
  const Subject subject(golden_case("bart").folder);
  const std::vector<BadSource> cases = {
      {{}, "the encoder has nothing to read"},
      {{3, 150}, "the token id 150"},
      {std::vector<std::int32_t>(129, 5), "the encoder reads at most 128"},
      {{4, 5}, ""},
  };
  std::vector<Request> requests;
  for (const auto& bad : cases) requests.push_back(request_of(bad.ids, {{"max_new_tokens", 3}}));
  const auto prepared = subject.prepare(job_of(requests));
  for (std::size_t i = 0; i < cases.size(); ++i)
    EXPECT_NE(prepared[i].problem.find(cases[i].message), std::string::npos) << prepared[i].problem;
  EXPECT_EQ(prepared.back().problem, "");
}

// What generate() does by bart's own defaults: the last token is its forced end.
TEST(Rules, ForceFirstAndLastToken) {
  const Subject subject(golden_case("bart").folder);
  const auto prepared = subject.prepare(job_of(
      {request_of({5, 6, 7}, {{"max_new_tokens", 6}, {"forced_bos_token_id", 44}, {"min_length", 7}})}));
  for (const std::int32_t ranks : {1, 2}) {
    const auto heard = run_well(subject, prepared, {.ranks = ranks});
    const auto& tokens = heard.result.requests.at(0).samples.at(0).tokens;
    ASSERT_EQ(tokens.size(), 6U);
    EXPECT_EQ(tokens.front(), 44);
    EXPECT_EQ(tokens.back(), 2);
  }
}

}  // namespace
}  // namespace diffuse::test

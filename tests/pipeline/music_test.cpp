// Jobs of music through the pipeline: codes are transformers', sound is within 1e-4 of its, and both are the
// same bits however the run is cut and whoever else runs.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "support.hpp"
#include "verify/compare.hpp"

namespace diffuse::test {
namespace {

constexpr std::int64_t kGoldenTokens = 30;

Json wanted(double guidance, std::int64_t tokens = kGoldenTokens) {
  return {{"guidance_scale", guidance}, {"max_new_tokens", tokens}};
}

class Music : public testing::TestWithParam<const char*> {
 public:
  Music() : subject_(golden_case(GetParam()).folder), golden_(subject_.folder) {}

  std::vector<PreparedRequest> prepared(std::vector<Request> requests) const {
    auto all = subject_.prepare(job_of(std::move(requests)));
    for (const auto& request : all) EXPECT_EQ(request.problem, "");
    return all;
  }
  std::vector<PreparedRequest> golden_pair() const {
    return prepared(
        {request_of(golden_.ids("input_ids"), wanted(1)), request_of(golden_.ids("input_ids"), wanted(3))});
  }
  // Texts of all lengths, greedy and drawn, with guidance and without, some too short for the pattern.
  std::vector<PreparedRequest> mixed(std::uint32_t seed) const {
    std::mt19937 random(seed);
    std::vector<Request> requests;
    for (int i = 0; i < 12; ++i) {
      auto generate =
          wanted(1 + i % 3, i % 5 == 2 ? 1 + i % 6 : 1 + static_cast<std::int64_t>(random() % 50));
      if (i % 4 == 1) generate["temperature"] = 0.9;
      if (i % 4 == 2) generate["do_sample"] = true;
      if (i % 8 == 5) generate["top_p"] = 0.8;
      if (i % 6 == 4) generate["n"] = 2;
      const auto length = 1 + static_cast<std::int64_t>(random() % 40);
      requests.push_back(
          request_of(random_ids(random, subject_.model.recipe.encoder->vocab, length), generate));
    }
    return prepared(std::move(requests));
  }

  void expect_golden(const Sample& sample, const std::string& guidance) const {
    EXPECT_EQ(sample.tokens, golden_.ids("codes." + guidance));
    EXPECT_EQ(sample.finish, Finish::length);
    EXPECT_EQ(sample.text, "");
    ASSERT_TRUE(sample.media);
    const auto& codec = *subject_.model.recipe.codec;
    const auto reference = golden_.floats("wave." + guidance);  // [channels, frames]
    EXPECT_EQ(sample.media->kind, MediaKind::sound);
    EXPECT_EQ(sample.media->rate, static_cast<double>(codec.rate));
    ASSERT_EQ(sample.media->channels, reference.rows);
    ASSERT_EQ(sample.media->frames, reference.cols);
    const auto found = sample.media->floats();
    float worst = 0;
    for (std::int64_t channel = 0; channel < reference.rows; ++channel) {
      for (std::int64_t i = 0; i < reference.cols; ++i)
        worst = std::max(worst, std::abs(found[static_cast<std::size_t>(i * reference.rows + channel)] -
                                         reference.row(channel)[i]));
    }
    EXPECT_LE(worst, 1e-4F);
  }

  Subject subject_;
  Golden golden_;
};

TEST_P(Music, IsWhatTransformersMakes) {
  const auto pair = golden_pair();
  for (std::int32_t ranks = 1; ranks <= subject_.model.recipe.depth() + 2; ++ranks) {
    for (const std::int64_t chunk : {1, 256}) {
      Setting setting{.ranks = ranks, .threads = 1 + ranks % 2};
      setting.options.chunk = chunk;
      SCOPED_TRACE(to_text(setting));
      const auto heard = run_well(subject_, pair, setting);
      ASSERT_EQ(heard.result.requests.size(), 2U);
      expect_golden(heard.result.requests[0].samples.at(0), "guidance1");
      expect_golden(heard.result.requests[1].samples.at(0), "guidance3");
      EXPECT_EQ(heard.result.requests[0].prompt_tokens,
                static_cast<std::int64_t>(golden_.ids("input_ids").size()));
      EXPECT_EQ(heard.report.sampled, 2U * kGoldenTokens);
      // The rows of the guide are traced beside those of what it guides.
      EXPECT_EQ(heard.result.requests[0].samples[0].trace.positions, kGoldenTokens);
      EXPECT_EQ(heard.result.requests[1].samples[0].trace.positions, 2 * kGoldenTokens);
    }
  }
}

TEST_P(Music, SplitIsTheWhole) {
  const auto all = mixed(3);
  std::map<Compute, Heard> wholes;
  auto settings = random_settings(17, subject_.model.recipe.depth(), 10);
  for (std::size_t i = 0; i < settings.size(); ++i) {
    auto& setting = settings[i];
    if (setting.options.kv_pages < 100) setting.options.kv_pages += 1;  // a guided one takes 5
    setting.compute = i % 3 == 2 ? Compute::bf16 : Compute::f32;
    auto& whole = wholes[setting.compute];
    if (whole.result.requests.empty()) whole = run_well(subject_, all, {.compute = setting.compute});
    const auto split = run_well(subject_, all, setting);
    EXPECT_EQ(difference(whole.result, split.result), "") << to_text(setting);
    EXPECT_EQ(whole.tensors_hash, split.tensors_hash);
    for (const auto& request : split.result.requests)
      EXPECT_EQ(request.status, Status::done) << request.message;
  }
}

TEST_P(Music, DoesNotDependOnWhoElseRuns) {
  const auto all = mixed(4);
  const auto together = run_well(subject_, all, {.ranks = 2});
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].options.sampling.temperature > 0)
      continue;  // a drawn one's number in the job is part of its draw
    const auto alone = run_well(subject_, {all[i]}, {});
    const auto& there = together.result.requests[i].samples.at(0);
    const auto& here = alone.result.requests[0].samples.at(0);
    EXPECT_EQ(there.tokens, here.tokens) << i;
    EXPECT_EQ(there.media, here.media) << i;
    EXPECT_EQ(there.trace.digests, here.trace.digests) << i;
  }
}

TEST_P(Music, SamplesDifferAndComeAgain) {
  auto generate = wanted(3);
  generate.update({{"n", 3}, {"temperature", 1.5}, {"seed", 7}});
  const auto one = prepared({request_of(golden_.ids("input_ids"), generate)});
  const auto heard = run_well(subject_, one, {.ranks = 2});
  const auto& samples = heard.result.requests[0].samples;
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_NE(samples[0].tokens, samples[1].tokens);
  EXPECT_NE(samples[1].tokens, samples[2].tokens);
  generate["seed"] = 8;
  const auto other = run_well(subject_, prepared({request_of(golden_.ids("input_ids"), generate)}), {});
  EXPECT_NE(other.result.requests[0].samples[0].tokens, samples[0].tokens);
}

TEST_P(Music, StopsAndGoesOn) {
  const auto all = mixed(5);
  const auto whole = run_well(subject_, all, {});
  bool some = false;
  for (const std::int32_t ranks : {1, 3}) {
    for (const std::uint64_t after : {0U, 1U, 30U, 120U}) {
      Setting setting{.ranks = ranks};
      setting.options.max_group = 4;
      const auto stopped = run_well(subject_, all, setting,
                                    {.stop = [after](std::uint64_t tokens) { return tokens >= after; }});
      EXPECT_TRUE(stopped.report.stopped);
      std::map<std::uint64_t, RequestResult> kept;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto& request = stopped.result.requests[i];
        if (request.status == Status::done) kept.emplace(i, request);
        EXPECT_TRUE(request.status == Status::done || request.samples.empty());
      }
      some = some || !kept.empty();
      const auto rest = run_well(subject_, all, setting, {.kept = kept});
      EXPECT_EQ(difference(whole.result, rest.result), "") << ranks << " ranks, stopped after " << after;
    }
  }
  EXPECT_TRUE(some);
}

TEST_P(Music, BrokenWeightsSpoilTheirRequestAlone) {
  const ModelCopy copy(subject_.folder);
  copy.fill_row("decoder.lm_heads.1.weight", 5, std::numeric_limits<float>::quiet_NaN());
  const Subject broken(copy.folder());
  const auto heard = run_well(broken, golden_pair(), {.ranks = 2});
  for (const auto& request : heard.result.requests) {
    EXPECT_EQ(request.status, Status::bad);
    EXPECT_NE(request.message.find("not finite after 0 positions"), std::string::npos) << request.message;
    EXPECT_TRUE(request.samples.empty());
  }
}

TEST_P(Music, ABrokenCodecSpoilsWhoUsesItsCode) {
  const auto fine = run_well(subject_, golden_pair(), {});
  // A code that one answer has in a codebook and the other has not.
  const auto codes_of = [&](std::size_t request, std::int64_t layer) {
    const auto& tokens = fine.result.requests[request].samples[0].tokens;
    const auto frames = static_cast<std::int64_t>(tokens.size()) / subject_.model.recipe.codebooks;
    const auto passes = subject_.model.recipe.codec->passes;
    return std::set<std::int32_t>(tokens.begin() + layer * passes * frames,
                                  tokens.begin() + (layer + 1) * passes * frames);
  };
  const ModelCopy copy(subject_.folder);
  std::int32_t code = -1;
  const auto layers = static_cast<std::int64_t>(subject_.model.recipe.codec->codebooks.size());
  for (std::int64_t layer = 0; layer < layers && code < 0; ++layer) {
    for (const auto other : codes_of(1, layer))
      if (!codes_of(0, layer).contains(other)) code = other;
    if (code >= 0)
      copy.fill_row(subject_.model.recipe.codec->codebooks[static_cast<std::size_t>(layer)], code,
                    std::numeric_limits<float>::infinity());
  }
  ASSERT_GE(code, 0);
  const Subject broken(copy.folder());
  const auto heard = run_well(broken, golden_pair(), {.ranks = 2});
  EXPECT_EQ(heard.result.requests[0].status, Status::done);
  EXPECT_EQ(heard.result.requests[0].samples.at(0).media, fine.result.requests[0].samples[0].media);
  EXPECT_EQ(heard.result.requests[1].status, Status::bad);
  EXPECT_NE(heard.result.requests[1].message.find("samples are not finite"), std::string::npos);
}

struct BadMusic {
  Json generate;
  const char* message;
};

TEST_P(Music, WhatCannotBeAskedIsTold) {
  const auto vocab = static_cast<std::int32_t>(subject_.model.recipe.encoder->vocab);
  const std::vector<BadMusic> asked = {
      {{{"num_beams", 2}}, "'num_beams' is over 1, and codes of sound have no beam search"},
      {{{"num_beams", 2}, {"temperature", 1}}, "'num_beams' is over 1"},
      {{{"stop", "x"}}, "'stop' is of text"},
      {{{"logprobs", 2}}, "'logprobs' is of text"},
      {{{"repetition_penalty", 1.2}}, "'repetition_penalty' is of text"},
      {{{"forced_bos_token_id", 3}}, "'forced_bos_token_id' is of text"},
      {{{"max_new_tokens", 0}}, "'max_new_tokens' is 0"},
      {{{"do_sample", false}, {"temperature", 1}}, "'do_sample' and 'temperature' contradict"},
      {{{"guidance_scal", 3}}, "the nearest one is 'guidance_scale'"},
  };
  std::vector<Request> requests;
  for (const auto& bad : asked) requests.push_back(request_of({3, 4}, bad.generate));
  auto prepared = subject_.prepare(job_of(std::move(requests)));
  for (std::size_t i = 0; i < asked.size(); ++i)
    EXPECT_NE(prepared[i].problem.find(asked[i].message), std::string::npos) << prepared[i].problem;

  Request sung = request_of({3, 4}, wanted(1));
  sung.audio = Sound{{0.5F}, 16000};
  Request text = request_of({});
  text.input = Prompt{"a calm piano"};
  prepared =
      subject_.prepare(job_of({request_of({}, wanted(1)), request_of({vocab}, wanted(1)), sung, text}));
  const std::vector<std::string> messages = {"the encoder has nothing to read",
                                             "the token id " + std::to_string(vocab), "this model reads none",
                                             "neither tokenizer.json nor a sentencepiece model"};
  for (std::size_t i = 0; i < messages.size(); ++i)
    EXPECT_NE(prepared[i].problem.find(messages[i]), std::string::npos) << prepared[i].problem;
  // Cut to what the stack has room for.
  const auto long_one = prepare(job_of({request_of({3, vocab - 1}, wanted(3, 1000))}), subject_.text,
                                limits_of(subject_.model.recipe, 1 << 20));
  EXPECT_EQ(long_one[0].problem, "");
  EXPECT_EQ(long_one[0].max_new_tokens, subject_.model.recipe.max_positions);

  auto tight = limits_of(subject_.model.recipe, 3 * kPageTokens);
  const auto job = job_of({request_of({3, 4}, wanted(1)), request_of({3, 4}, wanted(3))});
  prepared = prepare(job, subject_.text, tight);
  EXPECT_EQ(prepared[0].problem, "");
  EXPECT_NE(prepared[1].problem.find("raise --kv-memory"), std::string::npos) << prepared[1].problem;
}

INSTANTIATE_TEST_SUITE_P(, Music, testing::Values("musicgen", "musicgen-stereo"), [](const auto& each) {
  std::string name = each.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace diffuse::test

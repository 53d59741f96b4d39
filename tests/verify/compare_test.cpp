// What the comparer says, case by case.

#include "verify/compare.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>

#include "core/error.hpp"

namespace diffuse {
namespace {

using testing::HasSubstr;

RequestResult answered(const std::string& id) {
  RequestResult request;
  request.id = id;
  request.status = Status::done;
  request.prompt_tokens = 2;
  Sample sample;
  sample.tokens = {10, 11, 12};
  sample.text = "one two";
  sample.finish = Finish::length;
  sample.trace = {.layers = 3, .positions = 4, .digests = std::vector<std::uint64_t>(12, 5)};
  request.samples = {sample};
  return request;
}

RequestResult bad(const std::string& id, const std::string& message) {
  RequestResult request;
  request.id = id;
  request.status = Status::bad;
  request.message = message;
  return request;
}

Result result_of(std::vector<RequestResult> requests) {
  Result result;
  result.requests = std::move(requests);
  result.provenance = {{"job_sha256", "j"},
                       {"config_sha256", "c"},
                       {"tensors_sha256", "t"},
                       {"compute", "f32"},
                       {"simd", "AVX2"}};
  return result;
}

// What is found when `change` is done to the only sample of the only request.
std::vector<Difference> found_after(const std::function<void(Sample&)>& change) {
  const auto whole = result_of({answered("a")});
  auto split = whole;
  change(split.requests[0].samples[0]);
  return compare(whole, split).differences;
}

void expect_bad_data(const std::function<void()>& action, const std::string& part) {
  try {
    action();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_data);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(Compare, EqualResultsAreIdenticalWhateverTheirTiming) {
  const auto whole = result_of({answered("a"), answered("b")});
  auto split = whole;
  split.requests[1].seconds = 7;
  split.timing = {{"decode", 3}};
  split.provenance["command"] = "another";
  const auto comparison = compare(whole, split);
  EXPECT_TRUE(comparison.identical());
  EXPECT_TRUE(comparison.notes.empty());
  EXPECT_EQ(comparison.compared,
            (Counts{.requests = 2, .answered = 2, .samples = 2, .tokens = 6, .digests = 24}));
  EXPECT_EQ(
      verdict(comparison),
      "identical: 2 requests (2 answered), 2 samples, 6 tokens and 24 digests are the same, bit for bit");
}

TEST(Compare, NoRequestsAreNoProof) {
  const auto comparison = compare(result_of({}), result_of({}));
  EXPECT_TRUE(comparison.identical());
  EXPECT_THAT(verdict(comparison), HasSubstr("no request is answered in both"));
}

TEST(Compare, BadInBothWithTheSameMessageIsEqualAndSaid) {
  const auto whole = result_of({bad("a", "too long")});
  const auto same = compare(whole, whole);
  EXPECT_TRUE(same.identical());
  EXPECT_EQ(same.notes.size(), 1U);
  EXPECT_EQ(same.compared.answered, 0U);
  EXPECT_THAT(verdict(same), HasSubstr("no request is answered in both"));

  const auto other = compare(whole, result_of({bad("a", "too short")}));
  ASSERT_EQ(other.differences.size(), 1U);
  EXPECT_EQ(other.differences[0].what, What::message);
  EXPECT_TRUE(other.notes.empty());
}

TEST(Compare, AStatusThatDiffersNamesBothAndTheReason) {
  const auto found = compare(result_of({answered("a")}), result_of({bad("a", "too long")}));
  ASSERT_EQ(found.differences.size(), 1U);
  EXPECT_EQ(found.compared.answered, 0U);
  EXPECT_EQ(sentence(found.differences[0]),
            "request \"a\": status differs: done in the whole result, bad: \"too long\" in the split one");
}

TEST(Compare, UnfinishedInBothIsSaid) {
  auto request = answered("a");
  request.status = Status::unfinished;
  const auto comparison = compare(result_of({request}), result_of({request}));
  EXPECT_TRUE(comparison.identical());
  ASSERT_EQ(comparison.notes.size(), 1U);
  EXPECT_THAT(comparison.notes[0], HasSubstr("unfinished in both"));
  EXPECT_THAT(verdict(comparison), HasSubstr("no request is answered in both"));
}

TEST(Compare, ATraceOnOneSideIsADifference) {
  const auto found = found_after([](Sample& sample) { sample.trace = {}; });
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(
      sentence(found[0]),
      "request \"a\", sample 0: missing_trace differs: 3 layers x 4 positions in the whole result, none in "
      "the split one");
}

TEST(Compare, NoTracesAtAllAreSaid) {
  auto request = answered("a");
  request.samples[0].trace = {};
  const auto comparison = compare(result_of({request}), result_of({request}));
  EXPECT_TRUE(comparison.identical());
  ASSERT_EQ(comparison.notes.size(), 1U);
  EXPECT_THAT(comparison.notes[0], HasSubstr("nothing is known about the layers"));
}

TEST(Compare, TracesOfOtherShapesAreComparedWhereBothHaveThem) {
  const auto whole = result_of({answered("a")});
  auto split = whole;
  split.requests[0].samples[0].trace = {.layers = 3, .positions = 2, .digests = {5, 5, 5, 6, 5, 5}};
  const auto comparison = compare(whole, split);
  EXPECT_EQ(comparison.compared.digests, 6U);
  ASSERT_EQ(comparison.differences.size(), 2U);
  EXPECT_EQ(comparison.differences[0].what, What::digest);
  EXPECT_EQ(comparison.differences[0].position, 1);
  EXPECT_EQ(comparison.differences[0].layer, 1);
  EXPECT_EQ(comparison.differences[1].what, What::trace_shape);
}

TEST(Compare, TheEarliestPositionComesBeforeTheLowestLayer) {
  const auto found = found_after([](Sample& sample) {
    sample.trace.digests[0 * 4 + 3] = 6;
    sample.trace.digests[1 * 4 + 2] = 7;
    sample.trace.digests[2 * 4 + 2] = 8;
  });
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(sentence(found[0]),
            "request \"a\", sample 0: digest differs first at position 2, layer 1 (after block 0): "
            "0x0000000000000005 in the whole result, 0x0000000000000007 in the split one (3 differ)");
}

// Token 1 is drawn from what position 2 (a prompt of two) left, and is fed back as position 3.
TEST(Compare, ACauseStandsBeforeItsConsequence) {
  const auto layer_first = found_after([](Sample& sample) {
    sample.tokens[1] = 99;
    sample.trace.digests[2 * 4 + 2] = 6;
  });
  ASSERT_EQ(layer_first.size(), 2U);
  EXPECT_EQ(layer_first[0].what, What::digest);
  EXPECT_EQ(layer_first[1].what, What::tokens);

  const auto token_first = found_after([](Sample& sample) {
    sample.tokens[1] = 99;
    sample.text = "one";
    sample.trace.digests[0 * 4 + 3] = 6;
  });
  ASSERT_EQ(token_first.size(), 3U);
  EXPECT_EQ(token_first[0].what, What::tokens);
  EXPECT_EQ(token_first[1].what, What::digest);
  EXPECT_EQ(token_first[2].what, What::text);
}

TEST(Compare, LogprobsStandBetweenTheLayersAndTheToken) {
  auto request = answered("a");
  request.samples[0].logprobs.chosen = {-1, -2, -3};
  const auto whole = result_of({request});
  auto split = whole;
  auto& sample = split.requests[0].samples[0];
  sample.tokens[1] = 99;
  sample.logprobs.chosen[1] = -2.5F;
  sample.trace.digests[2 * 4 + 2] = 6;
  const auto found = compare(whole, split).differences;
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].what, What::digest);
  EXPECT_EQ(found[1].what, What::logprobs);
  EXPECT_EQ(found[2].what, What::tokens);
  EXPECT_EQ(
      sentence(found[1]),
      "request \"a\", sample 0: logprobs differs first at position 1: -2 [0xc0000000] in the whole result, "
      "-2.5 [0xc0200000] in the split one");
}

TEST(Compare, LogprobsAreComparedBitForBit) {
  const auto with = [](float value) {
    auto request = answered("a");
    request.samples[0].logprobs.chosen = {value};
    return result_of({request});
  };
  const auto nan = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  EXPECT_TRUE(compare(with(nan(0x7fc00000U)), with(nan(0x7fc00000U))).identical());
  EXPECT_FALSE(compare(with(nan(0x7fc00000U)), with(nan(0x7fc00001U))).identical());
  EXPECT_FALSE(compare(with(0.0F), with(-0.0F)).identical());
}

TEST(Compare, ATokenWithoutLogprobsIsNamedOnce) {
  auto request = answered("a");
  request.samples[0].logprobs = {.chosen = {-1, -2}, .top = 1, .top_ids = {1, 2}, .top_values = {-1, -2}};
  const auto whole = result_of({request});
  auto split = whole;
  split.requests[0].samples[0].logprobs = {.chosen = {-1}, .top = 1, .top_ids = {1}, .top_values = {-1}};
  const auto found = compare(whole, split).differences;
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].what, What::logprobs);
  EXPECT_EQ(found[0].position, 1);
  EXPECT_EQ(found[0].split, "none (there are 1)");
}

TEST(Compare, BestLogprobsNameTheirToken) {
  auto request = answered("a");
  request.samples[0].logprobs = {
      .chosen = {-1, -2}, .top = 2, .top_ids = {1, 2, 3, 4}, .top_values = {-1, -2, -3, -4}};
  const auto whole = result_of({request});
  auto split = whole;
  split.requests[0].samples[0].logprobs.top_values[3] = -5;
  const auto found = compare(whole, split).differences;
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(sentence(found[0]),
            "request \"a\", sample 0: top_logprobs differs first at position 1: 4 with -4 [0xc0800000] in "
            "the whole "
            "result, 4 with -5 [0xc0a00000] in the split one");
}

TEST(Compare, TextIsNamedAtTheStartOfTheCharacter) {
  auto request = answered("a");
  request.samples[0].text = "caf\xc3\xa9 noir";
  const auto whole = result_of({request});
  auto split = whole;
  split.requests[0].samples[0].text = "caf\xc3\xa8 noir";
  const auto found = compare(whole, split).differences;
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].position, 3);
  EXPECT_EQ(found[0].whole, "\"\xc3\xa9 noir\"");
  EXPECT_EQ(found[0].split, "\"\xc3\xa8 noir\"");
}

TEST(Compare, LongTextIsCutAtACharacter) {
  const auto found = found_after([](Sample& sample) {
    sample.text = "x";
    for (int i = 0; i < 40; ++i) sample.text += "\xc3\xa9";
  });
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].position, 0);
  std::string expected = "\"x";
  for (int i = 0; i < 15; ++i) expected += "\xc3\xa9";
  EXPECT_EQ(found[0].split, expected + "\"...");
}

TEST(Compare, AStrangersTextCannotSteerATerminal) {
  auto request = answered("a\x1b[2J\x7f\xff\n");
  const auto found = compare(result_of({request}), result_of({}));
  ASSERT_EQ(found.differences.size(), 1U);
  EXPECT_EQ(sentence(found.differences[0]),
            "request \"a\\u001b[2J\\u007f\xef\xbf\xbd\\n\" is missing from the split result");
}

TEST(Compare, AMissingRequestDoesNotMakeTheLaterOnesDiffer) {
  const auto found = compare(result_of({answered("a"), answered("b"), answered("c"), answered("d")}),
                             result_of({answered("a"), answered("d"), answered("c"), answered("e")}));
  ASSERT_EQ(found.differences.size(), 3U);
  EXPECT_EQ(found.differences[0].what, What::missing_request);
  EXPECT_EQ(found.differences[0].request, "b");
  EXPECT_EQ(found.differences[1].what, What::extra_request);
  EXPECT_EQ(found.differences[1].request, "e");
  EXPECT_EQ(found.differences[2].what, What::order);
  EXPECT_EQ(found.differences[2].request, "c");
  EXPECT_EQ(found.differences[2].position, 1);
  EXPECT_EQ(found.compared.requests, 3U);
}

TEST(Compare, RequestsOfOneIdArePairedInOrder) {
  auto second = answered("a");
  second.samples[0].text = "three";
  const auto whole = result_of({answered("a"), second});
  EXPECT_TRUE(compare(whole, whole).identical());
  EXPECT_EQ(compare(whole, result_of({second, answered("a")})).differences.size(), 2U);
  EXPECT_EQ(compare(whole, result_of({answered("a")})).differences.size(), 1U);
}

TEST(Compare, TheHashOfIdsIsNamedOnlyWhenNothingElseExplainsIt) {
  const auto whole = result_of({answered("a")});
  auto split = whole;
  split.requests[0].sha256 = "ff";
  auto found = compare(whole, split).differences;
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].what, What::sha256);

  const auto explained_by = [&](What what, const std::function<void(RequestResult&)>& change) {
    auto other = split;
    change(other.requests[0]);
    found = compare(whole, other).differences;
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].what, what);
  };
  explained_by(What::tokens, [](RequestResult& request) { request.samples[0].tokens[0] = 99; });
  explained_by(What::sample_count, [](RequestResult& request) { request.samples.push_back(Sample{}); });
  explained_by(What::prompt_tokens, [](RequestResult& request) { ++request.prompt_tokens; });
}

TEST(Compare, OtherJobsOrModelsAreRefused) {
  const auto whole = result_of({answered("a")});
  for (const std::string key : {"job_sha256", "config_sha256", "tensors_sha256"}) {
    auto split = whole;
    split.provenance[key] = "x";
    expect_bad_data([&] { compare(whole, split); }, "these two results answer different jobs: " + key +
                                                        " is \"" + key[0] +
                                                        "\" in the whole result and \"x\" in the split one");
  }
}

TEST(Compare, HashesThatAreNotRecordedAreSaid) {
  const auto whole = result_of({answered("a")});
  auto split = whole;
  split.provenance.erase("job_sha256");
  split.provenance["tensors_sha256"] = "";
  EXPECT_EQ(compare(whole, split).notes,
            (std::vector<std::string>{
                "the split result does not record job_sha256, so that it is the same is not known",
                "the split result does not record tensors_sha256, so that it is the same is not known"}));
  EXPECT_THAT(compare(split, whole).notes[0], HasSubstr("the whole result does not record job_sha256"));
  EXPECT_THAT(compare(split, split).notes[0], HasSubstr("the two results do not record job_sha256"));
  split.provenance = nullptr;
  EXPECT_EQ(compare(whole, split).notes.size(), 5U);
}

TEST(Compare, ComputeModeAndSimdTargetExplainADifference) {
  const auto whole = result_of({answered("a")});
  auto split = whole;
  split.provenance["compute"] = "bf16";
  split.provenance["simd"] = "AVX3";
  const auto comparison = compare(whole, split);
  EXPECT_TRUE(comparison.identical());
  ASSERT_EQ(comparison.notes.size(), 2U);
  EXPECT_THAT(comparison.notes[0], HasSubstr("compute differs: \"f32\" in the whole result, \"bf16\""));
  EXPECT_THAT(comparison.notes[1], HasSubstr("simd differs: \"AVX2\" in the whole result, \"AVX3\""));
}

TEST(Compare, ArraysThatDoNotFitTheirShapeAreRefused) {
  const auto whole = result_of({answered("a")});
  const auto refuse = [&](const std::function<void(Sample&)>& damage, const std::string& part) {
    auto damaged = whole;
    damage(damaged.requests[0].samples[0]);
    expect_bad_data([&] { compare(whole, damaged); }, part);
    expect_bad_data([&] { compare(damaged, whole); }, part);
  };
  const std::string trace = "request \"a\", sample 0: the trace holds ";
  refuse([](Sample& sample) { sample.trace.digests.pop_back(); }, trace + "11 digests");
  refuse([](Sample& sample) { sample.trace.positions = 3; }, trace + "12 digests");
  refuse([](Sample& sample) { sample.trace.layers = 0; }, trace + "12 digests");
  refuse([](Sample& sample) { sample.trace.layers = -3; }, trace + "12 digests");
  refuse([](Sample& sample) { sample.trace = {.layers = -3, .positions = 0, .digests = {}}; },
         trace + "0 digests");
  refuse([](Sample& sample) { sample.trace = {.layers = 0, .positions = -1, .digests = {}}; },
         trace + "0 digests");
  refuse([](Sample& sample) { sample.trace = {.layers = -3, .positions = -4, .digests = {1}}; },
         trace + "1 digests");
  // 2^62 layers x 4 positions wraps to nothing in 64 bits.
  refuse(
      [](Sample& sample) { sample.trace = {.layers = std::int64_t{1} << 62, .positions = 4, .digests = {}}; },
      trace + "0 digests");
  refuse(
      [](Sample& sample) { sample.logprobs = {.chosen = {1}, .top = 1, .top_ids = {}, .top_values = {1}}; },
      "log-probabilities");
  refuse(
      [](Sample& sample) { sample.logprobs = {.chosen = {1}, .top = 1, .top_ids = {1}, .top_values = {}}; },
      "log-probabilities");
  refuse([](Sample& sample) { sample.logprobs = {.chosen = {}, .top = -1, .top_ids = {}, .top_values = {}}; },
         "log-probabilities");
}

TEST(Compare, JsonHoldsEveryDifference) {
  const auto whole = result_of({answered("a")});
  auto split = whole;
  split.requests[0].samples[0].trace.digests[5] = 6;
  split.requests[0].samples[0].tokens[2] = 1;
  const auto comparison = compare(whole, split);
  const Json json = to_json(comparison);
  EXPECT_EQ(json["identical"], false);
  EXPECT_EQ(counts_from_json(json["compared"], "compared"), comparison.compared);
  ASSERT_EQ(json["differences"].size(), 2U);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(difference_from_json(json["differences"][i], "it"), comparison.differences[i]);
  EXPECT_EQ(json["differences"][0]["what"], "digest");
  EXPECT_EQ(json["differences"][0]["layer"], 1);
  EXPECT_EQ(json["differences"][1]["layer"], nullptr);
  EXPECT_THAT(verdict(comparison),
              HasSubstr("different: 2 differences, the first: request \"a\", sample 0: digest"));
}

// Of a result and of the same with another value in its first sample.
template <class Value>
Difference the_difference(const Result& whole, Value Sample::*place, const Value& other, What what) {
  auto split = whole;
  split.requests[0].samples[0].*place = other;
  const auto differences = compare(whole, split).differences;
  EXPECT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences.at(0).what, what);
  return differences.at(0);
}

TEST(Compare, LatentsAreComparedByTheirBits) {
  auto whole = result_of({answered("a")});
  auto& latent = whole.requests[0].samples[0].latent;
  latent = LatentArray{.channels = 1, .frames = 1, .height = 1, .width = 2, .values = {0.5F, 0}};
  EXPECT_EQ(compare(whole, whole).compared.media, 2U);
  const auto against = [&](const std::optional<LatentArray>& other) {
    return the_difference(whole, &Sample::latent, other, What::latent);
  };
  auto other = *latent;
  other.values[1] = -0.0F;
  EXPECT_EQ(against(other).position, 1);
  EXPECT_EQ(against(std::nullopt).split, "none");
  std::swap(other.height, other.width);
  EXPECT_EQ(against(other).split, "latent, 1 x 1 x 2 x 1");
  other.values.pop_back();
  auto split = whole;
  split.requests[0].samples[0].latent = other;
  expect_bad_data([&] { compare(whole, split); }, "a latent with other elements");
}

TEST(Compare, MediaAreComparedByTheirBits) {
  auto whole = result_of({answered("a")});
  auto& sound = whole.requests[0].samples[0].media;
  sound = sound_of(std::vector<float>{0, 1, 0.5F, -1}, 2, 8000);
  const auto same = compare(whole, whole);
  EXPECT_TRUE(same.identical());
  EXPECT_EQ(same.compared.media, 4U);
  EXPECT_THAT(verdict(same), HasSubstr("12 digests and 4 elements of media are the same, bit for bit"));
  const auto against = [&](const std::optional<MediaArray>& other) {
    return the_difference(whole, &Sample::media, other, What::media);
  };
  const auto zeros = against(sound_of(std::vector<float>{-0.0F, 1, 0.5F, -1.5F}, 2, 8000));
  EXPECT_EQ(zeros.position, 0);
  EXPECT_EQ(zeros.count, 2U);
  EXPECT_EQ(against(std::nullopt).split, "none");
  EXPECT_EQ(against(sound_of(std::vector<float>{0, 1, 0.5F, -1}, 1, 8000)).split,
            "sound of f32 4 x 1 x 1 x 1, 8000 a second");
  against(sound_of(std::vector<float>{0, 1, 0.5F, -1}, 2, 8001));
  sound = MediaArray{.kind = MediaKind::picture,
                     .element = MediaElement::u8,
                     .width = 3,
                     .bytes = std::vector<std::byte>(3)};
  auto other = *sound;
  other.bytes[1] = std::byte{200};
  const auto pixel = against(other);
  EXPECT_EQ(pixel.position, 1);
  EXPECT_EQ(pixel.split, "200");
  other.bytes.pop_back();
  auto split = whole;
  split.requests[0].samples[0].media = other;
  expect_bad_data([&] { compare(whole, split); }, "other elements than its sizes say");
}

TEST(Compare, EveryKindOfDifferenceHasItsName) {
  for (int i = 0; i <= static_cast<int>(What::sha256); ++i) {
    const auto what = static_cast<What>(i);
    EXPECT_EQ(what_from_name(name_of(what)), what);
  }
  EXPECT_EQ(what_from_name("?"), std::nullopt);
  Json unknown = to_json(Difference{});
  unknown["what"] = "mood";
  expect_bad_data([&] { difference_from_json(unknown, "it"); }, "it.what: not a known kind of difference");
}

}  // namespace
}  // namespace diffuse

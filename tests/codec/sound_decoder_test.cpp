// Codes -> samples against transformers' EncodecModel, and the same bits from any number of threads.

#include "codec/sound_decoder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "golden.hpp"

namespace diffuse::codec {
namespace {

using test::Golden;
using test::GoldenCase;
using test::GoldenKind;
using test::TestModel;
using Codes = std::vector<std::vector<std::int32_t>>;

Codes codes_of(const Golden& golden, const SoundCodec& codec, const std::string& name) {
  const auto all = golden.ids(name);
  const auto books = codec.codebooks.size() * static_cast<std::size_t>(codec.passes);
  const auto each = static_cast<std::ptrdiff_t>(all.size() / books);
  Codes codes;
  for (auto at = all.begin(); at != all.end(); at += each) codes.emplace_back(at, at + each);
  return codes;
}

Waveform decode(const TestModel& model, const Codes& codes, int threads = 1, const std::string& simd = {}) {
  const auto backend = make_cpu_backend({.threads = threads, .compute = Compute::f32, .simd = simd});
  return SoundDecoder(*model.recipe.codec, model.checkpoint, *backend).decode(codes);
}

class GoldenSound : public testing::TestWithParam<GoldenCase> {
 public:
  GoldenSound() : model_(GetParam().folder), golden_(GetParam().folder), codec_(*model_.recipe.codec) {}
  TestModel model_;
  Golden golden_;
  const SoundCodec& codec_;
};

void expect_near(const Waveform& wave, const test::GoldenFloats& reference, const std::string& what) {
  ASSERT_EQ(wave.channels, reference.rows) << what;
  ASSERT_EQ(static_cast<std::int64_t>(wave.samples.size()), reference.rows * reference.cols) << what;
  double worst = 0;
  for (std::int64_t channel = 0; channel < reference.rows; ++channel) {
    for (std::int64_t i = 0; i < reference.cols; ++i) {
      const float found = wave.samples[static_cast<std::size_t>(i * wave.channels + channel)];
      worst = std::max(worst, std::abs(static_cast<double>(found - reference.row(channel)[i])));
    }
  }
  EXPECT_LE(worst, 1e-4) << what;
}

TEST_P(GoldenSound, IsWhatTransformersMakes) {
  for (const auto& simd : cpu_simd_targets()) {
    SCOPED_TRACE(simd);
    for (const std::string guidance : {"1", "3"}) {
      const auto wave = decode(model_, codes_of(golden_, codec_, "codes.guidance" + guidance), 1, simd);
      EXPECT_EQ(wave.rate, codec_.rate);
      expect_near(wave, golden_.floats("wave.guidance" + guidance), "guidance " + guidance);
    }
    for (const std::size_t frames : {1, 2, 5}) {
      const auto name = "wave.frames" + std::to_string(frames);
      if (!golden_.has(name)) continue;  // cases as golden.py makes them have none
      auto codes = codes_of(golden_, codec_, "codes.guidance3");
      for (auto& book : codes) book.resize(frames);
      expect_near(decode(model_, codes, 1, simd), golden_.floats(name), name);
    }
  }
}

TEST_P(GoldenSound, IsTheSameOfAnyNumberOfThreads) {
  const auto codes = codes_of(golden_, codec_, "codes.guidance3");
  const auto expected = decode(model_, codes);
  for (const int threads : {2, 3, 4}) EXPECT_EQ(decode(model_, codes, threads).samples, expected.samples);
}

// Frames behind a row change nothing before it where the codec is causal; pieces of rows, nothing at all.
TEST_P(GoldenSound, OfManyFramesIsThatOfFewWhereItIsCausal) {
  Codes many(codec_.codebooks.size() * static_cast<std::size_t>(codec_.passes));
  for (std::size_t book = 0; book < many.size(); ++book) {
    for (std::int32_t i = 0; i < 3000; ++i)
      many[book].push_back((i * 13 + static_cast<std::int32_t>(book) * 7) %
                           static_cast<std::int32_t>(codec_.codebook_size));
  }
  auto few = many;
  for (auto& book : few) book.resize(40);
  const auto all = decode(model_, many);
  EXPECT_EQ(all.samples.size(), static_cast<std::size_t>(3000 * codec_.samples_per_frame() * all.channels));
  const bool looks_ahead = std::any_of(codec_.stages.begin(), codec_.stages.end(),
                                       [](const CodecStage& stage) { return stage.trim_left > 0; });
  if (!codec_.causal || looks_ahead) return;
  const auto start = decode(model_, few).samples;
  EXPECT_TRUE(std::equal(start.begin(), start.end(), all.samples.begin()));
}

INSTANTIATE_TEST_SUITE_P(, GoldenSound, testing::ValuesIn(test::golden_cases(GoldenKind::walks_codebooks)),
                         [](const auto& each) { return each.param.name; });

TEST(SoundDecoder, ReadsItsOwnTensorsAlone) {
  const TestModel model(test::golden_case("musicgen").folder);
  const auto backend = make_cpu_backend({.threads = 1, .compute = Compute::f32, .simd = {}});
  const SoundDecoder decoder(*model.recipe.codec, model.checkpoint, *backend);
  std::uint64_t bytes = 0;
  for (const auto& name : tensors_of(*model.recipe.codec)) bytes += model.checkpoint.bytes_of(name);
  EXPECT_EQ(decoder.weights().bytes_read, bytes);
  EXPECT_EQ(decoder.weights().hashes.size(), tensors_of(*model.recipe.codec).size());
}

TEST(SoundDecoder, RefusesWhatAreNoCodes) {
  const TestModel model(test::golden_case("musicgen").folder);
  const auto message = [&](const Codes& codes) -> std::string {
    try {
      decode(model, codes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_data);
      return error.what();
    }
    return "nothing";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message({{1}, {2}, {3}}), HasSubstr("3 codebooks and the codec has 4"));
  EXPECT_THAT(message({{1}, {2}, {3}, {}}), HasSubstr("not equally many"));
  EXPECT_THAT(message({{}, {}, {}, {}}), HasSubstr("no codes"));
  EXPECT_THAT(message({{1}, {2}, {3}, {64}}), HasSubstr("the code 64 is not in a codebook of 64"));
  EXPECT_THAT(message({{1}, {2}, {-1}, {3}}), HasSubstr("the code -1"));
  EXPECT_EQ(message({{1}, {2}, {0}, {63}}), "nothing");
}

TEST(SoundDecoder, WantsABackendOfTheHostInF32) {
  const TestModel model(test::golden_case("musicgen").folder);
  const auto backend = make_cpu_backend({.threads = 1, .compute = Compute::bf16, .simd = {}});
  EXPECT_THROW(SoundDecoder(*model.recipe.codec, model.checkpoint, *backend), Error);
}

}  // namespace
}  // namespace diffuse::codec

// Latents -> frames against diffusers' AutoencoderKLWan, and the same bits from any number of threads.

#include "codec/video_decoder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "arrays.hpp"
#include "core/error.hpp"
#include "video_support.hpp"

namespace diffuse::codec {
namespace {

using test::Arrays;
using test::TestVideoCodec;
using Floats = std::vector<float>;
const std::filesystem::path kData = DIFFUSE_TEST_DATA;

struct Run {
  std::string name;
  std::filesystem::path vae, golden;
  std::string latents, result;  // arrays
};

void PrintTo(const Run& run, std::ostream* out) {
  *out << run.name;
}

// DIFFUSE_GOLDEN_EXTRA may name more folders of cases (with ':' between them).
std::vector<Run> runs() {
  std::vector<std::filesystem::path> roots = {kData / "refinement"};
  if (const char* extra = std::getenv("DIFFUSE_GOLDEN_EXTRA")) {
    std::stringstream list(extra);
    for (std::string root; std::getline(list, root, ':');) roots.emplace_back(root);
  }
  std::vector<Run> all = {{"demo", kData.parent_path().parent_path() / "demo/wan/vae",
                           kData / "refinement/demo/golden.safetensors", "latents.20", "frames"}};
  for (std::size_t i = 0; i < roots.size(); ++i) {
    for (const std::string name : {"wan", "wan-quiet"}) {
      const auto folder = roots[i] / name;
      if (std::filesystem::exists(folder / "golden.safetensors"))
        all.push_back({(name == "wan" ? "wan" : "quiet") + (i == 0 ? "" : std::to_string(i)), folder / "vae",
                       folder / "golden.safetensors", "latents.6", "result"});
    }
  }
  return all;
}

LatentSize size_of(const test::FloatArray& latents) {
  return {static_cast<std::int64_t>(latents.shape[2]), static_cast<std::int64_t>(latents.shape[3]),
          static_cast<std::int64_t>(latents.shape[4])};
}

Floats decode(const TestVideoCodec& model, const Floats& latents, const LatentSize& size, int threads = 1,
              const std::string& simd = {}) {
  const auto backend = make_cpu_backend({.threads = threads, .compute = Compute::f32, .simd = simd});
  Floats pixels;
  VideoDecoder(model.codec, model.checkpoint, *backend)
      .decode(latents, size,
              [&](std::span<const float> frame) { pixels.insert(pixels.end(), frame.begin(), frame.end()); });
  return pixels;
}

class GoldenVideo : public testing::TestWithParam<Run> {
 public:
  GoldenVideo() : model_(GetParam().vae), golden_(GetParam().golden) {}
  TestVideoCodec model_;
  Arrays golden_;
};

TEST_P(GoldenVideo, IsWhatDiffusersMakes) {
  const auto latents = golden_.floats(GetParam().latents);
  const auto expected = golden_.floats(GetParam().result).values;  // [frames, height, width, 3] in [0, 1]
  for (const auto& simd : cpu_simd_targets()) {
    SCOPED_TRACE(simd);
    const auto found = decode(model_, latents.values, size_of(latents), 1, simd);
    ASSERT_EQ(found.size(), expected.size());
    double worst = 0;
    for (std::size_t i = 0; i < found.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i])));
    EXPECT_LE(worst, 2e-4) << "of 1; a step of a byte is 4e-3";
  }
}

TEST_P(GoldenVideo, IsItsBytesWhereTheyAreAsked) {
  const auto latents = golden_.floats(GetParam().latents);
  const auto backend = make_cpu_backend({.threads = 2, .compute = Compute::f32, .simd = {}});
  VideoDecoder decoder(model_.codec, model_.checkpoint, *backend);
  const auto frames = decoder.decode(latents.values, size_of(latents));
  const auto& shape = golden_.floats(GetParam().result).shape;
  EXPECT_EQ(frames.width, static_cast<std::int64_t>(shape[shape.size() - 2]));
  EXPECT_EQ(frames.height, static_cast<std::int64_t>(shape[shape.size() - 3]));
  EXPECT_EQ(frames.count, static_cast<std::int64_t>(shape[shape.size() - 4]));
  EXPECT_EQ(frames.count, model_.codec.frames_of(size_of(latents).frames));
  const auto values = decode(model_, latents.values, size_of(latents));
  ASSERT_EQ(frames.pixels.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(frames.pixels[i], static_cast<int>(std::nearbyint(values[i] * 255))) << i;
  // A decoder keeps nothing of the video before.
  EXPECT_EQ(decoder.decode(latents.values, size_of(latents)).pixels, frames.pixels);
}

TEST_P(GoldenVideo, IsTheSameOfAnyNumberOfThreads) {
  const auto latents = golden_.floats(GetParam().latents);
  const auto expected = decode(model_, latents.values, size_of(latents));
  for (const int threads : {2, 3})
    EXPECT_EQ(decode(model_, latents.values, size_of(latents), threads), expected);
}

// Frames behind one change nothing in it.
TEST_P(GoldenVideo, OfFewLatentFramesIsTheStartOfThatOfMany) {
  const auto latents = golden_.floats(GetParam().latents);
  const auto size = size_of(latents);
  const auto all = decode(model_, latents.values, size);
  const auto channels = static_cast<std::size_t>(model_.codec.latent_channels);
  const auto picture = static_cast<std::size_t>(size.height * size.width);
  Floats first;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const auto from = latents.values.begin() + static_cast<std::ptrdiff_t>(channel * picture) * size.frames;
    first.insert(first.end(), from, from + static_cast<std::ptrdiff_t>(picture));
  }
  const auto one = decode(model_, first, {1, size.height, size.width});
  ASSERT_EQ(one.size() * static_cast<std::size_t>(model_.codec.frames_of(size.frames)), all.size());
  EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin()));
}

TEST_P(GoldenVideo, TakesTheMemoryThatWasSaidOfAnyNumberOfFrames) {
  const auto& model = model_;
  const auto channels = model.codec.latent_channels;
  const auto backend = make_cpu_backend({.threads = 2, .compute = Compute::f32, .simd = {}});
  std::vector<std::uint64_t> bytes;
  for (const std::int64_t frames : {5, 12}) {
    VideoDecoder decoder(model.codec, model.checkpoint, *backend);
    decoder.decode(Floats(static_cast<std::size_t>(channels * frames * 4 * 6), 0.5F), {frames, 4, 6});
    bytes.push_back(decoder.plane_bytes());
    const auto expected = decoding_bytes(model.codec, {frames, 4, 6});
    EXPECT_LE(decoder.plane_bytes(), expected);
    EXPECT_GE(static_cast<double>(decoder.plane_bytes()), 0.7 * static_cast<double>(expected));
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

INSTANTIATE_TEST_SUITE_P(, GoldenVideo, testing::ValuesIn(runs()),
                         [](const auto& run) { return run.param.name; });

// As diffusers' tiles are: 3 x 3 of them here, which fade into one another.
TEST(VideoDecoder, OfTilesIsWhatDiffusersMakesOfTiles) {
  const TestVideoCodec model(kData / "refinement/wan/vae");
  const auto latents = Arrays(kData / "refinement/wan/golden.safetensors").floats("latents.6");
  const auto expected = Arrays(kData / "refinement/wan/tiled.safetensors").floats("frames");  // 0 and 5
  const auto backend = make_cpu_backend({.threads = 2, .compute = Compute::f32, .simd = {}});
  VideoDecoder decoder(model.codec, model.checkpoint, *backend);
  std::vector<Floats> frames;
  const auto keep = [&](std::span<const float> frame) { frames.emplace_back(frame.begin(), frame.end()); };
  decoder.decode(latents.values, size_of(latents), {.size = 32, .stride = 24}, keep);
  ASSERT_EQ(frames.size(), 9U);
  auto found = frames[0];
  found.insert(found.end(), frames[5].begin(), frames[5].end());
  ASSERT_EQ(found.size(), expected.values.size());
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    worst =
        std::max(worst, std::abs(static_cast<double>(found[i]) - static_cast<double>(expected.values[i])));
  EXPECT_LE(worst, 2e-4);
  // One tile that holds the whole is the whole.
  const auto whole = decoder.decode(latents.values, size_of(latents));
  EXPECT_EQ(decoder.decode(latents.values, size_of(latents), VideoTiling{.size = 64, .stride = 48}).pixels,
            whole.pixels);
  EXPECT_NE(decoder.decode(latents.values, size_of(latents), VideoTiling{.size = 32, .stride = 24}).pixels,
            whole.pixels);
  for (const auto& [size, stride] :
       {std::pair{32, 0}, std::pair{32, 40}, std::pair{36, 24}, std::pair{32, 20}})
    EXPECT_THROW(decoder.decode(latents.values, size_of(latents), VideoTiling{size, stride}), Error);
}

TEST(VideoDecoder, ReadsItsOwnTensorsAlone) {
  const TestVideoCodec model(kData / "refinement/wan/vae");
  const auto backend = make_cpu_backend({.threads = 1, .compute = Compute::f32, .simd = {}});
  const VideoDecoder decoder(model.codec, model.checkpoint, *backend);
  const auto names = tensors_of(model.codec);
  std::uint64_t bytes = 0;
  for (const auto& name : names) bytes += model.checkpoint.bytes_of(name);
  EXPECT_EQ(decoder.weights().bytes_read, bytes);
  EXPECT_EQ(decoder.weights().hashes.size(), names.size());
  EXPECT_LT(names.size(), model.checkpoint.headers().size());
}

TEST(VideoDecoder, RefusesWhatIsNoLatent) {
  const TestVideoCodec model(kData / "refinement/wan/vae");
  const auto message = [&](const Floats& latents, const LatentSize& size) -> std::string {
    try {
      decode(model, latents, size);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_data);
      return error.what();
    }
    return "nothing";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message(Floats(16 * 4), {1, 2, 3}),
              HasSubstr("64 values is not one of 16 channels, 1 frames of 2 x 3"));
  EXPECT_THAT(message({}, {0, 2, 2}), HasSubstr("0 values"));
  EXPECT_THAT(message(Floats(16 * 4, NAN), {1, 2, 2}), HasSubstr("not finite"));
  EXPECT_EQ(message(Floats(16 * 6), {1, 2, 3}), "nothing");
  EXPECT_EQ(message(Floats(16 * 2), {2, 1, 1}), "nothing");
}

TEST(VideoDecoder, WantsABackendOfTheHostInF32) {
  const TestVideoCodec model(kData / "refinement/wan/vae");
  const auto backend = make_cpu_backend({.threads = 1, .compute = Compute::bf16, .simd = {}});
  EXPECT_THROW(VideoDecoder(model.codec, model.checkpoint, *backend), Error);
}

}  // namespace
}  // namespace diffuse::codec

#include "media/log_mel.hpp"

#include <gmock/gmock.h>

#include <complex>
#include <cstring>
#include <fstream>
#include <kissfft/kissfft.hh>

#include "core/hash.hpp"
#include "tests/media/support.hpp"

namespace diffuse::test {
namespace {

// A rising tone with noise, and silence from the middle on: what tests/data/media/mel_*.f32 were made of.
std::vector<float> rising_sound(double seconds) {
  std::vector<float> samples(static_cast<std::size_t>(seconds * media::kSpeechRate));
  Noise noise;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double t = static_cast<double>(i) / media::kSpeechRate;
    const double value = 0.3 * exact::sin(2 * std::numbers::pi * (200 + 40 * t) * t) + 0.02 * noise.next();
    samples[i] = t >= seconds / 2 ? 0.0F : static_cast<float>(value);
  }
  return samples;
}

media::MelFrames mel_of(std::int64_t bins, const std::vector<float>& samples, int threads = 1) {
  ThreadPool pool(threads);
  return media::LogMel(bins)(samples, pool);
}

// Frames 0, 100, 200, … of what transformers computes in float32, with an error of its own of some 2e-5.
std::vector<float> reference(const std::string& name) {
  std::ifstream file(std::string(DIFFUSE_TEST_DATA) + "/media/" + name, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void expect_reference(const media::MelFrames& mel, const std::string& name, std::int64_t frames) {
  const auto wanted = reference(name);
  ASSERT_EQ(mel.frames, frames);
  const std::int64_t kept = (frames + 99) / 100;
  ASSERT_EQ(static_cast<std::int64_t>(wanted.size()), mel.bins * kept);
  for (std::int64_t bin = 0; bin < mel.bins; ++bin)
    for (std::int64_t i = 0; i < kept; ++i)
      ASSERT_NEAR(mel.values[static_cast<std::size_t>(bin * frames + 100 * i)],
                  wanted[static_cast<std::size_t>(bin * kept + i)], 5e-5)
          << "bin " << bin << ", frame " << 100 * i;
}

TEST(LogMel, short_sound_is_filled_to_a_window_as_in_transformers) {
  expect_reference(mel_of(80, rising_sound(12.5)), "mel_80.f32", 3000);
}

TEST(LogMel, long_sound_keeps_its_length_as_in_transformers) {
  expect_reference(mel_of(128, rising_sound(31)), "mel_128.f32", 3100);
}

TEST(LogMel, threads_change_no_bit) {
  const auto samples = rising_sound(31);
  EXPECT_EQ(mel_of(80, samples, 1).values, mel_of(80, samples, 4).values);
}

TEST(LogMel, the_rotations_of_the_transform_are_the_known_ones) {
  // An impulse at sample 1 shows them all. They come from libm's sin and cos.
  const kissfft<double> fft(400, false);
  std::vector<std::complex<double>> in(400);
  std::vector<std::complex<double>> out(400);
  in[1] = 1;
  fft.transform(in.data(), out.data());
  EXPECT_EQ(digest64(std::as_bytes(std::span(out))), 6832383515907011975U);
}

TEST(LogMel, silence_and_nothing_are_flat) {
  for (const auto& samples : {std::vector<float>(), std::vector<float>(16000)}) {
    const auto mel = mel_of(80, samples);
    EXPECT_EQ(mel.frames, 3000);
    EXPECT_THAT(mel.values, testing::Each(-1.5F));  // (log10 1e-10 + 4) / 4
  }
}

TEST(LogMel, a_window_ends_in_zeros) {
  const auto mel = mel_of(80, rising_sound(31));
  const auto window = media::mel_window(mel, 2900, 200);
  ASSERT_EQ(window.size(), 80U * 3000U);
  for (std::size_t bin = 0; bin < 80; ++bin) {
    EXPECT_EQ(window[bin * 3000], mel.values[bin * 3100 + 2900]);
    EXPECT_EQ(window[bin * 3000 + 199], mel.values[bin * 3100 + 3099]);
    EXPECT_EQ(window[bin * 3000 + 200], 0.0F);
  }
  EXPECT_NE(error_of(ExitCode::internal, [&] { media::mel_window(mel, 2901, 200); }), "");
}

}  // namespace
}  // namespace diffuse::test

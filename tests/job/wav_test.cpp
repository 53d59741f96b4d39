// WAV files of a result's sound, read back as any file of a stranger is.

#include "job/wav.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "../media/support.hpp"
#include "core/error.hpp"
#include "media/sound.hpp"

namespace diffuse {
namespace {

std::vector<float> ramp(std::size_t count) {
  std::vector<float> samples;
  for (std::size_t i = 0; i < count; ++i) samples.push_back(1.7F * std::sin(static_cast<float>(i) * 0.37F));
  return samples;
}

Sound read_back(const std::string& bytes) {
  const test::Folder folder;
  return media::read_sound(folder.put("sound.wav", bytes));
}

TEST(Wav, HoldsTheSamplesBitForBit) {
  const auto samples = ramp(5000);  // over full scale too
  const auto sound = read_back(wav_file(samples, 1, 32000));
  EXPECT_EQ(sound.rate, 32000);
  EXPECT_EQ(sound.samples, samples);
}

TEST(Wav, InterleavesChannels) {
  const std::vector<float> samples = {0.5F, -0.25F, 0.75F, 0.25F, -1, 0};
  const auto sound = read_back(wav_file(samples, 2, 8000));
  EXPECT_EQ(sound.samples, (std::vector<float>{0.125F, 0.5F, -0.5F})) << "the mean of both";
}

TEST(Wav, HasAHeaderOfKnownBytes) {
  const std::vector<float> one = {1};
  const auto file = wav_file(one, 1, 16000);
  const std::string expected =
      std::string("RIFF\x36\0\0\0WAVEfmt \x12\0\0\0\x03\0\x01\0\x80\x3e\0\0\0\xfa\0\0\x04\0\x20\0\0\0", 38) +
      std::string("fact\x04\0\0\0\x01\0\0\0data\x04\0\0\0\0\0\x80\x3f", 24);
  EXPECT_EQ(file, expected);
}

TEST(Wav, RefusesWhatNoSuchFileHolds) {
  const auto samples = ramp(4);
  EXPECT_THROW(wav_file(samples, 0, 16000), Error);
  EXPECT_THROW(wav_file(samples, 2000, 16000), Error);
  EXPECT_THROW(wav_file(samples, 1, 0), Error);
  EXPECT_THROW(wav_file(samples, 3, 16000), Error);
  // Its size alone is looked at.
  const std::span<const float> huge(samples.data(), std::size_t{1} << 30);
  EXPECT_THROW(wav_file(huge, 1, 16000), Error);
}

}  // namespace
}  // namespace diffuse

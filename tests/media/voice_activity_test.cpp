#include "media/voice_activity.hpp"

#include <gmock/gmock.h>

#include "media/log_mel.hpp"
#include "tests/media/support.hpp"

namespace diffuse::test {
namespace {

using media::Stretch;

void append(std::vector<float>& sound, const std::vector<float>& more) {
  sound.insert(sound.end(), more.begin(), more.end());
}
std::vector<float> hiss(double seconds, double loudness) {
  std::vector<float> samples(static_cast<std::size_t>(seconds * media::kSpeechRate));
  Noise noise;
  for (auto& sample : samples) sample = static_cast<float>(loudness * noise.next());
  return samples;
}

TEST(VoiceActivity, finds_what_stands_out_of_hiss) {
  std::vector<float> sound = hiss(5, 0.002);
  append(sound, tone(300, 16000, 2, 0.3));
  append(sound, hiss(0.5, 0.002));  // too short to part anything
  append(sound, tone(300, 16000, 1, 0.3));
  append(sound, hiss(6, 0.002));
  append(sound, tone(300, 16000, 1, 0.3));
  const auto found = media::speech_stretches(sound);
  ASSERT_EQ(found.size(), 2U);
  const auto near = [](std::int64_t sample, double seconds) {
    EXPECT_NEAR(static_cast<double>(sample) / 16000, seconds, 0.021);
  };
  near(found[0].begin, 4.6);
  near(found[0].end, 8.9);
  near(found[1].begin, 14.1);
  near(found[1].end, 15.5);
}

TEST(VoiceActivity, silence_has_none) {
  EXPECT_TRUE(media::speech_stretches({}).empty());
  EXPECT_TRUE(media::speech_stretches(std::vector<float>(160000)).empty());
  EXPECT_TRUE(media::speech_stretches(std::vector<float>(160000, 0.5F)).empty());  // an offset is no sound
  EXPECT_TRUE(media::speech_stretches(hiss(5, 0.0005)).empty());
}

TEST(VoiceActivity, clicks_are_none) {
  std::vector<float> sound = hiss(5, 0.0002);
  append(sound, tone(300, 16000, 0.1, 0.3));
  append(sound, hiss(5, 0.0002));
  EXPECT_TRUE(media::speech_stretches(sound).empty());
}

TEST(VoiceActivity, one_loudness_throughout_is_one_stretch) {
  EXPECT_EQ(media::speech_stretches(tone(300, 16000, 5)), (std::vector<Stretch>{{0, 80000}}));
}

TEST(VoiceActivity, stretches_are_joined_and_cut_to_pieces) {
  const std::vector<float> sound(1000000);
  const std::vector<Stretch> apart = {{0, 100}, {200, 300}, {500, 1200}};
  EXPECT_EQ(media::pieces_of(sound, apart, 400),
            (std::vector<Stretch>{{0, 300}, {500, 766}, {766, 1032}, {1032, 1200}}));
  EXPECT_EQ(media::pieces_of(sound, apart, 2000), (std::vector<Stretch>{{0, 1200}}));
}

TEST(VoiceActivity, long_stretches_are_cut_where_it_is_quiet) {
  std::vector<float> sound = tone(300, 16000, 25);
  append(sound, std::vector<float>(8000));
  append(sound, tone(300, 16000, 20));
  const std::vector<Stretch> whole = {{0, static_cast<std::int64_t>(sound.size())}};
  const auto pieces = media::pieces_of(sound, whole, media::kWindowSamples);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_GE(pieces[0].end, 25 * 16000);
  EXPECT_LE(pieces[0].end, 25 * 16000 + 8000);
}

TEST(Condensed, knows_where_its_seconds_were) {
  std::vector<float> sound(160000);
  for (std::size_t i = 0; i < sound.size(); ++i) sound[i] = static_cast<float>(i);
  const std::vector<Stretch> kept = {{16000, 32000}, {80000, 96000}};
  const media::Condensed condensed(sound, kept);
  ASSERT_EQ(condensed.samples().size(), 32000U);
  EXPECT_EQ(condensed.samples()[0], 16000.0F);
  EXPECT_EQ(condensed.samples()[16000], 80000.0F);
  EXPECT_DOUBLE_EQ(condensed.original(0.5, false), 1.5);
  EXPECT_DOUBLE_EQ(condensed.original(1, true), 2);
  EXPECT_DOUBLE_EQ(condensed.original(1, false), 5);
  EXPECT_DOUBLE_EQ(condensed.original(1.25, false), 5.25);
  EXPECT_DOUBLE_EQ(condensed.original(3, true), 7);  // past the end goes on
}

}  // namespace
}  // namespace diffuse::test

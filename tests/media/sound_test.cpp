#include "media/sound.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "media/log_mel.hpp"
#include "tests/media/support.hpp"

namespace diffuse::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::filesystem::path kData = std::filesystem::path(DIFFUSE_TEST_DATA) / "media";

std::string bad(const std::filesystem::path& path) {
  return error_of(ExitCode::bad_data, [&] { media::read_speech(path); });
}

// How much of `samples` is the tone of 440 Hz at half of full scale: 1 for the tone itself, whatever its
// phase.
double likeness(const Sound& sound) {
  double real = 0;
  double imaginary = 0;
  for (std::size_t i = 0; i < sound.samples.size(); ++i) {
    const double angle =
        2 * std::numbers::pi * 440 * static_cast<double>(i) / static_cast<double>(sound.rate);
    real += static_cast<double>(sound.samples[i]) * exact::cos(angle);
    imaginary += static_cast<double>(sound.samples[i]) * exact::sin(angle);
  }
  return std::sqrt(real * real + imaginary * imaginary) / static_cast<double>(sound.samples.size()) * 4;
}

TEST(Sound, compressed_files_and_a_video_hold_the_tone) {
  for (const char* name : {"tone.flac", "tone.mp3", "tone.ogg", "tone.opus", "tone.m4a", "video.mp4"}) {
    const auto sound = media::read_speech(kData / name);
    EXPECT_EQ(sound.rate, 16000) << name;
    EXPECT_NEAR(static_cast<double>(sound.samples.size()), 8000, 1100) << name;
    EXPECT_NEAR(likeness(sound), 1, 0.15) << name;
  }
}

TEST(Sound, flac_gives_the_samples_that_went_in) {
  const auto sound = media::read_sound(kData / "tone.flac");
  ASSERT_EQ(sound.samples.size(), 8000U);
  for (std::size_t i = 0; i < 8000; ++i) {
    const double value =
        std::round(0.5 * exact::sin(2 * std::numbers::pi * 440 * static_cast<double>(i) / 16000) * 32767);
    ASSERT_EQ(sound.samples[i], static_cast<float>(value / 32768)) << i;
  }
}

TEST(Sound, wav_of_every_kind_of_sample) {
  const Folder folder;
  const auto half = [&](const std::string& bytes) {
    const auto sound = media::read_sound(folder.put("x.wav", bytes));
    EXPECT_EQ(sound.rate, 16000);
    return sound.samples;
  };
  std::string data;
  for (int i = 0; i < 100; ++i) data += little(0x40000000, 4);
  EXPECT_THAT(half(wav(1, 32, 1, 16000, data)), testing::Each(0.5F));
  EXPECT_THAT(half(wav(1, 16, 1, 16000, shorts(std::vector<std::int16_t>(100, 16384)))), testing::Each(0.5F));
  EXPECT_THAT(half(wav(1, 8, 1, 16000, std::string(100, '\xC0'))), testing::Each(0.5F));
  EXPECT_THAT(half(wav(3, 32, 1, 16000, floats(std::vector<float>(100, 0.5F)))), testing::Each(0.5F));
}

TEST(Sound, channels_become_their_mean) {
  const Folder folder;
  const auto mean = [&](int channels, const std::vector<float>& frame) {
    std::vector<float> samples;
    for (int i = 0; i < 50; ++i) samples.insert(samples.end(), frame.begin(), frame.end());
    const auto sound = media::read_sound(folder.put("x.wav", wav(3, 32, channels, 16000, floats(samples))));
    EXPECT_EQ(sound.samples.size(), 50U);
    return sound.samples.at(20);
  };
  EXPECT_EQ(mean(2, {0.5F, -0.25F}), 0.125F);
  EXPECT_EQ(mean(7, {0.7F, 0, 0, 0, 0, 0, 0}), static_cast<float>(static_cast<double>(0.7F) / 7));
}

TEST(Sound, telephone_sound_is_brought_to_16_khz) {
  const Folder folder;
  const auto path = folder.put("phone.wav", wav(3, 32, 1, 8000, floats(tone(440, 8000, 1))));
  EXPECT_EQ(media::read_sound(path).rate, 8000);
  const auto speech = media::read_speech(path);
  EXPECT_EQ(speech.rate, 16000);
  EXPECT_EQ(speech.samples.size(), 16000U);
  EXPECT_NEAR(likeness(speech), 1, 0.01);
}

TEST(Sound, what_is_no_sound_says_so) {
  const Folder folder;
  EXPECT_THAT(bad(folder.put("note.wav", "this is no sound")),
              AllOf(HasSubstr("note.wav"), HasSubstr("no sound file")));
  EXPECT_THAT(bad(folder.put("empty.wav", "")), HasSubstr("empty.wav"));
  EXPECT_THAT(bad(folder.put("zero.wav", wav(1, 16, 1, 16000, ""))), HasSubstr("no samples"));
  EXPECT_THAT(bad(kData / "silent_video.mkv"), HasSubstr("has no sound in it"));
  EXPECT_THAT(bad(folder.put("slow.wav", wav(1, 16, 1, 100, std::string(2000, 'a')))),
              HasSubstr("100 samples a second"));
  EXPECT_THAT(error_of(ExitCode::missing_input, [&] { media::read_sound(folder.path() / "none.wav"); }),
              HasSubstr("none.wav"));
  EXPECT_THAT(error_of(ExitCode::missing_input, [&] { media::read_sound(folder.path()); }),
              HasSubstr("cannot be opened"));
}

TEST(Sound, samples_that_are_no_numbers_are_named) {
  const Folder folder;
  auto samples = tone(440, 16000, 0.1);
  samples[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(bad(folder.put("x.wav", wav(3, 32, 1, 16000, floats(samples)))),
              AllOf(HasSubstr("NaN"), HasSubstr("number 7")));
  samples[7] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(bad(folder.put("x.wav", wav(3, 32, 1, 16000, floats(samples)))), HasSubstr("infinite"));
}

std::string bytes_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Sound, a_file_that_is_cut_short_says_so) {
  const Folder folder;
  for (const char* name : {"tone.flac", "tone.m4a", "video.mp4"}) {
    const auto whole = bytes_of_file(kData / name);
    EXPECT_EQ(bad(folder.put(name, whole)), "");
    EXPECT_THAT(bad(folder.put(name, whole.substr(0, whole.size() / 2))), HasSubstr(name));
  }
}

TEST(Sound, damage_in_the_middle_says_so) {
  const Folder folder;
  const auto whole = bytes_of_file(kData / "tone.flac");
  for (const auto where : {whole.size() / 3, whole.size() * 2 / 3}) {
    auto bytes = whole;
    bytes[where] = static_cast<char>(bytes[where] ^ 1);
    EXPECT_THAT(bad(folder.put("damaged.flac", bytes)), HasSubstr("damaged.flac")) << where;
  }
}

TEST(Sound, a_wav_whose_header_was_never_finished_is_read_to_its_end) {
  const Folder folder;
  auto bytes = wav(1, 16, 1, 16000, shorts(std::vector<std::int16_t>(100, 16384)));
  bytes.replace(40, 4, little(0xFFFFFFFF, 4));
  EXPECT_THAT(media::read_sound(folder.put("x.wav", bytes)).samples, testing::Each(0.5F));
}

TEST(Sound, playlists_open_no_other_file) {
  const Folder folder;
  const auto target = (kData / "tone.mp3").string();
  EXPECT_THAT(bad(folder.put("list.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n" + target +
                                              "\n#EXT-X-ENDLIST\n")),
              HasSubstr("no sound file"));
  EXPECT_THAT(bad(folder.put("list.ffconcat", "ffconcat version 1.0\nfile '" + target + "'\n")),
              HasSubstr("no sound file"));
}

}  // namespace
}  // namespace diffuse::test

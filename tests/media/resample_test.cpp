#include "media/resample.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "core/hash.hpp"
#include "tests/media/support.hpp"

namespace diffuse::test {
namespace {

// The largest difference between a resampled tone and the tone made at the new rate, away from the ends.
double worst(double hz, std::int32_t from, std::int32_t to) {
  const auto made = media::resample(tone(hz, from, 0.5), from, to);
  const auto wanted = tone(hz, to, 0.5);
  double most = 0;
  for (std::size_t i = made.size() / 5; i < made.size() * 4 / 5; ++i)
    most = std::max(most, std::abs(static_cast<double>(made[i]) - static_cast<double>(wanted[i])));
  return most;
}

double loudest(const std::vector<float>& samples) {
  double most = 0;
  for (std::size_t i = samples.size() / 5; i < samples.size() * 4 / 5; ++i)
    most = std::max(most, std::abs(static_cast<double>(samples[i])));
  return most;
}

TEST(Resample, tones_keep_their_shape) {
  for (const double hz : {50.0, 1000.0, 3400.0}) {
    EXPECT_LT(worst(hz, 8000, 16000), 2e-5) << hz;
    EXPECT_LT(worst(hz, 11025, 16000), 2e-5) << hz;
  }
  for (const double hz : {50.0, 1000.0, 7000.0}) {
    EXPECT_LT(worst(hz, 22050, 16000), 2e-5) << hz;
    EXPECT_LT(worst(hz, 44100, 16000), 2e-5) << hz;
    EXPECT_LT(worst(hz, 48000, 16000), 2e-5) << hz;
    EXPECT_LT(worst(hz, 44101, 16000), 2e-5) << hz;  // no common divisor
  }
}

TEST(Resample, what_the_new_rate_cannot_hold_is_gone) {
  for (const double hz : {8200.0, 12000.0, 20000.0})
    EXPECT_LT(loudest(media::resample(tone(hz, 48000, 0.5), 48000, 16000)), 2e-5) << hz;
}

TEST(Resample, lengths_round_up) {
  for (const std::size_t count : {0U, 1U, 2U, 3U, 441U, 1000U}) {
    EXPECT_EQ(media::resample(std::vector<float>(count), 44100, 16000).size(), (count * 160 + 440) / 441);
    EXPECT_EQ(media::resample(std::vector<float>(count), 8000, 16000).size(), count * 2);
  }
}

TEST(Resample, equal_rates_change_nothing) {
  const auto samples = tone(440, 16000, 0.1);
  EXPECT_EQ(media::resample(samples, 16000, 16000), samples);
}

TEST(Resample, a_constant_stays_one) {
  const auto made = media::resample(std::vector<float>(4000, 0.25F), 11025, 16000);
  for (std::size_t i = 500; i < made.size() - 500; ++i) ASSERT_NEAR(made[i], 0.25F, 1e-7);
}

TEST(Resample, bits_are_fixed) {
  const auto made = media::resample(tone(1234.5, 44100, 0.2), 44100, 16000);
  EXPECT_EQ(digest64(std::as_bytes(std::span(made))), 12330488773354189417U);
}

TEST(Resample, rates_out_of_range_are_refused) {
  for (const std::int32_t rate : {-1, 0, 999, 384001}) {
    EXPECT_THAT(error_of(ExitCode::bad_data, [&] { media::resample({}, rate, 16000); }),
                testing::HasSubstr(std::to_string(rate)));
    EXPECT_NE(error_of(ExitCode::bad_data, [&] { media::resample({}, 16000, rate); }), "");
  }
}

}  // namespace
}  // namespace diffuse::test

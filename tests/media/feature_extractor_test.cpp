#include "media/feature_extractor.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace diffuse::media {
namespace {

// As openai/whisper-base has it, its filters shortened.
const Json kWhisper = {{"chunk_length", 30},
                       {"feature_extractor_type", "WhisperFeatureExtractor"},
                       {"feature_size", 80},
                       {"hop_length", 160},
                       {"mel_filters", {{0.0, 0.1}}},
                       {"n_fft", 400},
                       {"n_samples", 480000},
                       {"nb_max_frames", 3000},
                       {"padding_side", "right"},
                       {"padding_value", 0.0},
                       {"processor_class", "WhisperProcessor"},
                       {"return_attention_mask", false},
                       {"sampling_rate", 16000},
                       {"do_normalize", false},
                       {"dither", 0.0}};

std::string refusal(const Json& object, std::int64_t bins = 80) {
  try {
    check_feature_extractor(object, "preprocessor_config.json", "WhisperFeatureExtractor", bins);
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  }
  return "";
}

TEST(FeatureExtractor, WhispersOwnIsComputed) {
  EXPECT_EQ(refusal(kWhisper), "");
  EXPECT_EQ(refusal(Json::object()), "");
  EXPECT_EQ(refusal({{"feature_size", 128}, {"n_fft", nullptr}}, 128), "");
}

TEST(FeatureExtractor, AnotherValueIsRefusedByName) {
  const std::vector<std::pair<std::string, Json>> others = {
      {"feature_extractor_type", "SeamlessM4TFeatureExtractor"},
      {"feature_size", 128},
      {"sampling_rate", 8000},
      {"hop_length", 128},
      {"n_fft", 512},
      {"chunk_length", 20},
      {"n_samples", 320000},
      {"nb_max_frames", 2000},
      {"padding_value", 0.5},
      {"padding_side", "left"},
      {"do_normalize", true},
      {"dither", 0.0001},
      {"n_fft", "400"},
  };
  for (const auto& [key, value] : others) {
    auto object = kWhisper;
    object[key] = value;
    const auto message = refusal(object);
    EXPECT_EQ(message.find("69: cannot run yet: '" + key + "' is " + value.dump() +
                           " in preprocessor_config.json, and this build computes features with "),
              0U)
        << message;
  }
  EXPECT_EQ(refusal(Json::array()).find("65: "), 0U);
}

}  // namespace
}  // namespace diffuse::media

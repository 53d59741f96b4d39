#pragma once
// Whose features of sound the encoders of these recipes read: the class that preprocessor_config.json names.

#include <string_view>

namespace diffuse {

inline constexpr std::string_view kSoundFeatures = "WhisperFeatureExtractor";

}  // namespace diffuse

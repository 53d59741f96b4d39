#pragma once
// What a model folder says of the features that its encoder of sound was trained on, held against those that
// LogMel computes. Keys: those of transformers' class for them (preprocessor_config.json).

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.hpp"

namespace diffuse::media {

// `object` as stored, `name` what it is called in errors, `type` the class that the encoder's
// features are of, `bins` the features of a frame that it reads. Keys that the class does not read are passed
// over, and so is what is absent or null. Throws bad data where it is no object, refused, naming key, value
// and what this build computes, for any other value.
void check_feature_extractor(const Json& object, const std::string& name, std::string_view type,
                             std::int64_t bins);

}  // namespace diffuse::media

#include "media/feature_extractor.hpp"

#include <vector>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "media/log_mel.hpp"

namespace diffuse::media {
namespace {

constexpr std::int64_t kFourier = 400;  // samples a frame is made of, as log_mel.hpp says

struct Computed {
  const char* key;
  Json value;
};

std::string said(const Json& value) {
  return visible(utf8_prefix(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80));
}

}  // namespace

void check_feature_extractor(const Json& object, const std::string& name, std::string_view type,
                             std::int64_t bins) {
  if (!object.is_object()) throw_bad_data(name + " is not a JSON object");
  const std::vector<Computed> computed = {
      {"feature_extractor_type", type},
      {"feature_size", bins},
      {"sampling_rate", kSpeechRate},
      {"hop_length", kMelHop},
      {"n_fft", kFourier},
      {"chunk_length", kWindowSamples / kSpeechRate},
      {"n_samples", kWindowSamples},
      {"nb_max_frames", kWindowFrames},
      {"padding_value", 0},
      {"padding_side", "right"},
      {"do_normalize", false},
      {"dither", 0},
  };
  for (const auto& [key, value] : computed) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null() || *found == value) continue;
    throw_refused("cannot run yet: '" + std::string(key) + "' is " + said(*found) + " in " + name +
                  ", and this build computes features with " + said(value));
  }
}

}  // namespace diffuse::media

#pragma once
// Numbers that the job and result files are made of.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace diffuse::layout {

inline constexpr std::int64_t kJobVersion = 1;
inline constexpr std::int64_t kResultVersion = 1;

// `kind` of a job's requests.
inline constexpr std::uint8_t kPrompt = 0;
inline constexpr std::uint8_t kMessages = 1;
inline constexpr std::uint8_t kTokens = 2;
inline constexpr std::uint8_t kNoText = 3;

// Of a result's media: sizes in the order of the elements, and these, f32 or u8.
inline constexpr std::array<std::string_view, 4> kMediaSizes = {"frames", "height", "width", "channels"};
inline constexpr std::string_view kSamples = "samples";
inline constexpr std::string_view kPixels = "pixels";

// Of a result's latents: sizes in the order of the elements.
inline constexpr std::array<std::string_view, 4> kLatentSizes = {"channels", "frames", "height", "width"};

inline void check_version(std::int64_t found, std::int64_t known, const std::string& what) {
  if (found < 1) throw_bad_data(what + ": format_version " + std::to_string(found) + " was never used");
  if (found > known)
    throw_bad_data(what + ": format_version " + std::to_string(found) + " is newer than this program's " +
                   std::to_string(known) + "; use a newer diffuse");
}

}  // namespace diffuse::layout

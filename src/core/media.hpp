#pragma once
// What a sample is beside text: a sound, a picture or a video, as plain elements. Values only.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace diffuse {

enum class MediaKind : std::uint8_t { sound = 1, picture = 2, video = 3 };  // as in the result file
enum class MediaElement : std::uint8_t { f32 = 1, u8 = 2 };

std::string_view name_of(MediaKind kind);
std::string_view name_of(MediaElement element);

// Elements [frames, height, width, channels] in row-major order. A sound has height and width 1, and a frame
// is the samples of one moment, within -1 and 1 at full scale; a picture has one frame.
struct MediaArray {
  MediaKind kind = MediaKind::sound;
  MediaElement element = MediaElement::f32;
  std::int64_t frames = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;
  double rate = 0;               // frames a second; of a picture 0
  std::vector<std::byte> bytes;  // little-endian

  std::size_t elements() const { return bytes.size() / (element == MediaElement::f32 ? sizeof(float) : 1); }
  std::vector<float> floats() const;  // of f32; throws internal where the elements are others
  bool operator==(const MediaArray&) const = default;
};

// `samples` are [frames, channels].
MediaArray sound_of(std::span<const float> samples, std::int64_t channels, std::int64_t rate);

// Why these values are no such thing (a size below 1, other elements than the sizes say, a rate that is none,
// a sound with a height); empty where they are one.
std::string media_flaw(const MediaArray& media);

// What a codec decodes into a picture or a video, as a scheduler's last step leaves it: [channels, frames,
// height, width] in row-major order. Frames and sides are the latent's own, not those of the pixels.
struct LatentArray {
  std::int64_t channels = 0;
  std::int64_t frames = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<float> values;

  bool operator==(const LatentArray&) const = default;
};

// Why these values are no latent; empty where they are one.
std::string latent_flaw(const LatentArray& latent);

// "latent, 16 x 21 x 60 x 104".
std::string describe(const LatentArray& latent);

// For a person: "sound, 2.5 s, 32000 Hz, mono"; "video, 81 frames of 832 x 480, 16 a second".
std::string describe(const MediaArray& media);

}  // namespace diffuse

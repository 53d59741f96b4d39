#include "core/media.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/error.hpp"
#include "core/size.hpp"

namespace diffuse {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are kept as they lie in memory");

std::string shown(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

}  // namespace

std::string_view name_of(MediaKind kind) {
  switch (kind) {
    case MediaKind::sound:
      return "sound";
    case MediaKind::picture:
      return "picture";
    case MediaKind::video:
      return "video";
  }
  return "?";
}

std::string_view name_of(MediaElement element) {
  switch (element) {
    case MediaElement::f32:
      return "f32";
    case MediaElement::u8:
      return "u8";
  }
  return "?";
}

std::vector<float> MediaArray::floats() const {
  if (element != MediaElement::f32) throw_internal("floats were asked of media that has none");
  std::vector<float> values(elements());
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

MediaArray sound_of(std::span<const float> samples, std::int64_t channels, std::int64_t rate) {
  const auto bytes = std::as_bytes(samples);
  return {.kind = MediaKind::sound,
          .element = MediaElement::f32,
          .frames = static_cast<std::int64_t>(samples.size()) / channels,
          .channels = channels,
          .rate = static_cast<double>(rate),
          .bytes = {bytes.begin(), bytes.end()}};
}

std::string media_flaw(const MediaArray& media) {
  if (name_of(media.kind) == "?" || name_of(media.element) == "?") return "media of no known kind";
  if (media.frames < 1 || media.height < 1 || media.width < 1 || media.channels < 1)
    return "media with a size below 1";
  const auto size = [](std::int64_t value) { return CheckedSize(static_cast<std::uint64_t>(value)); };
  const auto bytes = size(media.frames) * size(media.height) * size(media.width) * size(media.channels) *
                     size(media.element == MediaElement::f32 ? 4 : 1);
  if (bytes != media.bytes.size()) return "media with other elements than its sizes say";
  const bool picture = media.kind == MediaKind::picture;
  if (!std::isfinite(media.rate) || (picture ? media.rate != 0 : media.rate <= 0))
    return "media with a rate that is none";
  if (media.kind == MediaKind::sound && (media.height != 1 || media.width != 1))
    return "a sound with a height or a width";
  if (picture && media.frames != 1) return "a picture of several frames";
  return {};
}

std::string latent_flaw(const LatentArray& latent) {
  CheckedSize elements = 1;
  for (const auto size : {latent.channels, latent.frames, latent.height, latent.width}) {
    if (size < 1) return "a latent with a size below 1";
    elements = elements * static_cast<std::uint64_t>(size);
  }
  return elements == latent.values.size() ? "" : "a latent with other elements than its sizes say";
}

std::string describe(const LatentArray& latent) {
  std::string text = "latent, " + std::to_string(latent.channels);
  for (const auto size : {latent.frames, latent.height, latent.width}) text += " x " + std::to_string(size);
  return text;
}

std::string describe(const MediaArray& media) {
  const std::string kind(name_of(media.kind));
  const auto size = std::to_string(media.width) + " x " + std::to_string(media.height);
  switch (media.kind) {
    case MediaKind::sound: {
      const auto channels = media.channels == 1   ? std::string("mono")
                            : media.channels == 2 ? std::string("stereo")
                                                  : std::to_string(media.channels) + " channels";
      return kind + ", " + shown(static_cast<double>(media.frames) / media.rate) + " s, " +
             shown(media.rate) + " Hz, " + channels;
    }
    case MediaKind::picture:
      return kind + ", " + size;
    case MediaKind::video:
      return kind + ", " + std::to_string(media.frames) + " frames of " + size + ", " + shown(media.rate) +
             " a second";
  }
  return "?";
}

}  // namespace diffuse

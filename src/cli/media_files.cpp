#include "cli/media_files.hpp"

#include <cstdio>
#include <cstring>
#include <string>

#include "core/error.hpp"
#include "core/frames.hpp"
#include "media/picture_files.hpp"

namespace diffuse {

std::vector<MediaFile> media_files(const MediaArray& media) {
  if (media.kind == MediaKind::sound || media.element != MediaElement::u8 || media.channels != 3)
    throw_bad_data("a " + std::string(name_of(media.kind)) + " of " + std::to_string(media.channels) +
                   " channels of " + std::string(name_of(media.element)) +
                   " has no files; three of u8 have, red, green and blue");
  Frames frames{.count = media.frames, .height = media.height, .width = media.width, .pixels = {}};
  frames.pixels.resize(media.bytes.size());
  std::memcpy(frames.pixels.data(), media.bytes.data(), media.bytes.size());
  if (media.kind == MediaKind::picture) return {{".png", media::png_file(frames, 0)}};
  std::vector<MediaFile> files = {{".mp4", media::mp4_file(frames, media.rate)},
                                  {".webp", media::webp_file(frames, media.rate)}};
  for (std::int64_t frame = 0; frame < frames.count; ++frame) {
    char name[32];
    std::snprintf(name, sizeof name, "/%04lld.png", static_cast<long long>(frame) + 1);
    files.push_back({name, media::png_file(frames, frame)});
  }
  return files;
}

}  // namespace diffuse

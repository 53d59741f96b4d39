#include "cli/media_files.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/frames.hpp"
#include "media/picture_files.hpp"

namespace diffuse {
namespace {

constexpr std::array<std::pair<std::string_view, VideoFormat>, 4> kFormats = {{
    {"mp4", VideoFormat::mp4},
    {"webp", VideoFormat::webp},
    {"gif", VideoFormat::gif},
    {"png", VideoFormat::png},
}};

std::vector<MediaFile> files_of(const Frames& frames, double rate, VideoFormat format) {
  switch (format) {
    case VideoFormat::mp4:
      return {{".mp4", media::mp4_file(frames, rate)}};
    case VideoFormat::webp:
      return {{".webp", media::webp_file(frames, rate)}};
    case VideoFormat::gif:
      return {{".gif", media::gif_file(frames, rate)}};
    case VideoFormat::png:
      break;
  }
  std::vector<MediaFile> files;
  for (std::int64_t frame = 0; frame < frames.count; ++frame) {
    char name[32];
    std::snprintf(name, sizeof name, "/%04lld.png", static_cast<long long>(frame) + 1);
    files.push_back({name, media::png_file(frames, frame)});
  }
  return files;
}

}  // namespace

std::vector<VideoFormat> video_formats(const std::string& text) {
  std::vector<VideoFormat> formats;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto comma = std::min(text.find(',', begin), text.size());
    const auto word = std::string_view(text).substr(begin, comma - begin);
    const auto* const found =
        std::ranges::find_if(kFormats, [&](const auto& format) { return format.first == word; });
    if (found == kFormats.end())
      throw_usage("--format '" + text + "' is no list of mp4, webp, gif and png; write e.g. gif,mp4");
    if (std::ranges::find(formats, found->second) == formats.end()) formats.push_back(found->second);
    begin = comma + 1;
  }
  return formats;
}

std::vector<MediaFile> media_files(const MediaArray& media, const std::vector<VideoFormat>& formats) {
  if (media.kind == MediaKind::sound || media.element != MediaElement::u8 || media.channels != 3)
    throw_bad_data("a " + std::string(name_of(media.kind)) + " of " + std::to_string(media.channels) +
                   " channels of " + std::string(name_of(media.element)) +
                   " has no files; three of u8 have, red, green and blue");
  Frames frames{.count = media.frames, .height = media.height, .width = media.width, .pixels = {}};
  frames.pixels.resize(media.bytes.size());
  std::memcpy(frames.pixels.data(), media.bytes.data(), media.bytes.size());
  if (media.kind == MediaKind::picture) return {{".png", media::png_file(frames, 0)}};
  std::vector<MediaFile> files;
  for (const auto format : formats) {
    auto more = files_of(frames, media.rate, format);
    files.insert(files.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return files;
}

}  // namespace diffuse

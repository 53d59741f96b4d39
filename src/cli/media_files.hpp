#pragma once
// The files that `export` makes of a picture or a video.

#include <cstdint>
#include <string>
#include <vector>

#include "core/media.hpp"
#include "job/export.hpp"

namespace diffuse {

// Of videos: what `--format` names.
enum class VideoFormat : std::uint8_t { mp4, webp, gif, png };
// "mp4,gif" -> formats, each once. Throws usage.
std::vector<VideoFormat> video_formats(const std::string& text);

// Of a picture: .png, whatever the formats. Of a video, in the order of the formats, which are one at least:
// .mp4, .webp, .gif, and each frame as /0001.png, /0002.png, … Elements are u8 and three channels, else
// throws bad data; and as the writers of picture_files.hpp do.
std::vector<MediaFile> media_files(const MediaArray& media, const std::vector<VideoFormat>& formats);

}  // namespace diffuse

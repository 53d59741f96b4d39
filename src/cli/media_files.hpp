#pragma once
// The files that `export` makes of a picture or a video.

#include <vector>

#include "core/media.hpp"
#include "job/export.hpp"

namespace diffuse {

// Of a picture: .png. Of a video: .mp4, .webp, and each frame as /0001.png, /0002.png, … Elements are u8 and
// three channels, else throws bad data; and as the writers of picture_files.hpp do.
std::vector<MediaFile> media_files(const MediaArray& media);

}  // namespace diffuse

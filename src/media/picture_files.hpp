#pragma once
// Frames -> the bytes of files: PNG pictures, animated WebP and GIF, MP4; by libav* on the client. The same
// frames give the same bytes with the same libraries.

#include <cstdint>
#include <string>

#include "core/frames.hpp"

namespace diffuse::media {

// One frame as PNG: every pixel as it is. Throws internal where there is no such frame; io where libav fails.
std::string png_file(const Frames& frames, std::int64_t index);

// An animation that runs for ever, every pixel as it is. Throws bad data where it has no frames, a side over
// 16383 or an impossible rate; io where libav fails; refused where libav was built without libwebp.
std::string webp_file(const Frames& frames, double frames_per_second);

// An animation that runs for ever, of the 256 colours that suit all frames best (without dithering); exact
// where they have no more. Frames are shown for hundredths of a second. Errors as above, and bad data above
// 50 frames a second, which players slow down.
std::string gif_file(const Frames& frames, double frames_per_second);

// H.264 where libav has libx264, else MPEG-4 part 2; YUV 4:2:0 in the colours of BT.709 (4:4:4 where H.264 is
// to hold a side that is odd). Errors as above.
std::string mp4_file(const Frames& frames, double frames_per_second);

}  // namespace diffuse::media

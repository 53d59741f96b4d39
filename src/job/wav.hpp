#pragma once
// Sound as a WAV file.
//
// Samples are written as 32-bit floats: the file holds what the model said, bit for bit, and nothing over
// full scale is cut off, as 16-bit samples would have it. Players and libraries read it as they read those.

#include <cstdint>
#include <span>
#include <string>

namespace diffuse {

// The bytes of the file. `samples` are [frames, channels]. Throws bad data where the file would have more
// than 4 GB or the numbers are out of its range; internal where samples are not whole frames.
std::string wav_file(std::span<const float> samples, std::int64_t channels, std::int64_t rate);

}  // namespace diffuse

#pragma once
// Reading sound files on the client: WAV, FLAC, MP3, Ogg, M4A and the first sound track of a video, by
// libav*. No rank of a cluster ever parses such a file; job files hold samples.

#include <filesystem>

#include "core/sound.hpp"

namespace diffuse::media {

// Decodes a file's sound and mixes it to mono (the mean of its channels) at its own rate. Lossless formats
// give the same bits everywhere; of MP3, AAC, Vorbis and Opus the last bits may differ between processors.
// Only the named file is opened: playlists that lead to others are refused. Throws missing input where it
// cannot be opened; bad data, naming the file, where it is no sound file, has no sound in it, is damaged or
// cut short, or is longer than 12 hours.
Sound read_sound(const std::filesystem::path& path);

// The same as speech models take it: at 16 kHz. Also refuses NaN and infinite samples.
Sound read_speech(const std::filesystem::path& path);

}  // namespace diffuse::media

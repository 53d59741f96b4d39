#pragma once
// Transcripts as files: text, SRT, VTT, TSV and JSON, byte for byte as openai-whisper writes them; and as the
// JSON that a result keeps.

#include <cstdint>
#include <optional>
#include <string>

#include "core/json.hpp"
#include "core/transcript.hpp"

namespace diffuse {

// How subtitles are laid out. They follow the words where a transcript has them, and the segments otherwise.
struct SubtitleOptions {
  std::optional<std::int64_t> max_line_width;  // characters
  std::optional<std::int64_t>
      max_line_count;  // with a width too: subtitles are cut without regard to segments
  std::optional<std::int64_t> max_words_per_line;
  bool highlight_words = false;  // a subtitle a word, underlined
};

std::string transcript_text(const Transcript& transcript);  // a line a segment
std::string transcript_srt(const Transcript& transcript, const SubtitleOptions& options = {});
std::string transcript_vtt(const Transcript& transcript, const SubtitleOptions& options = {});
std::string transcript_tsv(const Transcript& transcript);   // milliseconds
std::string transcript_json(const Transcript& transcript);  // one line, without a newline

// All of a transcript, and back. Throws bad data, beginning with `what`, where it is no such object.
Json json_of(const Transcript& transcript);
Transcript transcript_of(const Json& value, const std::string& what);

}  // namespace diffuse

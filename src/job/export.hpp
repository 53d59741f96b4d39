#pragma once
// A result for people: on the terminal, or as plain files in a folder.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/json.hpp"
#include "job/result.hpp"
#include "job/transcript.hpp"

namespace diffuse {

// The names of a result's files, of which none stands for two samples on any system: ids become safe, and
// those that would be equal without regard to case get ~2, ~3, ….
class FileNames {
 public:
  // Of sample `sample` of `samples` of a request: ID, or ID-0, ID-1, … To be asked in the order of the
  // result.
  std::string take(const std::string& id, std::size_t sample, std::size_t samples);

 private:
  std::unordered_set<std::string> taken_;
};

struct ShowOptions {
  bool texts = true;            // the texts below the summary
  std::string only;             // only the request of this id; empty: all
  std::uint64_t max_bytes = 0;  // of each text, cut at a character; 0: all of it
};

// For a terminal: a summary, then each text under its request's id. Control characters are made visible, so
// that a text cannot steer the terminal. Throws usage where `only` names no request.
std::string show_text(const Result& result, const ShowOptions& options = {});

// The whole result but for traces and media, whose digests and elements are many: {"requests": [...],
// "timing", "provenance", ...}.
Json show_json(const Result& result, const ShowOptions& options = {});

// A file of a sample: NAME plus this ending ("/0001.png" in a folder of its own), and what it holds.
struct MediaFile {
  std::string ending;
  std::string bytes;
};
// The files of a picture or a video, at least one, the main one first; media_files of cli/ is one. Throws as
// that does.
using MediaFiles = std::function<std::vector<MediaFile>(const MediaArray& media)>;

struct Exported {
  std::uint64_t texts = 0;       // samples that are texts
  std::uint64_t media = 0;       // and those that are sound, pictures, videos or their latents
  std::uint64_t unfinished = 0;  // requests without an answer: bad or unfinished
};

// Writes into `folder` (made where missing; files of the same name are replaced): ID.txt for each sample, or
// ID-0.txt, ID-1.txt, … where a request has several (beside it .srt, .vtt, .tsv and .json where the sample is
// a transcript, and a line a segment in .txt), ID.wav where the sample is a sound, or what
// `files` makes of a picture or a video, and ID.latent.npy, [channels, frames, height, width], where its
// latent was asked for; subtitles are laid out as `subtitles` says; results.jsonl, a line a sample;
// results.csv, the table. Ids become safe file names, unique without regard to case. Throws I/O, and as
// `files` does.
Exported export_result(const Result& result, const std::filesystem::path& folder, const MediaFiles& files,
                       const SubtitleOptions& subtitles = {});

}  // namespace diffuse

#pragma once
// The job spec: what a user writes by hand, before `pack` makes a job file of it.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "job/job.hpp"

namespace diffuse {

// Looks at one `generate` object (the job's or a request's) and throws bad data, beginning with `what`, where
// a key or a value in it is wrong. parse_generate of text/ is one; given by the caller, so that this folder
// needs no text/.
using GenerateCheck = std::function<void(const Json& object, const std::string& what)>;

// Decodes the sound file at `path`; read_speech of media/ is one. Throws as that does.
using SoundReader = std::function<Sound(const std::filesystem::path& path)>;

// The one tensor in the file at `path`; read_only_tensor of checkpoint/ is one. Throws as that does.
struct LatentFile {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
using LatentReader = std::function<LatentFile(const std::filesystem::path& path)>;

struct FileReaders {
  SoundReader sound;
  LatentReader latent;
};

// Reads a spec: a JSON file {"model", "generate", "requests": [...]}, or (named .jsonl or .ndjson) a request
// a line. A request is an object with one of `prompt`, `messages`, `tokens`, or `audio` (a sound file,
// relative to the spec; it may also stand beside one of the others), and beside it `language` and `task` of
// the sound (`language` of a prompt: what to translate it into), `negative_prompt` and `latent` (a file,
// relative to the spec) of a picture, `generate` and `id`; a plain string is a prompt. `model` is relative to
// the spec's folder and comes back absolute; `model_override`, where not empty, takes its place and is
// relative to the working folder. Broken UTF-8 is repaired.
//
// Ids are unique, 1 to 200 bytes, without control characters; a request without one is named by its index.
// Throws missing input, or bad data that names the file, the request (index, line, id) and the nearest known
// key.
Job read_spec(const std::filesystem::path& path, const std::string& model_override,
              const GenerateCheck& check_generate, const FileReaders& readers);

}  // namespace diffuse

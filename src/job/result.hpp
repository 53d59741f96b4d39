#pragma once
// A result: what came of a job, in job order. Values only; reading and writing them is result_file.hpp's
// part.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.hpp"
#include "core/media.hpp"
#include "core/transcript.hpp"

namespace diffuse {

enum class Status : std::uint8_t {
  done,        // answered
  bad,         // the request cannot be answered; `message` says why; the rest of the job ran
  unfinished,  // the job stopped first: the same command goes on
};
enum class Finish : std::uint8_t { none, end_of_text, stop_string, length };

constexpr std::string_view name_of(Status status) {
  switch (status) {
    case Status::done:
      return "done";
    case Status::bad:
      return "bad";
    case Status::unfinished:
      return "unfinished";
  }
  return "?";
}

constexpr std::string_view name_of(Finish finish) {
  switch (finish) {
    case Finish::none:
      return "none";
    case Finish::end_of_text:
      return "end_of_text";
    case Finish::stop_string:
      return "stop_string";
    case Finish::length:
      return "length";
  }
  return "?";
}

// A digest of the rows that left each layer, for one sample: value [layer * positions + position]. Layer 0 is
// what left the front (the embeddings), layer i what left the i-th block, so there are depth + 1 of them. The
// last generated token is never fed back, so positions = prompt + generated - 1 (or prompt, when nothing was
// generated). Where it was made by several rows side by side (beams, guidance), so many times as much.
struct Trace {
  std::int64_t layers = 0;
  std::int64_t positions = 0;
  std::vector<std::uint64_t> digests;
};

// Log-probabilities of generated tokens: the chosen one's, and the `top` best beside it.
struct Logprobs {
  std::vector<float> chosen;  // [tokens]
  std::int64_t top = 0;
  std::vector<std::int32_t> top_ids;  // [tokens * top]
  std::vector<float> top_values;      // [tokens * top]
};

struct Sample {
  std::vector<std::int32_t> tokens;  // generated ids only; an end-of-text id that ended it is kept
  std::string text;  // decoded without special tokens, cut before a stop string; empty without a tokenizer
  Finish finish = Finish::none;
  Logprobs logprobs;                          // empty unless asked for
  Trace trace;                                // empty unless traced
  std::optional<Transcript> transcript = {};  // of speech; `text` is its text, `tokens` all that were kept
  // What the answer is, where it is no text. Of sound, `tokens` are its codes, [codebooks, frames].
  std::optional<MediaArray> media = {};
  std::optional<LatentArray> latent = {};  // of a picture or a video, where it was asked for
};

struct RequestResult {
  std::string id;
  Status status = Status::unfinished;
  std::string message;     // why it is bad; empty otherwise
  std::uint64_t seed = 0;  // that was used
  std::int64_t prompt_tokens = 0;
  std::string sha256;           // over prompt and generated ids of all samples
  double seconds = 0;           // from admission to the last token
  std::vector<Sample> samples;  // `n` of them once done
};

struct Result {
  std::int64_t format_version = 1;
  std::vector<RequestResult> requests;  // in job order
  Json timing = Json::object();         // load, prefill, decode seconds; tokens/s; bubble a rank
  Json provenance = Json::object();     // command, versions, hosts, hashes, compute mode, SIMD target
  Json verification = Json::object();   // what `verify` or `compare` found
};

}  // namespace diffuse

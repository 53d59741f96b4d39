#pragma once
// A job: what is asked of a model. Values only; reading and writing them is job_file.hpp's part.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/json.hpp"
#include "core/sound.hpp"

namespace diffuse {

struct Prompt {
  std::string text;  // valid UTF-8: repaired when it was read
};
struct Messages {
  Json value;  // a list of {role, content}, as a chat template takes it
};
struct Tokens {
  std::vector<std::int32_t> ids;  // used as they are
};

struct NoText {};  // media alone

// What its job file spoiled (messages that are no JSON, a negative token id): the request gets Status::bad
// and `why`, the rest of the job runs. An alternative and not a flag, so that nobody runs it by oversight.
struct Unusable {
  std::string why;
};

struct Request {
  std::string id;  // the user's name for it; its index in the job where none was given
  std::variant<Prompt, Messages, Tokens, NoText, Unusable> input;
  Json generate = Json::object();    // what differs from the job's `generate`
  std::optional<Sound> audio = {};   // at any rate; never without samples, all of them finite
  std::string language = {};         // of speech, or what a prompt is to be translated into; empty: not given
  std::string task = {};             // transcribe, translate; empty: not given
  std::string negative_prompt = {};  // what a guided picture is to stay away from; empty: nothing
  // Of a picture: what it starts from, the elements of [channels, frames, height, width] as its model has
  // them, all finite; empty: noise drawn of the seed.
  std::vector<float> latent = {};
  std::vector<std::int64_t> latent_shape = {};  // those four sizes; empty: not said
};

struct Job {
  std::int64_t format_version = 1;
  std::string model;               // folder; empty: --model says it
  Json generate = Json::object();  // defaults of every request
  std::vector<Request> requests;
  std::string sha256;  // of the job file's bytes; empty for a job that was never a file
};

}  // namespace diffuse

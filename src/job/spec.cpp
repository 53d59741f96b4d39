#include "job/spec.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/utf8.hpp"
#include "job/file_reader.hpp"
#include "job/names.hpp"

namespace diffuse {
namespace {

constexpr std::uint64_t kLargestSpec = 1ULL << 30;
constexpr std::array<std::string_view, 3> kJobKeys = {"model", "generate", "requests"};
constexpr std::array<std::string_view, 10> kRequestKeys = {
    "prompt", "messages", "tokens",   "generate",        "id",
    "audio",  "task",     "language", "negative_prompt", "latent"};

// "job spec 'x.json': request 3", and " ('its id')" behind it once that is known.
std::string with_id(const std::string& where, const Json& request) {
  const auto id = request.find("id");
  if (id == request.end() || !id->is_string()) return where;
  const auto text = id->get<std::string>();
  return where + " ('" + visible(utf8_prefix(text, 80)) + "')";
}

std::int32_t token_of(const Json& value, const std::string& where) {
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() &&
                      value.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()) &&
                    value.get<std::int64_t>() >= 0;
  if (!fits) throw_bad_data(where + ": `tokens` holds " + value.dump() + ", which is no token id");
  return value.get<std::int32_t>();
}

// What reading a spec takes beside the text itself.
struct SpecContext {
  std::filesystem::path folder;  // files are named relative to it
  const GenerateCheck& check_generate;
  const FileReaders& readers;
};

// Empty where the key is missing or null.
std::string text_of(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  if (!found->is_string() || found->get_ref<const std::string&>().empty())
    throw_bad_data(where + ": `" + key + "` is not a text");
  return found->get<std::string>();
}

std::optional<Sound> audio_of(const Json& object, const std::string& where, const SpecContext& context) {
  const auto name = text_of(object, "audio", where);
  if (name.empty()) return std::nullopt;
  try {
    return context.readers.sound(context.folder / name);
  } catch (const Error& problem) {
    throw Error(problem.code(), where + ": `audio`: " + problem.what());
  }
}

// [channels, frames, height, width], also as a batch of one; of a flat list nothing is known.
std::vector<std::int64_t> latent_shape(std::vector<std::int64_t> shape, const std::string& name) {
  if (shape.size() == 5 && shape.front() == 1) shape.erase(shape.begin());
  if (shape.size() == 4) return shape;
  if (shape.size() == 1) return {};
  throw_bad_data("'" + name + "' has the shape " + shape_text(shape) +
                 ", and [channels, frames, height, width] is expected");
}

void take_latent(Request& request, const Json& object, const std::string& where, const SpecContext& context) {
  const auto name = text_of(object, "latent", where);
  if (name.empty()) return;
  try {
    auto file = context.readers.latent(context.folder / name);
    request.latent_shape = latent_shape(std::move(file.shape), name);
    request.latent = std::move(file.values);
    if (const auto flaw = job_detail::latent_flaw(request.latent, request.latent_shape); !flaw.empty())
      throw_bad_data("'" + name + "' has " + flaw);
  } catch (const Error& problem) {
    throw Error(problem.code(), where + ": `latent`: " + problem.what());
  }
}

decltype(Request::input) input_of(const Json& object, const std::string& where) {
  constexpr std::array<const char*, 3> kInputs = {"prompt", "messages", "tokens"};
  const auto given = std::ranges::count_if(kInputs, [&](const char* key) { return object.contains(key); });
  if (given == 0 && object.contains("audio")) return NoText{};
  if (given != 1)
    throw_bad_data(where + ": it has " + (given == 0 ? "none" : std::to_string(given)) +
                   " of `prompt`, `messages` and `tokens`, and needs exactly one" +
                   (given == 0 ? ", or `audio`" : ""));
  if (const auto prompt = object.find("prompt"); prompt != object.end()) {
    if (!prompt->is_string()) throw_bad_data(where + ": `prompt` is not a string");
    return Prompt{prompt->get<std::string>()};
  }
  if (const auto messages = object.find("messages"); messages != object.end()) {
    job_detail::check_messages(*messages, where);
    return Messages{*messages};
  }
  const Json& tokens = object["tokens"];
  if (!tokens.is_array()) throw_bad_data(where + ": `tokens` is not a list of token ids");
  Tokens ids;
  for (const auto& value : tokens) ids.ids.push_back(token_of(value, where));
  return ids;
}

Json generate_of(const Json& object, const std::string& where, const GenerateCheck& check) {
  const auto generate = object.find("generate");
  if (generate == object.end()) return Json::object();
  if (!generate->is_object()) throw_bad_data(where + ": `generate` is not an object");
  check(*generate, where + ": generate");
  return *generate;
}

Request request_of(const Json& value, std::size_t index, const std::string& place,
                   const SpecContext& context) {
  Request request;
  request.id = std::to_string(index);
  if (value.is_string()) {
    request.input = Prompt{value.get<std::string>()};
    return request;
  }
  if (!value.is_object()) throw_bad_data(place + ": neither an object nor a prompt string");
  const std::string where = with_id(place, value);
  for (const auto& [key, item] : value.items()) {
    if (std::ranges::find(kRequestKeys, key) != kRequestKeys.end()) continue;
    if (const auto later = job_detail::not_yet(key); !later.empty()) throw_bad_data(where + ": " + later);
    throw_bad_data(where + ": " + job_detail::unknown_key(key, kRequestKeys));
  }
  if (const auto id = value.find("id"); id != value.end()) {
    if (!id->is_string()) throw_bad_data(where + ": `id` is not a string");
    request.id = id->get<std::string>();
    job_detail::check_id(request.id, where);
  }
  request.input = input_of(value, where);
  request.generate = generate_of(value, where, context.check_generate);
  request.language = text_of(value, "language", where);
  request.task = text_of(value, "task", where);
  request.audio = audio_of(value, where, context);
  job_detail::check_speech(request.language, request.task, request.audio.has_value(), where);
  // An empty one says what leaving it out says.
  if (const auto found = value.find("negative_prompt"); found != value.end() && *found != Json(""))
    request.negative_prompt = text_of(value, "negative_prompt", where);
  take_latent(request, value, where, context);
  return request;
}

void read_object(Job& job, const std::string& text, const std::filesystem::path& path,
                 const std::string& what, const SpecContext& context) {
  const Json spec = parse_json(text, what, DuplicateKeys::refuse);
  if (!spec.is_object()) throw_bad_data(what + ": not an object of `model`, `generate` and `requests`");
  for (const auto& [key, value] : spec.items()) {
    if (std::ranges::find(kJobKeys, key) == kJobKeys.end())
      throw_bad_data(what + ": " + job_detail::unknown_key(key, kJobKeys));
  }
  if (const auto model = spec.find("model"); model != spec.end()) {
    if (!model->is_string() || model->get<std::string>().empty())
      throw_bad_data(what + ": `model` is not a folder's name");
    job.model = std::filesystem::absolute(path.parent_path() / model->get<std::string>()).lexically_normal();
  }
  job.generate = generate_of(spec, what, context.check_generate);
  const auto requests = spec.find("requests");
  if (requests == spec.end()) throw_bad_data(what + ": `requests` is missing");
  if (!requests->is_array()) throw_bad_data(what + ": `requests` is not a list");
  for (std::size_t i = 0; i < requests->size(); ++i)
    job.requests.push_back(request_of((*requests)[i], i, what + ": request " + std::to_string(i), context));
}

void read_lines(Job& job, std::string_view text, const std::string& what, const SpecContext& context) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::size_t index = job.requests.size();
    const std::string place =
        what + ": line " + std::to_string(number) + ", request " + std::to_string(index);
    job.requests.push_back(request_of(parse_json(line, place, DuplicateKeys::refuse), index, place, context));
  }
}

}  // namespace

Job read_spec(const std::filesystem::path& path, const std::string& model_override,
              const GenerateCheck& check_generate, const FileReaders& readers) {
  const std::string what = "job spec '" + path.string() + "'";
  const std::string text = repair_utf8(read_file(path, kLargestSpec));
  const SpecContext context = {path.parent_path(), check_generate, readers};
  Job job;
  if (path.extension() == ".jsonl" || path.extension() == ".ndjson") {
    read_lines(job, text, what, context);
  } else {
    read_object(job, text, path, what, context);
  }
  if (!model_override.empty()) job.model = std::filesystem::absolute(model_override).lexically_normal();
  job_detail::check_unique_ids(job, what);
  return job;
}

}  // namespace diffuse

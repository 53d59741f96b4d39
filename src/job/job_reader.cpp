#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <unordered_set>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "job/file_reader.hpp"
#include "job/layout.hpp"
#include "job/names.hpp"

namespace diffuse::job_detail {
namespace {

constexpr std::array<std::string_view, 11> kMembers = {
    "prompts", "messages", "tokens", "generate",        "id",    "kind",
    "audio",   "language", "task",   "negative_prompt", "latent"};
constexpr std::size_t kKinds = 4;
constexpr std::array<std::string_view, 3> kAttributes = {"format_version", "model", "generate"};

// Media, and the singular of a name that h5py users are likely to write.
std::string later_member(const std::string& name) {
  const auto later = not_yet(name);
  return later.empty() && name == "media" ? not_yet("image") : later;
}

// What a user may have meant to be read, where it stands in an attribute of something else than the root.
constexpr std::array<std::string_view, 7> kPlainMembers = {
    "data", "offsets", "ids", "rate", "sample_rate", "sampling_rate", "samplerate"};

void check_attributes_of(const h5::Input& file, const std::string& path) {
  const auto is_in = [](const auto& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  for (const auto& name : file.attributes(path)) {
    if (!is_in(kMembers, name) && !is_in(kAttributes, name) && !is_in(kPlainMembers, name)) continue;
    file.fail(path, "has an attribute `" + name +
                        "`, which is not read: the rate of sound is the dataset "
                        "'audio/rate', and `generate` and `model` are attributes of the file itself");
  }
}

void check_names(const h5::Input& file) {
  for (const auto& name : file.names("/")) {
    if (std::ranges::find(kMembers, name) != kMembers.end()) continue;
    if (const auto later = later_member(name); !later.empty()) throw_bad_data(file.what() + ": " + later);
    throw_bad_data(file.what() + ": " + unknown_key(name, kMembers));
  }
  for (const auto& name : file.attributes()) {
    if (std::ranges::find(kAttributes, name) == kAttributes.end())
      throw_bad_data(file.what() + ": attributes: " + unknown_key(name, kAttributes));
  }
  for (const auto& name : file.names("/")) {
    check_attributes_of(file, name);
    if (!file.is_group(name)) continue;
    for (const auto& member : file.names(name)) check_attributes_of(file, name + "/" + member);
  }
}

// A dataset of one entry a request, or nothing where it is missing.
std::vector<std::string> entries(h5::Input& file, const std::string& name, std::size_t requests) {
  if (!file.has(name)) return {};
  auto found = file.strings(name);
  if (found.size() != requests)
    file.fail(name, "has " + std::to_string(found.size()) + " entries for " + std::to_string(requests) +
                        " requests");
  return found;
}

class TokenLists {
 public:
  explicit TokenLists(h5::Input& file) {
    for (const auto& name : file.names("tokens"))
      if (name != "ids" && name != "offsets")
        file.fail("tokens/" + name, "is not known; `offsets` and `ids` are");
    ids_ = file.signed_numbers("tokens/ids");
    offsets_ = file.offsets("tokens/offsets", ids_.size());
  }

  std::size_t size() const { return offsets_.size() - 1; }

  decltype(Request::input) take(std::size_t index) const {
    Tokens tokens;
    tokens.ids.reserve(offsets_[index + 1] - offsets_[index]);
    for (auto at = offsets_[index]; at < offsets_[index + 1]; ++at) {
      if (ids_[at] < 0 || ids_[at] > std::numeric_limits<std::int32_t>::max())
        return Unusable{"token id " + std::to_string(ids_[at]) + " is not within 0 to 2147483647"};
      tokens.ids.push_back(static_cast<std::int32_t>(ids_[at]));
    }
    return tokens;
  }

 private:
  std::vector<std::int64_t> ids_;
  std::vector<std::uint64_t> offsets_;
};

// The sound of the requests: samples behind each other, and a rate for each or one for all.
class Recordings {
 public:
  explicit Recordings(h5::Input& file) {
    if (!file.is_group("audio")) file.fail("audio", "should be a group of `data`, `offsets` and `rate`");
    for (const auto& name : file.names("audio"))
      if (name != "data" && name != "offsets" && name != "rate")
        file.fail("audio/" + name, "is not known; `data`, `offsets` and `rate` are");
    samples_ = file.samples("audio/data");
    // One recording needs no offsets.
    offsets_ = file.has("audio/offsets") ? file.offsets("audio/offsets", samples_.size())
                                         : std::vector<std::uint64_t>{0, samples_.size()};
    rates_ = file.signed_numbers("audio/rate");
    if (rates_.size() == 1) rates_.assign(size(), rates_.front());
    if (rates_.size() != size())
      file.fail("audio/rate", "has " + std::to_string(rates_.size()) + " entries for " +
                                  std::to_string(size()) + " recordings");
  }

  std::size_t size() const { return offsets_.size() - 1; }

  void put(Request& request, std::size_t index) const {
    const auto first = static_cast<std::ptrdiff_t>(offsets_[index]);
    const auto end = static_cast<std::ptrdiff_t>(offsets_[index + 1]);
    if (rates_[index] == 0 && first == end) {
      if (std::holds_alternative<NoText>(request.input))
        request.input = Unusable{"it has neither text nor sound"};
      return;
    }
    Sound sound = {{samples_.begin() + first, samples_.begin() + end}, rates_[index]};
    if (const auto flaw = sound_flaw(sound.samples, sound.rate); !flaw.empty()) {
      request.input = Unusable{"its sound has " + flaw};
    } else {
      request.audio = std::move(sound);
    }
  }

 private:
  std::vector<float> samples_;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::int64_t> rates_;
};

// What pictures start from: elements behind each other, an empty stretch for a request that has none, and the
// sizes of each. Data of four dimensions are one latent, of five one a request.
class Latents {
 public:
  explicit Latents(h5::Input& file) {
    if (!file.is_group("latent")) file.fail("latent", "should be a group of `data` and `offsets`");
    for (const auto& name : file.names("latent"))
      if (name != "data" && name != "offsets" && std::ranges::find(kSizes, name) == kSizes.end())
        file.fail("latent/" + name,
                  "is not known; `data`, `offsets`, `channels`, `frames`, `height` and `width` are");
    elements_ = file.samples("latent/data", kSizes.size() + 1);
    const auto shape = file.shape("latent/data");
    if (shape.size() > 1) {
      take_shape(file, shape);
      return;
    }
    offsets_ = file.has("latent/offsets") ? file.offsets("latent/offsets", elements_.size())
                                          : std::vector<std::uint64_t>{0, elements_.size()};
    for (const auto* name : kSizes) {
      if (!file.has("latent/" + std::string(name))) continue;
      auto& sizes = sizes_.emplace_back(file.signed_numbers("latent/" + std::string(name)));
      if (sizes.size() != size())
        file.fail("latent/" + std::string(name), "has " + std::to_string(sizes.size()) + " entries for " +
                                                     std::to_string(size()) + " latents");
    }
    if (!sizes_.empty() && sizes_.size() != kSizes.size())
      file.fail("latent", "has some of `channels`, `frames`, `height` and `width`, and needs all or none");
  }

  std::size_t size() const { return offsets_.size() - 1; }

  void put(Request& request, std::size_t index) const {
    const auto first = elements_.begin() + static_cast<std::ptrdiff_t>(offsets_[index]);
    const auto end = elements_.begin() + static_cast<std::ptrdiff_t>(offsets_[index + 1]);
    std::vector<float> latent(first, end);
    std::vector<std::int64_t> shape;
    for (const auto& sizes : sizes_) shape.push_back(sizes[index]);
    if (std::ranges::all_of(shape, [](auto size) { return size == 0; })) shape.clear();  // not said
    if (const auto flaw = latent_flaw(latent, shape); !flaw.empty()) {
      request.input = Unusable{"its latent has " + flaw};
    } else {
      request.latent = std::move(latent);
      request.latent_shape = std::move(shape);
    }
  }

 private:
  static constexpr std::array<const char*, 4> kSizes = {"channels", "frames", "height", "width"};

  void take_shape(const h5::Input& file, std::span<const std::uint64_t> shape) {
    if (shape.size() < kSizes.size())
      file.fail("latent/data",
                "has " + std::to_string(shape.size()) +
                    " dimensions; one, four (channels, frames, height, width) or five (those of "
                    "each request) are known");
    if (file.names("latent").size() > 1)
      file.fail("latent", "says by the dimensions of `data` what its other members say; leave those out");
    if (elements_.empty()) file.fail("latent/data", "has a dimension of 0");
    const auto count = shape.size() > kSizes.size() ? shape.front() : 1;
    offsets_ = {0};
    for (std::uint64_t i = 1; i <= count; ++i) offsets_.push_back(i * (elements_.size() / count));
    for (const auto each : shape.last(kSizes.size()))
      sizes_.emplace_back(count, static_cast<std::int64_t>(each));
  }

  std::vector<float> elements_;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::vector<std::int64_t>> sizes_;  // in the order of kSizes, of each latent; empty: not said
};

decltype(Request::input) messages_of(const std::string& text) {
  try {
    Messages messages{parse_json(repair_utf8(text), "messages")};
    check_messages(messages.value, "messages");
    return messages;
  } catch (const Error& problem) {
    return Unusable{problem.what()};
  }
}

// The inputs, one kind after the other as `kind` says, or all of the one kind that is there. `recordings`: of
// the sound, 0 where there is none.
std::vector<Request> requests_of(h5::Input& file, std::size_t recordings) {
  std::vector<std::string> prompts;
  std::vector<std::string> messages;
  std::optional<TokenLists> tokens;
  std::vector<std::string> present;
  if (file.has("prompts")) {
    prompts = file.strings("prompts");
    present.emplace_back("prompts");
  }
  if (file.has("messages")) {
    messages = file.strings("messages");
    present.emplace_back("messages");
  }
  if (file.has("tokens")) {
    if (!file.is_group("tokens")) file.fail("tokens", "should be a group of `offsets` and `ids`");
    tokens.emplace(file);
    present.emplace_back("tokens");
  }
  if (present.empty() && !file.has("audio"))
    throw_bad_data(file.what() + ": it has none of `prompts`, `messages`, `tokens` and `audio`");
  const std::size_t token_lists = tokens ? tokens->size() : 0;
  std::vector<std::uint8_t> kinds;
  if (file.has("kind")) {
    kinds = file.bytes("kind");
  } else if (present.size() > 1) {
    throw_bad_data(file.what() + ": it has both `" + present[0] + "` and `" + present[1] +
                   "`, and no `kind` that says which request is which");
  } else if (present.empty()) {
    kinds.assign(recordings, layout::kNoText);
  } else {
    const auto kind = present[0] == "prompts"    ? layout::kPrompt
                      : present[0] == "messages" ? layout::kMessages
                                                 : layout::kTokens;
    kinds.assign(prompts.size() + messages.size() + token_lists, kind);
  }

  std::vector<Request> requests(kinds.size());
  std::array<std::size_t, kKinds> used{};
  const std::array<std::size_t, kKinds> there = {
      prompts.size(), messages.size(), token_lists,
      static_cast<std::size_t>(std::ranges::count(kinds, layout::kNoText))};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const std::uint8_t kind = kinds[i];
    if (kind >= kKinds) file.fail("kind", "holds a number other than 0, 1, 2 and 3");
    const std::size_t at = used[kind]++;
    if (at >= there[kind]) file.fail("kind", "asks for more requests of a kind than there are");
    if (kind == layout::kPrompt) requests[i].input = Prompt{repair_utf8(prompts[at])};
    if (kind == layout::kMessages) requests[i].input = messages_of(messages[at]);
    if (kind == layout::kTokens) requests[i].input = tokens->take(at);
    if (kind == layout::kNoText) requests[i].input = NoText{};
  }
  if (used != there) file.fail("kind", "leaves out requests that are there");
  return requests;
}

void take_generate(Request& request, const std::string& text) {
  if (text.empty()) return;
  try {
    request.generate = parse_json(repair_utf8(text), "generate", DuplicateKeys::refuse);
    if (!request.generate.is_object()) throw_bad_data("generate: not a JSON object");
  } catch (const Error& problem) {
    request.generate = Json::object();
    request.input = Unusable{problem.what()};
  }
}

// Sound, language and task of each request.
void take_speech(h5::Input& file, std::vector<Request>& requests,
                 const std::optional<Recordings>& recordings) {
  if (recordings && recordings->size() != requests.size())
    file.fail("audio/offsets", "has " + std::to_string(recordings->size()) + " recordings for " +
                                   std::to_string(requests.size()) +
                                   " requests (an empty one and rate 0: none)");
  const auto languages = entries(file, "language", requests.size());
  const auto tasks = entries(file, "task", requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    auto& request = requests[i];
    if (recordings) {
      recordings->put(request, i);
    } else if (std::holds_alternative<NoText>(request.input)) {
      request.input = Unusable{"it has neither text nor sound"};
    }
    if (std::holds_alternative<Unusable>(request.input)) continue;
    if (!languages.empty()) request.language = repair_utf8(languages[i]);
    if (!tasks.empty()) request.task = repair_utf8(tasks[i]);
    try {
      check_speech(request.language, request.task, request.audio.has_value(), "speech");
    } catch (const Error& problem) {
      request = {request.id, Unusable{problem.what()}};
    }
  }
}

// What a picture is to stay away from, and what it starts from.
void take_picture(h5::Input& file, std::vector<Request>& requests) {
  const auto negative = entries(file, "negative_prompt", requests.size());
  std::optional<Latents> latents;
  if (file.has("latent")) latents.emplace(file);
  if (latents && latents->size() != requests.size())
    file.fail("latent/offsets", "has " + std::to_string(latents->size()) + " latents for " +
                                    std::to_string(requests.size()) + " requests (an empty one: none)");
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (std::holds_alternative<Unusable>(requests[i].input)) continue;
    if (!negative.empty()) requests[i].negative_prompt = repair_utf8(negative[i]);
    if (latents) latents->put(requests[i], i);
  }
}

}  // namespace

void check_unique_ids(const Job& job, const std::string& what) {
  std::unordered_set<std::string_view> seen;
  for (const auto& request : job.requests) {
    check_id(request.id, what);
    if (!seen.insert(request.id).second)
      throw_bad_data(what + ": two requests have the id '" + request.id +
                     "' (a request without one is named by its index)");
  }
}

Job job_of(h5::Input& file) {
  if (file.has("sample") && file.has("request"))
    throw_bad_data(file.what() + ": it is a result and not a job");
  Job job;
  const auto attributes = file.attributes();
  const auto has = [&](std::string_view name) {
    return std::ranges::find(attributes, name) != attributes.end();
  };
  if (has("format_version")) job.format_version = file.number_attribute("format_version");
  layout::check_version(job.format_version, layout::kJobVersion, file.what());
  check_names(file);
  if (has("model")) job.model = file.text_attribute("model");
  if (has("generate")) {
    const std::string what = file.what() + ": attribute `generate`";
    if (const auto text = file.text_attribute("generate"); !text.empty())
      job.generate = parse_json(text, what, DuplicateKeys::refuse);
    if (!job.generate.is_object()) throw_bad_data(what + ": not a JSON object");
  }
  std::optional<Recordings> recordings;
  if (file.has("audio")) recordings.emplace(file);
  job.requests = requests_of(file, recordings ? recordings->size() : 0);
  take_speech(file, job.requests, recordings);
  take_picture(file, job.requests);
  const auto generate = entries(file, "generate", job.requests.size());
  const auto ids = entries(file, "id", job.requests.size());
  for (std::size_t i = 0; i < job.requests.size(); ++i) {
    auto& request = job.requests[i];
    request.id = ids.empty() || ids[i].empty() ? std::to_string(i) : repair_utf8(ids[i]);
    if (!generate.empty()) take_generate(request, generate[i]);
  }
  check_unique_ids(job, file.what());
  return job;
}

}  // namespace diffuse::job_detail

#include "text/speech_tokens.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kMostHeads = 1 << 16;

class Reader {
 public:
  Reader(const Json& object, std::int64_t vocab, const std::string& what)
      : object_(object), vocab_(vocab), what_(what) {}

  bool has(const char* name) const {
    const auto found = object_.find(name);
    return found != object_.end() && !found->is_null();
  }
  std::int32_t id_of(const Json& value, const std::string& name) const {
    if (!value.is_number_integer() || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() >= vocab_)
      throw_bad_data(what_ + ": `" + name + "` holds " + value.dump() + ", which is no token id below " +
                     std::to_string(vocab_));
    return value.get<std::int32_t>();
  }
  std::int32_t id(const char* name) const {
    if (!has(name)) throw_bad_data(what_ + ": `" + name + "` is missing; a speech model's folder states it");
    return id_of(object_[name], name);
  }
  std::vector<std::int32_t> ids(const char* name) const {
    std::vector<std::int32_t> found;
    if (!has(name)) return found;
    if (!object_[name].is_array()) throw_bad_data(what_ + ": `" + name + "` is not a list of token ids");
    for (const auto& value : object_[name]) {
      // openai's files write -1 for "the usual ones", which are written out beside it.
      if (value.is_number_integer() && value.get<std::int64_t>() == -1) continue;
      found.push_back(id_of(value, name));
    }
    std::ranges::sort(found);
    return found;
  }
  const Json& object(const char* name) const {
    if (!object_[name].is_object()) throw_bad_data(what_ + ": `" + name + "` is not an object");
    return object_[name];
  }
  std::vector<AlignmentHead> heads(const char* name) const {
    std::vector<AlignmentHead> found;
    if (!has(name)) return found;
    const auto wrong = [&] { throw_bad_data(what_ + ": `" + name + "` is not a list of [layer, head]"); };
    const auto number = [&](const Json& value) {
      if (!value.is_number_integer() || value.get<std::int64_t>() < 0 ||
          value.get<std::int64_t>() > kMostHeads)
        wrong();
      return value.get<std::int64_t>();
    };
    if (!object_[name].is_array()) wrong();
    for (const auto& pair : object_[name]) {
      if (!pair.is_array() || pair.size() != 2) wrong();
      found.push_back({number(pair[0]), number(pair[1])});
    }
    return found;
  }

 private:
  const Json& object_;
  std::int64_t vocab_;
  const std::string& what_;
};

}  // namespace

std::optional<std::int32_t> SpeechTokens::language_id(std::string_view code) const {
  for (const auto& language : languages)
    if (language.code == code) return language.id;
  return std::nullopt;
}

std::string_view SpeechTokens::language_of(std::int32_t id) const {
  for (const auto& language : languages)
    if (language.id == id) return language.code;
  return {};
}

SpeechTokens parse_speech_tokens(const Json& generation_config, std::int64_t vocab, const std::string& what) {
  if (!generation_config.is_object()) throw_bad_data(what + ": not a JSON object");
  const Reader in(generation_config, vocab, what);
  SpeechTokens tokens;
  tokens.vocab = vocab;
  tokens.start = in.id("decoder_start_token_id");
  tokens.end = in.id("eos_token_id");
  tokens.no_timestamps = in.id("no_timestamps_token_id");
  tokens.first_timestamp = tokens.no_timestamps + 1;
  tokens.no_speech = tokens.no_timestamps - 1;
  // Where it is not stated it lies before <|nospeech|>, in every vocabulary of these models.
  tokens.previous = in.has("prev_sot_token_id") ? in.id("prev_sot_token_id") : tokens.no_timestamps - 2;
  if (in.has("lang_to_id")) {
    for (const auto& [token, value] : in.object("lang_to_id").items()) {
      const bool marked = token.size() > 4 && token.starts_with("<|") && token.ends_with("|>");
      tokens.languages.push_back(
          {marked ? token.substr(2, token.size() - 4) : token, in.id_of(value, "lang_to_id")});
    }
    std::ranges::sort(tokens.languages, {}, &LanguageToken::id);
  }
  if (in.has("task_to_id")) {
    const auto& tasks = in.object("task_to_id");
    if (tasks.contains("transcribe")) tokens.transcribe = in.id_of(tasks["transcribe"], "task_to_id");
    if (tasks.contains("translate")) tokens.translate = in.id_of(tasks["translate"], "task_to_id");
  }
  const bool one_language = in.has("is_multilingual") && generation_config["is_multilingual"] == false;
  if (one_language) tokens.languages.clear();
  if (tokens.multilingual() && (tokens.transcribe < 0 || tokens.translate < 0))
    throw_bad_data(what + ": it has languages but `task_to_id` does not name transcribe and translate");
  tokens.suppress = in.ids("suppress_tokens");
  tokens.suppress_first = in.ids("begin_suppress_tokens");
  if (in.has("max_initial_timestamp_index"))
    tokens.max_initial_timestamp =
        in.id_of(generation_config["max_initial_timestamp_index"], "max_initial_timestamp_index");
  tokens.alignment_heads = in.heads("alignment_heads");
  return tokens;
}

void check_alignment_heads(const Json& generation_config, std::span<const std::int64_t> heads,
                           const std::string& what) {
  if (!generation_config.is_object()) return;
  const auto named = Reader(generation_config, 0, what).heads("alignment_heads");
  for (std::size_t i = 0; i < named.size(); ++i) {
    const auto& [layer, head] = named[i];
    const auto entry = what + ": `alignment_heads`: entry " + std::to_string(i) + ", [" +
                       std::to_string(layer) + ", " + std::to_string(head) + "], names ";
    if (layer >= std::ssize(heads))
      throw_bad_data(entry + "layer " + std::to_string(layer) + ", and the decoder's last one is " +
                     std::to_string(std::ssize(heads) - 1));
    const auto there = heads[static_cast<std::size_t>(layer)];
    if (head >= there)
      throw_bad_data(entry + "head " + std::to_string(head) + ", and that layer has " +
                     std::to_string(there));
  }
}

}  // namespace diffuse

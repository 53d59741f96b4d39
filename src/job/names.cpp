#include "job/names.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/utf8.hpp"

namespace diffuse::job_detail {
namespace {

constexpr std::size_t kLongestId = 200;
constexpr std::size_t kLongestWord = 64;  // of a misspelt key: what is longer resembles nothing

constexpr std::array<std::string_view, 11> kMediaKeys = {"image",     "images",      "video",     "videos",
                                                         "audio",     "audios",      "image_url", "video_url",
                                                         "audio_url", "input_audio", "mask"};
constexpr std::array<std::string_view, 2> kLaterKeys = {"prompt_2", "context"};
constexpr std::array<std::string_view, 3> kMessageKeys = {"role", "content", "name"};
constexpr std::array<std::string_view, 2> kPartKeys = {"type", "text"};
constexpr std::array<std::string_view, 1> kPartTypes = {"text"};

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> rows(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) rows[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, replaced});
    }
  }
  return rows[a.size()][b.size()];
}

void check_content(const Json& content, const std::string& what) {
  if (content.is_string()) return;
  if (!content.is_array()) throw_bad_data(what + ": `content` is neither a string nor a list of parts");
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string where = what + ", part " + std::to_string(i);
    const Json& part = content[i];
    if (!part.is_object())
      throw_bad_data(where + ": not an object like {\"type\": \"text\", \"text\": \"…\"}");
    const auto type = part.find("type");
    if (type == part.end() || !type->is_string()) throw_bad_data(where + ": `type` is missing or no string");
    const auto name = type->get<std::string>();
    if (const auto later = not_yet(name); !later.empty()) throw_bad_data(where + ": " + later);
    if (name != "text")
      throw_bad_data(where + ": unknown part type '" + visible(name) + "'; the nearest known one is '" +
                     std::string(nearest(name, kPartTypes)) + "'");
    for (const auto& [key, value] : part.items()) {
      if (std::ranges::find(kPartKeys, key) == kPartKeys.end())
        throw_bad_data(where + ": " + unknown_key(key, kPartKeys));
    }
    if (!part.contains("text") || !part["text"].is_string())
      throw_bad_data(where + ": `text` is missing or no string");
  }
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> known) {
  const auto shown = word.substr(0, kLongestWord);
  return *std::ranges::min_element(known, {}, [&](std::string_view name) { return distance(shown, name); });
}

std::string unknown_key(std::string_view word, std::span<const std::string_view> known) {
  return "unknown key '" + visible(utf8_prefix(word, kLongestWord)) + "'; the nearest known one is '" +
         std::string(nearest(word, known)) + "'";
}

std::string not_yet(std::string_view key) {
  if (std::ranges::find(kMediaKeys, key) != kMediaKeys.end())
    return "'" + std::string(key) + "' names media, and this build reads no pictures or videos yet";
  if (std::ranges::find(kLaterKeys, key) != kLaterKeys.end())
    return "'" + std::string(key) + "' is for diffusion models, which this build does not run yet";
  return {};
}

void check_id(const std::string& id, const std::string& what) {
  if (id.empty()) throw_bad_data(what + ": the id is empty");
  if (id.size() > kLongestId)
    throw_bad_data(what + ": the id is longer than " + std::to_string(kLongestId) + " bytes");
  if (visible(id) != id || id.find_first_of("\n\t") != std::string::npos)
    throw_bad_data(what + ": the id '" + visible(id) + "' holds control characters");
}

std::string latent_flaw(std::span<const float> latent, std::span<const std::int64_t> shape) {
  auto left = static_cast<std::int64_t>(latent.size());
  bool fits = shape.empty() || shape.size() == 4;
  for (const auto size : shape) {
    fits = fits && size > 0 && left % size == 0;
    if (fits) left /= size;
  }
  if (!fits || (!shape.empty() && left != 1))
    return std::to_string(latent.size()) + " elements and the shape " + shape_text(shape) +
           ", which is not [channels, frames, height, width] of them";
  const auto bad = std::ranges::find_if(latent, [](float value) { return !std::isfinite(value); });
  if (bad == latent.end()) return {};
  return "an element that is " + std::string(std::isnan(*bad) ? "NaN" : "infinite") + " (number " +
         std::to_string(bad - latent.begin()) + ")";
}

void check_speech(const std::string& language, const std::string& task, bool audio, const std::string& what) {
  const auto plain = [&](const std::string& text, const char* name) {
    if (text.size() > kLongestWord || visible(text) != text)
      throw_bad_data(what + ": `" + name + "` is not the name of one");
  };
  plain(language, "language");
  plain(task, "task");
  if (!task.empty() && task != "transcribe" && task != "translate")
    throw_bad_data(what + ": `task` is '" + task + "'; transcribe and translate are known");
  if (!audio && !task.empty())
    throw_bad_data(what + ": `task` says what to do with `audio`, and it has none");
}

void check_messages(const Json& messages, const std::string& what) {
  if (!messages.is_array()) throw_bad_data(what + ": `messages` is not a list of {role, content}");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string where = what + ": message " + std::to_string(i);
    const Json& message = messages[i];
    if (!message.is_object()) throw_bad_data(where + " is not an object with role and content");
    for (const auto& [key, value] : message.items()) {
      if (std::ranges::find(kMessageKeys, key) != kMessageKeys.end()) continue;
      if (const auto later = not_yet(key); !later.empty()) throw_bad_data(where + ": " + later);
      throw_bad_data(where + ": " + unknown_key(key, kMessageKeys));
    }
    if (!message.contains("role") || !message["role"].is_string() ||
        message["role"].get<std::string>().empty())
      throw_bad_data(where + ": `role` is missing or no string");
    if (message.contains("name") && !message["name"].is_string())
      throw_bad_data(where + ": `name` is no string");
    if (!message.contains("content")) throw_bad_data(where + ": `content` is missing");
    check_content(message["content"], where);
  }
}

}  // namespace diffuse::job_detail

#include "shape/config_view.hpp"

#include <algorithm>
#include <cctype>

namespace diffuse {

const nlohmann::json* declared(const nlohmann::json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return nullptr;
  return &*found;
}

bool declared_as(const nlohmann::json& object, std::string_view key, bool value) {
  const nlohmann::json* found = declared(object, key);
  return found != nullptr && found->is_boolean() && found->get<bool>() == value;
}

std::string text_of(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json* found = declared(object, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<int64_t> count_of(const nlohmann::json& value, int64_t least) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMaxDepth))
    return std::nullopt;
  const auto count = value.get<int64_t>();
  if (count < least || count > kMaxDepth) return std::nullopt;
  return count;
}

std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char letter : name) {
    if (letter == '_' || letter == '-' || letter == '.') {
      words.emplace_back();
    } else {
      words.back().push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(letter))));
    }
  }
  std::erase(words, std::string());
  return words;
}

bool has_word(std::string_view name, std::span<const std::string_view> words) {
  const std::vector<std::string> mine = words_of(name);
  return std::ranges::any_of(
      mine, [&](const std::string& word) { return std::ranges::find(words, word) != words.end(); });
}

std::string quoted(const nlohmann::json& value) {
  constexpr size_t kLongest = 40;
  // A stranger's strings may hold broken UTF-8, which the strict writer answers with an exception.
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace diffuse

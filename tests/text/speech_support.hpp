#pragma once
// The small vocabulary that tests/data/text/whisper.json was made with: 20 pieces of text (some of them
// halves of a character), then the special tokens, two languages, and the timestamps.

#include <array>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "core/utf8.hpp"
#include "text/speech_tokens.hpp"

namespace diffuse::test {

inline const Json& speech_fixture() {
  static const Json kFixture = read_json(std::filesystem::path(DIFFUSE_TEST_DATA) / "text" / "whisper.json");
  return kFixture;
}

inline SpeechTokens small_tokens() {
  SpeechTokens tokens;
  tokens.vocab = 30 + 1501;
  tokens.end = 20;
  tokens.start = 21;
  tokens.languages = {{"en", 22}, {"de", 23}};
  tokens.translate = 24;
  tokens.transcribe = 25;
  tokens.previous = 27;
  tokens.no_speech = 28;
  tokens.no_timestamps = 29;
  tokens.first_timestamp = 30;
  tokens.suppress = {4, 21, 24, 25, 26, 27, 28};
  tokens.suppress_first = {15, 20};
  tokens.alignment_heads = {{0, 0}};
  return tokens;
}

inline std::string small_decode(std::span<const std::int32_t> ids) {
  std::string bytes;
  for (const auto id : ids) {
    if (id == 20) {
      bytes += "<|endoftext|>";
    } else if (id > 20) {
      bytes += "<|" + std::to_string(id) + "|>";
    } else {
      const auto hex = speech_fixture()["pieces"][static_cast<std::size_t>(id)].get<std::string>();
      for (std::size_t i = 0; i < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
  }
  return repair_utf8(bytes);
}

template <typename T>
std::vector<T> list_of(const Json& value) {
  return value.get<std::vector<T>>();
}

}  // namespace diffuse::test

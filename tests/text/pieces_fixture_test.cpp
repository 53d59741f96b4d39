// Ids and texts that transformers gave for tokenizers of Unigram and of sentencepiece models
// (tests/data/text/pieces, made by make.py there).

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>

#include "core/utf8.hpp"
#include "support.hpp"
#include "text/sentencepiece_model.hpp"
#include "text/tokenizer.hpp"

namespace diffuse {
namespace {

std::filesystem::path pieces(const std::string& name) {
  return text_data("pieces") / name;
}

std::string fnv(std::string_view bytes) {
  std::uint32_t hash = 2166136261U;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619U;
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "%06x", hash & 0xFFFFFFU);
  return text.data();
}

std::string fnv_of_ids(const std::vector<std::int32_t>& ids) {
  std::string bytes;
  for (const auto id : ids) {
    for (int shift = 0; shift < 32; shift += 8)
      bytes += static_cast<char>((static_cast<std::uint32_t>(id) >> shift) & 0xFF);
  }
  return fnv(bytes);
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char byte : bytes) {
    bits = (bits << 8) | static_cast<unsigned char>(byte);
    for (held += 8; held >= 6; held -= 6) text += kDigits[(bits >> (held - 6)) & 63];
  }
  if (held > 0) text += kDigits[(bits << (6 - held)) & 63];
  while (text.size() % 4 != 0) text += '=';
  return text;
}

// The charsmap of a model file, found by its name in the normalizer's spec: a route of its own.
std::string charsmap_of(const std::string& name) {
  const auto file = read_file(pieces(name), 1U << 24);
  const std::string mark = "\x0A\x08nmt_nfkc\x12";
  auto at = file.find(mark);
  EXPECT_NE(at, std::string::npos);
  at += mark.size();
  std::size_t bytes = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(file[at++]);
    bytes |= static_cast<std::size_t>(byte & 0x7F) << shift;
    if (byte < 0x80) break;
  }
  return file.substr(at, bytes);
}

void set_charsmap(Json& element, const std::string& charsmap) {
  if (element.is_object() && element.value("type", "") == "Precompiled")
    element["precompiled_charsmap"] = charsmap;
  if (!element.is_structured()) return;
  for (auto& inner : element) set_charsmap(inner, charsmap);
}

// A folder with a case's files, gone at the end.
class Folder {
 public:
  explicit Folder(const Json& fixture) : path_(testing::TempDir() + "pieces-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
    for (const auto& [to, of] : fixture["files"].items())
      std::filesystem::copy_file(pieces(of.get<std::string>()), path_ / to,
                                 std::filesystem::copy_options::overwrite_existing);
    std::ofstream(path_ / "tokenizer_config.json") << fixture["config"];
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

Tokenizer load(const Json& fixture) {
  if (fixture.contains("files")) {
    const Folder folder(fixture);
    EXPECT_TRUE(Tokenizer::present(folder.path()));
    return Tokenizer::load(folder.path());
  }
  auto json = fixture["json"];
  set_charsmap(json["normalizer"], base64(charsmap_of(fixture["charsmap"])));
  return Tokenizer::from_json(json, Json(), "test");
}

const std::vector<std::string>& strings() {
  static const auto all = [] {
    auto texts = read_json(text_data("strings.json"))["strings"].get<std::vector<std::string>>();
    for (const auto& text : read_json(pieces("strings.json"))) texts.push_back(text.get<std::string>());
    return texts;
  }();
  return all;
}

class Pieces : public testing::TestWithParam<std::string> {};

TEST_P(Pieces, AreWhatTransformersFinds) {
  const auto fixture = read_json(pieces(GetParam() + ".json"));
  const auto tokenizer = load(fixture);
  ASSERT_GT(strings().size(), 2100U);
  ASSERT_EQ(fixture["hashes"].size(), strings().size());
  int wrong = 0;
  for (std::size_t i = 0; i < strings().size() && wrong < 10; ++i) {
    const auto ids = tokenizer.encode(strings()[i], true);
    const auto key = std::to_string(i);
    if (fixture["ids"].contains(key)) {
      EXPECT_EQ(ids, fixture["ids"][key].get<std::vector<std::int32_t>>()) << i << ": " << strings()[i];
    }
    const auto hashes = fixture["hashes"][i].get<std::string>();
    const auto text = tokenizer.decode(ids, true);
    EXPECT_EQ(fnv_of_ids(ids), hashes.substr(0, 6)) << "ids of string " << i << ": " << strings()[i];
    EXPECT_EQ(fnv(text), hashes.substr(6)) << "text of string " << i << ": " << strings()[i] << "\n" << text;
    wrong += HasFailure() ? 1 : 0;
  }
}

TEST_P(Pieces, StreamWhatTheyDecode) {
  const auto tokenizer = load(read_json(pieces(GetParam() + ".json")));
  for (std::size_t i = 0; i < strings().size(); ++i) {
    const auto ids = tokenizer.encode(strings()[i], false);
    StreamDecoder stream(tokenizer, false);
    std::string text;
    for (const auto id : ids) {
      const auto piece = stream.push(id);
      ASSERT_TRUE(is_valid_utf8(piece)) << "string " << i;
      text += piece;
    }
    text += stream.finish();
    ASSERT_EQ(text, tokenizer.decode(ids, false)) << "string " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, Pieces,
                         testing::Values("t5", "t5-json", "umt5-json", "mbart", "mbart50", "xlm-roberta",
                                         "pegasus", "llama", "llama-legacy", "m2m", "marian"),
                         [](const auto& of) {
                           auto name = of.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace diffuse

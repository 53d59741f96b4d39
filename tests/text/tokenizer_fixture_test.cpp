// Ids and texts that Hugging Face's library gave (tests/data/text), for two real models and the demo.

#include <gtest/gtest.h>

#include <map>

#include "core/utf8.hpp"
#include "support.hpp"
#include "text/tokenizer.hpp"

namespace diffuse {
namespace {

const Json& strings() {
  static const Json file = read_json(text_data("strings.json"));
  return file["strings"];
}

class Fixture : public testing::TestWithParam<std::string> {
 protected:
  static const Tokenizer& tokenizer() {
    static std::map<std::string, Tokenizer> loaded;
    const auto found = loaded.find(GetParam());
    if (found != loaded.end()) return found->second;
    return loaded.emplace(GetParam(), Tokenizer::load(text_data(GetParam()))).first->second;
  }
  static Json expected() { return read_json(text_data("ids-" + GetParam() + ".json")); }
};

TEST_P(Fixture, EncodesEveryStringToTheSameIds) {
  const auto ids = expected()["ids"];
  ASSERT_EQ(strings().size(), 2000U);
  ASSERT_EQ(ids.size(), strings().size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto& text = strings()[i].get_ref<const std::string&>();
    ASSERT_EQ(tokenizer().encode(text, false), ids[i].get<std::vector<std::int32_t>>())
        << "string " << i << ": " << text;
  }
}

TEST_P(Fixture, EncodesTheSameWhenWordsAreCached) {
  const auto ids = expected()["ids"];
  for (std::size_t i = ids.size(); i-- > 0;) {
    const auto& text = strings()[i].get_ref<const std::string&>();
    ASSERT_EQ(tokenizer().encode(text, false), ids[i].get<std::vector<std::int32_t>>()) << "string " << i;
  }
}

TEST_P(Fixture, DecodesEveryStringToTheSameText) {
  const auto file = expected();
  const auto& otherwise = file["decoded"];  // of texts with special tokens, which are left out
  for (std::size_t i = 0; i < strings().size(); ++i) {
    const auto& text = strings()[i].get_ref<const std::string&>();
    const auto ids = file["ids"][i].get<std::vector<std::int32_t>>();
    const auto key = std::to_string(i);
    const auto wanted = otherwise.contains(key) ? otherwise[key].get<std::string>() : text;
    ASSERT_EQ(tokenizer().decode(ids, true), wanted) << "string " << i;
  }
}

TEST_P(Fixture, StreamsWhatItDecodes) {
  const auto ids = expected()["ids"];
  for (std::size_t i = 0; i < ids.size(); ++i) {
    StreamDecoder stream(tokenizer(), false);
    std::string text;
    for (const auto& id : ids[i]) {
      const auto piece = stream.push(id.get<std::int32_t>());
      ASSERT_TRUE(is_valid_utf8(piece)) << "string " << i;
      text += piece;
    }
    text += stream.finish();
    ASSERT_EQ(text, tokenizer().decode(ids[i].get<std::vector<std::int32_t>>(), false)) << "string " << i;
  }
}

class NormalizingFixture : public Fixture {};

TEST_P(NormalizingFixture, EncodesTheSameBehindNfc) {
  auto changed = read_json(text_data(GetParam()) / "tokenizer.json");
  changed["normalizer"] = {{"type", "NFC"}};
  const auto normalizing = Tokenizer::from_json(changed, Json(), "changed");
  const auto file = expected();
  ASSERT_GT(file["nfc"].size(), 50U);
  for (const auto& [index, ids] : file["nfc"].items()) {
    const auto& text = strings()[std::stoul(index)].get_ref<const std::string&>();
    EXPECT_EQ(normalizing.encode(text, false), ids.get<std::vector<std::int32_t>>()) << text;
    EXPECT_NE(tokenizer().encode(text, false), ids.get<std::vector<std::int32_t>>()) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, NormalizingFixture, testing::Values("qwen", "demo"));
INSTANTIATE_TEST_SUITE_P(Models, Fixture, testing::Values("qwen", "smollm2", "demo"));

TEST(InvalidBytes, AreRepairedAsPythonDoes) {
  const auto file = read_json(text_data("strings.json"));
  ASSERT_GE(file["invalid"].size(), 50U);
  const auto tokenizer = Tokenizer::load(text_data("demo"));
  for (const auto& entry : file["invalid"]) {
    const auto hex = entry["hex"].get<std::string>();
    std::string bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2)
      bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    const auto wanted = entry["text"].get<std::string>();
    EXPECT_EQ(repair_utf8(bytes), wanted) << hex;
    EXPECT_EQ(tokenizer.encode(bytes, false), tokenizer.encode(wanted, false)) << hex;
  }
}

}  // namespace
}  // namespace diffuse

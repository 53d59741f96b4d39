#include <gtest/gtest.h>

#include "support.hpp"
#include "text/token_decoder.hpp"

namespace diffuse {
namespace {

std::string decoded(const Json& element, const std::vector<std::string>& tokens) {
  const auto decoder = TokenDecoder::from_json(element, "decoder");
  TokenDecoder::Stream stream(decoder);
  std::string text;
  for (const auto& token : tokens) {
    const auto piece = stream.push(token);
    EXPECT_TRUE(is_valid_utf8(piece));
    text += piece;
  }
  return text + stream.finish();
}

Json sequence(const Json& decoders) {
  return {{"type", "Sequence"}, {"decoders", decoders}};
}
const Json kSpaces = {{"type", "Replace"}, {"pattern", {{"String", "_"}}}, {"content", " "}};
const Json kFallback = {{"type", "ByteFallback"}};
const Json kFuse = {{"type", "Fuse"}};
const Json kStrip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
constexpr const char* kBroken = "\xEF\xBF\xBD";

TEST(Decoder, ByteLevelPutsBytesTogether) {
  const Json element = {{"type", "ByteLevel"}};
  EXPECT_EQ(decoded(element, {"\xC4\xA0"
                              "a",
                              "\xC3\x83", "\xC2\xA9"}),
            " a\xC3\xA9");
  EXPECT_EQ(decoded(element, {"a", "\xC3\x83"}), std::string("a") + kBroken);
  EXPECT_EQ(decoded(element, {"<|\xE6\xBC\xA2|>", "b"}), "<|\xE6\xBC\xA2|>b");  // no byte letters: as it is
  EXPECT_EQ(decoded(element, {}), "");
}

TEST(Decoder, ChainOfLlama) {
  const auto element = sequence({kSpaces, kFallback, kFuse, kStrip});
  EXPECT_EQ(decoded(element, {"_a", "_b"}), "a b");
  EXPECT_EQ(decoded(element, {"__a"}), " a");
  EXPECT_EQ(decoded(element, {"_", "_a"}), " a");
  EXPECT_EQ(decoded(element, {"<0xE2>", "<0x82>", "<0xAC>", "x"}), "\xE2\x82\xACx");
  EXPECT_EQ(decoded(element, {"<0xE2>", "<0x82>", "x"}), std::string(kBroken) + kBroken + "x");
  EXPECT_EQ(decoded(element, {"<0x41>", "<0xFF>"}), std::string(kBroken) + kBroken);
  EXPECT_EQ(decoded(element, {"<0x4G>"}), "<0x4G>");
}

TEST(Decoder, OtherKinds) {
  EXPECT_EQ(decoded(Json(), {"a", "b"}), "a b");
  EXPECT_EQ(decoded({{"type", "Metaspace"}, {"replacement", "_"}}, {"_a", "_b"}), "a b");
  EXPECT_EQ(decoded({{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "never"}}, {"_a", "_b"}),
            " a b");
  EXPECT_EQ(decoded({{"type", "BPEDecoder"}, {"suffix", "</w>"}}, {"a", "b</w>", "c</w>"}), "ab c");
  EXPECT_EQ(decoded({{"type", "Strip"}, {"content", "x"}, {"start", 1}, {"stop", 2}}, {"xxaxxx", "b", "xcx"}),
            "xaxbc");
  EXPECT_EQ(decoded(sequence({kFuse, {{"type", "Strip"}, {"content", "x"}, {"start", 0}, {"stop", 1}}}),
                    {"ax", "xb", "xx"}),
            "axxbx");
}

TEST(Decoder, RefusesWhatItCannotStreamOrDoesNotKnow) {
  error_of(ExitCode::refused, [] { TokenDecoder::from_json(sequence({kFuse, kSpaces}), "decoder"); });
  const auto message = error_of(ExitCode::refused, [] {
    TokenDecoder::from_json({{"type", "CTC"}}, "decoder");
  });
  EXPECT_NE(message.find("CTC"), std::string::npos);
}

}  // namespace
}  // namespace diffuse

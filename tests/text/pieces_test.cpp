// Unigram, charsmaps and sentencepiece models: what the fixtures do not reach, languages, hostile files.

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "core/utf8.hpp"
#include "support.hpp"
#include "text/bpe.hpp"
#include "text/sentencepiece_model.hpp"
#include "text/tokenizer.hpp"

namespace diffuse {
namespace {

using Ids = std::vector<std::int32_t>;
constexpr auto kBad = ExitCode::bad_data;

Json unigram(const std::vector<Json>& vocab, const Json& more = Json::object()) {
  Json model = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}};
  model.update(more);
  return {{"model", model}, {"decoder", {{"type", "Fuse"}}}};
}

Json entry(const std::string& piece, double score) {
  return Json::array({piece, score});
}

Tokenizer build(const Json& json, const Json& config = Json()) {
  return Tokenizer::from_json(json, config, "test");
}

TEST(Unigram, TakesTheBestSumOfScores) {
  const auto tokenizer = build(unigram({entry("<unk>", 0), entry("a", -1), entry("b", -1), entry("ab", -2.5),
                                        entry("abc", -3), entry("c", -1.5)}));
  EXPECT_EQ(tokenizer.encode("ab", false), (Ids{1, 2}));
  EXPECT_EQ(tokenizer.encode("abc", false), (Ids{4}));
  EXPECT_EQ(tokenizer.encode("abcab", false), (Ids{4, 1, 2}));
}

TEST(Unigram, OfEqualSumsTheFirstFoundStays) {
  const auto tokenizer =
      build(unigram({entry("<unk>", 0), entry("a", -1), entry("b", -1), entry("ab", -2), entry("bb", -2)}));
  EXPECT_EQ(tokenizer.encode("ab", false), (Ids{3}));
  EXPECT_EQ(tokenizer.encode("abb", false), (Ids{1, 4}));
}

TEST(Unigram, JoinsWhatItDoesNotKnow) {
  const std::vector<Json> vocab = {entry("<unk>", 0), entry("a", -1), entry("xy", -40)};
  EXPECT_EQ(build(unigram(vocab)).encode("azzza", false), (Ids{1, 0, 1}));
  // Two unknown characters are worth -2 * (40 + 10), the piece -40.
  EXPECT_EQ(build(unigram(vocab)).encode("axya", false), (Ids{1, 2, 1}));
  // Of two unknown characters each is worth 10 less than the worst piece: 20 and 20 here.
  const auto with = [](double score) {
    return build(unigram({entry("<unk>", 30), entry("a", 30), entry("xy", score)})).encode("axyza", false);
  };
  EXPECT_EQ(with(41), (Ids{1, 2, 0, 1}));
  EXPECT_EQ(with(39), (Ids{1, 0, 1}));
}

TEST(Unigram, FallsBackToBytesOfTheWholeRun) {
  std::vector<Json> vocab = {entry("<unk>", 0), entry("a", -1)};
  for (const auto* byte : {"<0xC3>", "<0xA9>"}) vocab.push_back(entry(byte, 0));
  const auto tokenizer = build(unigram(vocab, {{"byte_fallback", true}}));
  EXPECT_EQ(tokenizer.encode("a\u00E9\u00E9", false), (Ids{1, 2, 3, 2, 3}));
  EXPECT_EQ(tokenizer.encode("a\u00E9\u00E8", false), (Ids{1, 0}));
}

TEST(Unigram, NamesBothPlacesOfAPiece) {
  const auto tokenizer = build(unigram({entry("<unk>", 0), entry("a", -1), entry("a", -2)}));
  EXPECT_EQ(tokenizer.encode("a", false), (Ids{2}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 2}, false), "aa");
}

TEST(Unigram, WithoutAnUnknownTokenSaysWhatItCannotCut) {
  auto json = unigram(std::vector<Json>{entry("a", -1)});
  json["model"]["unk_id"] = nullptr;
  const auto tokenizer = build(json);
  EXPECT_EQ(tokenizer.encode("aa", false), (Ids{0, 0}));
  EXPECT_NE(error_of(kBad, [&] { tokenizer.encode("ab", false); }).find("'b'"), std::string::npos);
}

TEST(Unigram, FilesOfTheTimeBeforeTypesAreRead) {
  auto json = unigram({entry("<unk>", 0), entry("a", -1)});
  json["model"].erase("type");
  EXPECT_EQ(build(json).encode("a", false), (Ids{1}));
}

TEST(Unigram, HostileVocabulariesAreOneLineErrors) {
  const auto fails = [](ExitCode code, const std::function<void(Json&)>& change) {
    auto json = unigram({entry("<unk>", 0), entry("a", -1)});
    change(json["model"]);
    return error_of(code, [&] { build(json); });
  };
  fails(kBad, [](Json& m) { m.erase("vocab"); });
  fails(kBad, [](Json& m) { m["vocab"] = {{"a", 0}}; });
  fails(kBad, [](Json& m) { m["vocab"] = Json::array(); });
  fails(kBad, [](Json& m) { m["vocab"][1] = "a"; });
  fails(kBad, [](Json& m) { m["vocab"][1] = Json::array({"a", 1, 2}); });
  fails(kBad, [](Json& m) { m["vocab"][1] = Json::array({1, "a"}); });
  fails(kBad, [](Json& m) { m["vocab"][1][1] = "NaN"; });
  fails(kBad, [](Json& m) { m["unk_id"] = 2; });
  fails(kBad, [](Json& m) { m["unk_id"] = -1; });
  fails(kBad, [](Json& m) { m["unk_id"] = "<unk>"; });
  fails(kBad, [](Json& m) { m["byte_fallback"] = 1; });
  fails(ExitCode::refused, [](Json& m) { m["vocab"][1][0] = std::string(2000, 'x'); });
}

TEST(BpeOfPieces, MergesInTheOrderOfItsLibrary) {
  const std::vector<Piece> pieces = {
      {"<unk>", 0, PieceKind::unknown}, {"a", -3}, {"b", -3}, {"c", -3}, {"bc", -2}, {"ab", -1}};
  const auto encoded = [&](BpeModel::Order order) {
    Ids ids;
    BpeModel::from_pieces(pieces, 0, false, order, "test").encode("abcxx", ids);
    return ids;
  };
  EXPECT_EQ(encoded(BpeModel::Order::tokenizers), (Ids{1, 4, 0}));
  EXPECT_EQ(encoded(BpeModel::Order::sentencepiece), (Ids{5, 3, 0}));
}

TEST(Nmt, DropsControlsAndMakesSpaces) {
  const auto nmt = Normalizer::from_json({{"type", "Nmt"}}, "x");
  EXPECT_EQ(nmt.apply("a\x01\x0B\x1F\x7F\u008F\u009Fb"), "ab");
  EXPECT_EQ(nmt.apply("\t\n\f\r\u1680\u200B\u200F\u2028\u2581\uFEFF\uFFFD"), std::string(11, ' '));
  EXPECT_EQ(nmt.apply("\u2000\u0085\u3000"), "\u2000\u0085\u3000");
}

// A charsmap with one rule: "a" becomes what stands at `value`.
std::string charsmap(std::uint32_t value, const std::string& replacements) {
  std::vector<std::uint32_t> units(1024);
  constexpr std::uint32_t kChildren = 0x100;
  constexpr std::uint32_t kLeaf = 0x200;
  units[0] = kChildren << 10;
  units[kChildren ^ 'a'] = (kLeaf << 10) | (1U << 8) | 'a';
  units[(kChildren ^ 'a') ^ kLeaf] = (1U << 31) | value;
  std::string blob;
  const auto put = [&](std::uint32_t number) {
    for (int shift = 0; shift < 32; shift += 8) blob += static_cast<char>((number >> shift) & 0xFF);
  };
  put(static_cast<std::uint32_t>(4 * units.size()));
  for (const auto unit : units) put(unit);
  return blob + replacements;
}

TEST(Charsmaps, RewriteByTheirRules) {
  const auto map = Charsmap::parse(charsmap(2, std::string("x\0yz\0", 5)), "x");
  EXPECT_EQ(map.by_clusters("abca"), "yzbcyz");
  EXPECT_EQ(map.longest("ab")->text, "yz");
  EXPECT_EQ(map.longest("ab")->bytes, 1U);
  EXPECT_FALSE(map.longest("ba"));
  EXPECT_FALSE(map.longest(std::string_view("\0a", 2)));
  // A whole cluster becomes what its shortest rule says.
  EXPECT_EQ(map.by_clusters("a\u0301b"), "yzb");
  EXPECT_EQ(map.by_clusters("a\u20DD\u20DD\u20DDb"), "yz\u20DD\u20DD\u20DDb");
  EXPECT_EQ(Charsmap::parse(charsmap(0, "unended"), "x").by_clusters("a"), "unended");
}

TEST(Charsmaps, ThatLeadOutOfThemselvesAreRefused) {
  const auto fails = [](const std::string& blob) {
    return error_of(kBad, [&] { Charsmap::parse(blob, "x"); });
  };
  fails("");
  fails("abc");
  fails(std::string(8, '\0'));
  fails(std::string("\x02\0\0\0ab", 6));
  EXPECT_NE(fails(std::string("\xFF\xFF\xFF\x7F", 4) + std::string(400, 'x')).find("bytes in 404"),
            std::string::npos);
  EXPECT_NE(fails(std::string("\x04\0\0\0\0\0\0\0x\0", 10)).find("beyond its table"), std::string::npos);
  EXPECT_NE(fails(charsmap(3, "xyz")).find("beyond its replacements"), std::string::npos);
  EXPECT_NE(fails(charsmap(0x7FFFFFFF, "xyz")).find("beyond its replacements"), std::string::npos);
  EXPECT_NE(fails(charsmap(1, "\u00E9")).find("UTF-8"), std::string::npos);
  auto far = charsmap(0, "x");
  far[4 + 4 * (0x100 ^ 'a') + 3] = '\x7F';  // the leaf lies elsewhere now
  EXPECT_NE(fails(far).find("beyond its table"), std::string::npos);
}

TEST(Charsmaps, AreBase64InAFile) {
  const auto fails = [](const Json& element) {
    return error_of(kBad, [&] { Normalizer::from_json(element, "x"); });
  };
  EXPECT_NE(fails({{"type", "Precompiled"}}).find("precompiled_charsmap"), std::string::npos);
  for (const auto* text : {"abc", "ab=c", "====", "a b=", "\u00E9\u00E9"})
    EXPECT_NE(fails({{"type", "Precompiled"}, {"precompiled_charsmap", text}}).find("base64"),
              std::string::npos)
        << text;
  EXPECT_NE(fails({{"type", "Precompiled"}, {"precompiled_charsmap", ""}}).find("cut short"),
            std::string::npos);
  EXPECT_EQ(decode_base64("YWI=", "x"), "ab");
  EXPECT_EQ(decode_base64("YQ==", "x"), "a");
  EXPECT_EQ(decode_base64("YWJj", "x"), "abc");
}

std::string model_file(const std::string& name) {
  return read_file(text_data("pieces") / name, 1U << 24);
}

TEST(SentencePieceModels, SayHowTextBecomesPieces) {
  const auto t5 = SentencePieceModel::parse(model_file("nmt.model"), "x");
  EXPECT_EQ(t5.algorithm, SentencePieceModel::Algorithm::unigram);
  EXPECT_EQ(t5.unknown, 2);
  EXPECT_EQ(t5.pieces.at(0).text, "<pad>");
  EXPECT_EQ(t5.pieces.at(0).kind, PieceKind::control);
  EXPECT_EQ(t5.pieces.at(2).kind, PieceKind::unknown);
  EXPECT_LT(t5.pieces.back().score, 0);
  EXPECT_FALSE(t5.byte_fallback);
  ASSERT_TRUE(t5.charsmap);
  EXPECT_EQ(t5.charsmap->longest("\uFB01")->text, "fi");
  const auto llama = SentencePieceModel::parse(model_file("bytes.model"), "x");
  EXPECT_EQ(llama.algorithm, SentencePieceModel::Algorithm::bpe);
  EXPECT_TRUE(llama.byte_fallback);
  EXPECT_FALSE(llama.charsmap);
  EXPECT_FALSE(llama.remove_extra_spaces);
}

// What of a file cut anywhere, or with bytes changed, still reads must also run.
void read_if_it_can(const std::string& bytes) {
  try {
    const auto model = SentencePieceModel::parse(bytes, "x");
    Normalizer normalizer;
    normalizer.add(model.normalizer());
    if (model.charsmap) normalizer.add(Normalizer::Precompiled{model.charsmap});
    EXPECT_TRUE(is_valid_utf8(normalizer.apply("a\uFB01 \uFF21\u3000e\u0301\u00A8\u2026 \u00BD \r\n x")));
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ExitCode::bad_data || error.code() == ExitCode::refused) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST(SentencePieceModels, DamagedOnesAreErrorsAndNoMore) {
  const auto small = model_file("small.model");
  for (std::size_t bytes = 0; bytes < small.size(); bytes += 7) read_if_it_can(small.substr(0, bytes));
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    auto changed = small;
    for (int n = 0; n < 3; ++n) changed[random() % changed.size()] = static_cast<char>(random());
    read_if_it_can(changed);
  }
  const auto fails = [](const std::string& bytes) {
    return error_of(kBad, [&] { SentencePieceModel::parse(bytes, "'f'"); });
  };
  EXPECT_NE(fails("").find("no pieces"), std::string::npos);
  fails("hello, this is no model");
  fails(std::string("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11));  // a length of nearly 2^64
  fails(std::string(20, '\xFF'));                                          // a number that never ends
  fails("\x0B");                                                           // a group
  fails(std::string("\x0A\x03\x0A\x01\xE9", 5));                           // a piece that is no UTF-8
  fails(std::string("\x0A\x02\x18\x09", 4));                               // a type that there is not
  fails(
      std::string("\x0A\x03\x0A\x01"
                  "a",
                  5));  // no unknown piece
  // Of words (model_type 3), and one that decodes by rules of its own.
  error_of(ExitCode::refused, [] { SentencePieceModel::parse(std::string("\x12\x02\x18\x03", 4), "'f'"); });
  error_of(ExitCode::refused, [] { SentencePieceModel::parse("\x2A\x03\x12\x01x", "'f'"); });
  error_of(ExitCode::missing_input, [] { SentencePieceModel::read(text_data("nowhere")); });
}

// A folder of a tokenizer class over the fixtures' files.
class Folders : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "folders-" + std::to_string(::getpid());
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void put(const std::string& name, const std::string& of) {
    std::filesystem::copy_file(text_data("pieces") / of, path_ / name,
                               std::filesystem::copy_options::overwrite_existing);
  }
  Tokenizer load(const Json& config) {
    std::ofstream(path_ / "tokenizer_config.json") << config;
    return Tokenizer::load(path_);
  }
  std::string fails(ExitCode code, const Json& config) {
    return error_of(code, [&] { load(config); });
  }
  std::filesystem::path path_;
};

TEST_F(Folders, OfAnUnknownClassAreRefusedByName) {
  EXPECT_FALSE(Tokenizer::present(path_));
  put("spiece.model", "nmt.model");
  EXPECT_TRUE(Tokenizer::present(path_));
  EXPECT_NE(fails(ExitCode::refused, {{"tokenizer_class", "StrangeTokenizer"}}).find("StrangeTokenizer"),
            std::string::npos);
  EXPECT_NE(fails(ExitCode::refused, Json::object()).find("names no tokenizer_class"), std::string::npos);
  fails(kBad, Json::array());
  fails(kBad, {{"tokenizer_class", 5}});
}

TEST_F(Folders, MayNameTheirClassElsewhere) {
  put("spiece.model", "nmt.model");
  const auto wanted = load({{"tokenizer_class", "T5Tokenizer"}}).encode("the house", true);
  EXPECT_EQ(load({{"extra_ids", 100}}).encode("the house", true), wanted);
  std::ofstream(path_ / "config.json") << R"({"tokenizer_class": "T5Tokenizer"})";
  EXPECT_EQ(load(Json::object()).encode("the house", true), wanted);
  std::ofstream(path_ / "config.json") << R"({"tokenizer_class": 5})";
  fails(kBad, Json::object());
  std::ofstream(path_ / "config.json") << "[]";
  fails(kBad, Json::object());
  std::filesystem::remove(path_ / "config.json");
  std::filesystem::remove(path_ / "spiece.model");
  put("source.spm", "source.model");
  put("target.spm", "target.model");
  put("vocab.json", "marian-vocab.json");
  EXPECT_EQ(load(Json::object()).encode_source("the", "fr").ids.front(),
            load(Json::object()).id_of(">>fr<<"));
}

TEST_F(Folders, ThatContradictThemselvesAreErrors) {
  put("spiece.model", "nmt.model");
  EXPECT_NE(fails(ExitCode::refused, {{"tokenizer_class", "LlamaTokenizer"}}).find("Unigram"),
            std::string::npos);
  EXPECT_NE(fails(kBad, {{"tokenizer_class", "T5Tokenizer"}, {"eos_token", "<end>"}}).find("<end>"),
            std::string::npos);
  fails(kBad, {{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", -5}});
  fails(kBad, {{"tokenizer_class", "T5Tokenizer"}, {"eos_token", 7}});
  EXPECT_EQ(load({{"tokenizer_class", "T5TokenizerFast"}, {"extra_ids", 3}}).id_of("<extra_id_0>"),
            load({{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", 0}}).vocab_size() + 2);
  std::ofstream(path_ / "spiece.model") << "no model";
  EXPECT_NE(fails(kBad, {{"tokenizer_class", "T5Tokenizer"}}).find("spiece.model"), std::string::npos);
}

TEST_F(Folders, OfMarianNeedAllTheirFiles) {
  const Json config = {{"tokenizer_class", "MarianTokenizer"}};
  put("source.spm", "source.model");
  EXPECT_NE(fails(ExitCode::missing_input, config).find("target.spm"), std::string::npos);
  put("target.spm", "target.model");
  EXPECT_NE(fails(ExitCode::missing_input, config).find("vocab.json"), std::string::npos);
  std::ofstream(path_ / "vocab.json") << R"({"</s>": 0, "a": 1})";
  EXPECT_NE(fails(kBad, config).find("<unk>"), std::string::npos);
  std::ofstream(path_ / "vocab.json") << R"({"</s>": 0, "<unk>": 0})";
  EXPECT_NE(fails(kBad, config).find("twice"), std::string::npos);
  put("vocab.json", "marian-vocab.json");
  fails(ExitCode::refused, {{"tokenizer_class", "MarianTokenizer"}, {"separate_vocabs", true}});
  load(config);
  std::ofstream(path_ / "source.spm", std::ios::app) << "\x12\x03\x98\x02\x01";
  EXPECT_NE(fails(ExitCode::refused, config).find("bytes"), std::string::npos);
  std::ofstream(path_ / "source.spm", std::ios::app) << "\x0A\x08\x0A\x04<br>\x18\x04";
  EXPECT_NE(fails(ExitCode::refused, config).find("user-defined"), std::string::npos);
}

TEST_F(Folders, NameLanguagesAsTheirClassDoes) {
  put("sentencepiece.bpe.model", "small.model");
  const auto mbart = load({{"tokenizer_class", "MBartTokenizer"}, {"src_lang", "ro_RO"}});
  EXPECT_EQ(mbart.encode("", true), (Ids{2, *mbart.id_of("ro_RO")}));
  const auto french = mbart.encode_source("", "fr_XX");
  EXPECT_EQ(french.ids, mbart.encode("", true));
  EXPECT_EQ(french.first, mbart.id_of("fr_XX"));
  EXPECT_EQ(mbart.encode_source("", "fr").first, mbart.id_of("fr_XX"));
  EXPECT_FALSE(mbart.encode_source("", "").first);
  EXPECT_NE(error_of(kBad, [&] { mbart.encode_source("", "xx"); }).find("'xx'"), std::string::npos);
  EXPECT_NE(fails(kBad, {{"tokenizer_class", "MBartTokenizer"}, {"src_lang", "xx_XX"}}).find("xx_XX"),
            std::string::npos);
  const auto fifty = load({{"tokenizer_class", "MBart50Tokenizer"}});
  EXPECT_EQ(fifty.encode("", true), (Ids{*fifty.id_of("en_XX"), 2}));

  put("sentencepiece.bpe.model", "pairs.model");
  put("vocab.json", "m2m-vocab.json");
  const auto m2m = load({{"tokenizer_class", "M2M100Tokenizer"}, {"src_lang", "de"}});
  EXPECT_EQ(m2m.encode("", true), (Ids{*m2m.id_of("__de__"), 2}));
  EXPECT_EQ(m2m.encode_source("", "fr").first, m2m.id_of("__fr__"));
  EXPECT_EQ(m2m.decode(Ids{*m2m.id_of("__fr__")}, true), "");
}

TEST_F(Folders, OfMarianNameTheLanguageInTheText) {
  put("source.spm", "source.model");
  put("target.spm", "target.model");
  put("vocab.json", "marian-vocab.json");
  const auto marian = load({{"tokenizer_class", "MarianTokenizer"}});
  const auto source = marian.encode_source("the", "fr");
  EXPECT_FALSE(source.first);
  EXPECT_EQ(source.ids, marian.encode(">>fr<< the", true));
  EXPECT_EQ(source.ids.front(), marian.id_of(">>fr<<"));
  EXPECT_EQ(source.ids.back(), marian.id_of("</s>"));
  error_of(kBad, [&] { marian.encode_source("the", "xx"); });
  EXPECT_NE(error_of(kBad, [&] { marian.encode_source(">>de<< the", "fr"); }).find("as well"),
            std::string::npos);
}

TEST(Languages, OfATokenizerJsonFollowItsClass) {
  auto json = unigram({entry("<unk>", 0), entry("</s>", 0), entry("fra_Latn", 0), entry("zho_Hans", 0),
                       entry("zho_Hant", 0), entry("eng_Latn", 0), entry("a", -1)});
  Json names = Json::array();
  for (const int id : {2, 3, 4, 5})
    names.push_back({{"id", id},
                     {"content", json["model"]["vocab"][static_cast<std::size_t>(id)][0]},
                     {"special", true}});
  json["added_tokens"] = names;
  Json config = {{"tokenizer_class", "NllbTokenizerFast"}, {"eos_token", "</s>"}};
  EXPECT_EQ(build(json, config).encode("a", true), (Ids{5, 6, 1}));
  config["src_lang"] = "zho_Hans";
  config["legacy_behaviour"] = true;
  const auto tokenizer = build(json, config);
  EXPECT_EQ(tokenizer.encode("a", true), (Ids{6, 1, 3}));
  EXPECT_EQ(tokenizer.encode_source("a", "fra").first, 2);
  const auto several = error_of(kBad, [&] { tokenizer.encode_source("a", "zho"); });
  EXPECT_NE(several.find("zho_Hans zho_Hant"), std::string::npos) << several;
  // A piece is no language, and a tokenizer without languages says so.
  error_of(kBad, [&] { tokenizer.encode_source("a", "a"); });
  EXPECT_NE(error_of(kBad, [&] { build(json).encode_source("a", "fra"); }).find("no languages"),
            std::string::npos);
}

}  // namespace
}  // namespace diffuse

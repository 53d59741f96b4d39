#include "text/sentencepiece_folder.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "text/element.hpp"
#include "text/languages.hpp"
#include "text/sentencepiece_model.hpp"

namespace diffuse {
namespace {

constexpr const char* kSourceName = "source.spm";
constexpr const char* kTargetName = "target.spm";
constexpr std::array<std::string_view, 6> kNames = {"spiece.model",    "sentencepiece.bpe.model",
                                                    "tokenizer.model", "sentencepiece.model",
                                                    kSourceName,       kTargetName};
constexpr auto kModelNames = std::span(kNames).first<4>();  // of one for both languages
constexpr const char* kMetaspace = "\u2581";

std::filesystem::path model_path(const std::filesystem::path& folder) {
  for (const auto name : kModelNames) {
    if (std::filesystem::exists(folder / name)) return folder / name;
  }
  throw_missing("'" + folder.string() + "' has no sentencepiece model under a name that is known");
}

Json added(std::size_t id, const std::string& content, bool special = true) {
  return {{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
}

// The text, then </s>.
Json ends_with(const std::string& token, std::int32_t id) {
  return {{"type", "TemplateProcessing"},
          {"single", {{{"Sequence", {{"id", "A"}}}}, {{"SpecialToken", {{"id", token}}}}}},
          {"special_tokens", {{token, {{"ids", {id}}}}}}};
}

std::int32_t place_of(const std::vector<Piece>& pieces, const std::string& text, const std::string& where) {
  const auto found =
      std::find_if(pieces.begin(), pieces.end(), [&](const auto& p) { return p.text == text; });
  if (found == pieces.end()) throw_bad_data(where + " has no piece " + in_quotes(text));
  return static_cast<std::int32_t>(found - pieces.begin());
}

// What the config leaves unnamed is named so.
void name_tokens(Json& config, std::initializer_list<std::pair<const char*, const char*>> names) {
  for (const auto& [name, token] : names) {
    if (!config.contains(name)) config[name] = token;
  }
}

// The token that the config has for a name, as text.
std::string token_text(const Json& config, const char* name) {
  const auto& value = config[name];
  if (value.is_object())
    return require_string(value, "content", std::string("tokenizer_config.json: ") + name);
  return require_string(config, name, "tokenizer_config.json");
}

void add_marked_pieces(const SentencePieceModel& model, Json& list) {
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& [text, score, kind] = model.pieces[i];
    if (kind == PieceKind::control || kind == PieceKind::user_defined)
      list.push_back(added(i, text, kind == PieceKind::control));
  }
}

Normalizer charsmap_alone(const SentencePieceModel& model) {
  Normalizer normalizer;
  if (model.charsmap) normalizer.add(Normalizer::Precompiled{model.charsmap});
  return normalizer;
}

Json metaspace() {
  return {{"type", "Metaspace"}, {"replacement", kMetaspace}, {"prepend_scheme", "always"}, {"split", true}};
}

// Words between white space, each with a space in front.
PreTokenizer words(const std::string& what) {
  return PreTokenizer::from_json(
      {{"type", "Sequence"}, {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace()}}}, what);
}

void need(const SentencePieceModel& model, SentencePieceModel::Algorithm algorithm, const std::string& what) {
  if (model.algorithm != algorithm)
    throw_refused(what + " is of the other of Unigram and BPE than its tokenizer class is for");
}

TokenizerParts own_then_extra(const SentencePieceModel& model, Json& config, const std::string& what) {
  need(model, SentencePieceModel::Algorithm::unigram, what);
  name_tokens(config, {{"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}});
  auto pieces = model.pieces;
  auto tokens = Json::array();
  add_marked_pieces(model, tokens);
  const auto extra = config.contains("extra_ids") ? require_count(config, "extra_ids", what) : 100;
  for (auto i = extra; i-- > 0;) {
    const auto token = "<extra_id_" + std::to_string(i) + ">";
    // A model that was saved with them has them already.
    if (std::any_of(model.pieces.begin(), model.pieces.end(), [&](const auto& p) { return p.text == token; }))
      continue;
    tokens.push_back(added(pieces.size(), token));
    pieces.push_back({token});
  }
  const auto eos = place_of(pieces, token_text(config, "eos_token"), what);
  return {.normalizer = charsmap_alone(model),
          .pre_tokenizer = words(what),
          .model = UnigramModel::from_pieces(std::move(pieces), model.unknown, false,
                                             UnigramModel::Sums::tokenizers, what),
          .decoder = TokenDecoder::from_json(metaspace(), what),
          .added_tokens = std::move(tokens),
          .post_processor = ends_with(token_text(config, "eos_token"), eos)};
}

TokenizerParts fairseq(const SentencePieceModel& model, Json& config, const std::string& what) {
  need(model, SentencePieceModel::Algorithm::unigram, what);
  constexpr std::size_t kOwn = 3;  // <unk>, <s>, </s> of the model
  if (model.pieces.size() < kOwn) throw_bad_data(what + " has fewer than three pieces");
  name_tokens(config, {{"bos_token", "<s>"},
                       {"eos_token", "</s>"},
                       {"sep_token", "</s>"},
                       {"cls_token", "<s>"},
                       {"unk_token", "<unk>"},
                       {"pad_token", "<pad>"},
                       {"mask_token", "<mask>"}});
  const auto* facts = find_tokenizer_facts(tokenizer_class(config));
  std::vector<Piece> pieces;
  auto tokens = Json::array();
  const auto add = [&](const std::string& token) {
    tokens.push_back(added(pieces.size(), token));
    pieces.push_back({token});
  };
  for (const auto* token : {"bos_token", "pad_token", "eos_token", "unk_token"})
    add(token_text(config, token));
  for (std::size_t i = kOwn; i < model.pieces.size(); ++i) {
    const auto& piece = model.pieces[i];
    if (piece.kind == PieceKind::control || piece.kind == PieceKind::user_defined)
      tokens.push_back(added(pieces.size(), piece.text, piece.kind == PieceKind::control));
    pieces.push_back(piece);
  }
  if (facts->languages) {
    for (const auto language : facts->languages->behind_pieces) add(std::string(language));
  }
  add(token_text(config, "mask_token"));
  if (facts->languages) {
    tokens.back()["lstrip"] = true;
    tokens.back()["normalized"] = true;
  }
  constexpr std::int32_t kBos = 0;
  constexpr std::int32_t kEos = 2;
  constexpr std::int32_t kUnknown = 3;
  auto normalizer = charsmap_alone(model);
  auto pre_tokenizer = words(what);
  if (facts->joins_spaces) {
    normalizer.add(Normalizer::Replace{TextPattern(Regex(" {2,}", what)), " "});
    pre_tokenizer = PreTokenizer::from_json(metaspace(), what);
  }
  // Languages replace it where there are some.
  const Json around = {{"type", "RobertaProcessing"},
                       {"cls", {token_text(config, "bos_token"), kBos}},
                       {"sep", {token_text(config, "eos_token"), kEos}}};
  return {.normalizer = std::move(normalizer),
          .pre_tokenizer = std::move(pre_tokenizer),
          .model = UnigramModel::from_pieces(std::move(pieces), kUnknown, false,
                                             UnigramModel::Sums::tokenizers, what),
          .decoder = TokenDecoder::from_json(metaspace(), what),
          .added_tokens = std::move(tokens),
          .post_processor = around};
}

TokenizerParts behind_unused(const SentencePieceModel& model, Json& config, const std::string& what) {
  need(model, SentencePieceModel::Algorithm::unigram, what);
  constexpr std::size_t kOwn = 2;  // <pad> and </s> of the model
  if (static_cast<std::size_t>(model.unknown) < kOwn)
    throw_bad_data(what + ": the unknown token is one of the first two pieces");
  name_tokens(config, {{"pad_token", "<pad>"},
                       {"eos_token", "</s>"},
                       {"unk_token", "<unk>"},
                       {"mask_token", "<mask_2>"},
                       {"mask_token_sent", "<mask_1>"}});
  const auto offset = config.contains("offset") ? require_count(config, "offset", what) : 103;
  std::vector<Piece> pieces;
  auto tokens = Json::array();
  const auto add = [&](const std::string& token, double score) {
    tokens.push_back(added(pieces.size(), token));
    pieces.push_back({token, score});
  };
  add(token_text(config, "pad_token"), 0);
  add(token_text(config, "eos_token"), 0);
  constexpr std::size_t kMasks = 3;
  if (!config["mask_token_sent"].is_null()) add(token_text(config, "mask_token_sent"), 0);
  if (offset > kMasks) add(token_text(config, "mask_token"), 0);
  constexpr double kNever = -100;
  for (std::size_t i = 2; i < offset; ++i) add("<unk_" + std::to_string(i) + ">", kNever);
  const auto unknown =
      static_cast<std::int32_t>(pieces.size() + static_cast<std::size_t>(model.unknown) - kOwn);
  pieces.insert(pieces.end(), model.pieces.begin() + kOwn, model.pieces.end());
  auto normalizer = charsmap_alone(model);
  if (!model.charsmap) normalizer.add(Normalizer::Replace{TextPattern("\n"), " "});
  normalizer.add(Normalizer::Replace{TextPattern(Regex(" {2,}", what)), " "});
  return {.normalizer = std::move(normalizer),
          .pre_tokenizer = PreTokenizer::from_json(metaspace(), what),
          .model = UnigramModel::from_pieces(std::move(pieces), unknown, false,
                                             UnigramModel::Sums::tokenizers, what),
          .decoder = TokenDecoder::from_json(metaspace(), what),
          .added_tokens = std::move(tokens),
          .post_processor = ends_with(token_text(config, "eos_token"), 1)};
}

TokenizerParts own_with_bytes(const SentencePieceModel& model, Json& config, const std::string& what) {
  need(model, SentencePieceModel::Algorithm::bpe, what);
  name_tokens(config, {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}});
  if (!config.contains("add_bos_token")) config["add_bos_token"] = true;
  const bool legacy = bool_member(config, "legacy", false, what);
  const bool space = bool_member(config, "add_prefix_space", true, what);
  auto tokens = Json::array();
  add_marked_pieces(model, tokens);
  const auto step = [](const char* type) { return Json{{"type", type}}; };
  auto decoders = Json::array({{{"type", "Replace"}, {"pattern", {{"String", kMetaspace}}}, {"content", " "}},
                               step("ByteFallback"),
                               step("Fuse")});
  if (space) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  const Json pre_tokenizer = {{"type", "Metaspace"},
                              {"replacement", kMetaspace},
                              {"prepend_scheme", !space   ? "never"
                                                 : legacy ? "always"
                                                          : "first"},
                              {"split", false}};
  return {
      .normalizer = {},
      .pre_tokenizer = PreTokenizer::from_json(pre_tokenizer, what),
      .model = BpeModel::from_pieces(model.pieces, model.unknown, true, BpeModel::Order::tokenizers, what),
      .decoder = TokenDecoder::from_json({{"type", "Sequence"}, {"decoders", decoders}}, what),
      .added_tokens = std::move(tokens),
      .post_processor = nullptr};
}

// Pieces as the library of sentencepiece finds them; their ids are a vocab.json's.
TokenizerParts with_vocabulary(const SentencePieceModel& model, Vocabulary vocabulary, const Json& config,
                               const std::string& what) {
  const auto id_of = [&](const char* name) {
    const auto found = vocabulary.find(token_text(config, name));
    if (found == vocabulary.end())
      throw_bad_data(what + ": vocab.json lacks the " + name + " " + in_quotes(token_text(config, name)));
    return found->second;
  };
  if (std::any_of(model.pieces.begin(), model.pieces.end(),
                  [](const auto& piece) { return piece.kind == PieceKind::user_defined; }))
    throw_refused(what + " has user-defined pieces, which this build does not know beside a vocab.json");
  const auto unknown = id_of("unk_token");
  const auto eos = id_of("eos_token");
  Normalizer normalizer;
  normalizer.add(model.normalizer());
  const auto make_model = [&]() -> std::variant<BpeModel, UnigramModel> {
    const bool unigram = model.algorithm == SentencePieceModel::Algorithm::unigram;
    if (unigram && model.byte_fallback)
      throw_refused(what + " falls back to bytes, which this build does not know beside a vocab.json");
    if (unigram) return UnigramModel::with_vocabulary(model.pieces, std::move(vocabulary), unknown, what);
    auto made = BpeModel::from_pieces(model.pieces, model.unknown, model.byte_fallback,
                                      BpeModel::Order::sentencepiece, what);
    made.take_ids(std::move(vocabulary), unknown);
    return made;
  };
  return {.normalizer = std::move(normalizer),
          .pre_tokenizer = {},
          .model = make_model(),
          .decoder = TokenDecoder::trimmed(kMetaspace),
          .added_tokens = Json::array(),
          .post_processor = ends_with(token_text(config, "eos_token"), eos)};
}

Vocabulary vocabulary_of(const std::filesystem::path& path) {
  return read_vocabulary(read_json(path, 256U << 20, DuplicateKeys::refuse), "'" + path.string() + "'");
}

TokenizerParts vocabulary_and_languages(const std::filesystem::path& folder, Json& config) {
  name_tokens(config,
              {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}});
  const auto path = model_path(folder);
  auto vocabulary = vocabulary_of(folder / "vocab.json");
  const auto count = vocabulary.size();
  auto parts = with_vocabulary(SentencePieceModel::read(path), std::move(vocabulary), config,
                               "'" + path.string() + "'");
  const auto rules = LanguageRules::of(config);
  for (const auto code : rules->facts.behind_pieces)
    parts.added_tokens.push_back(added(count + parts.added_tokens.size(), rules->token_of(code)));
  return parts;
}

TokenizerParts two_models(const std::filesystem::path& folder, Json& config) {
  name_tokens(config, {{"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}});
  if (bool_member(config, "separate_vocabs", false, "tokenizer_config.json"))
    throw_refused("'" + folder.string() +
                  "' has a vocabulary for each language (separate_vocabs), which this build does not read");
  // Decoding needs no more than vocab.json, but a folder without is not whole.
  SentencePieceModel::read(folder / kTargetName);
  auto parts =
      with_vocabulary(SentencePieceModel::read(folder / kSourceName), vocabulary_of(folder / "vocab.json"),
                      config, "'" + (folder / kSourceName).string() + "'");
  parts.language_in_text = true;
  return parts;
}

// Where tokenizer_config.json names no class: config.json may, as transformers takes it, or what lies in the
// folder leaves no choice.
void find_class(const std::filesystem::path& folder, Json& config) {
  if (!tokenizer_class(config).empty()) return;
  if (const auto path = folder / "config.json"; std::filesystem::exists(path)) {
    const auto model = read_json(path);
    if (!model.is_object()) throw_bad_data("'" + path.string() + "' is not an object");
    config["tokenizer_class"] =
        string_member(model, "tokenizer_class", "'" + path.string() + "'").value_or("");
    if (!tokenizer_class(config).empty()) return;
  }
  if (std::filesystem::exists(folder / kSourceName)) {
    config["tokenizer_class"] = tokenizer_class_with(PieceIds::two_models);
  } else if (config.contains("extra_ids")) {
    config["tokenizer_class"] = tokenizer_class_with(PieceIds::own_then_extra);
  }
}

}  // namespace

std::span<const std::string_view> sentencepiece_names() {
  return kNames;
}

bool has_sentencepiece_model(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / kSourceName) ||
         std::any_of(kModelNames.begin(), kModelNames.end(),
                     [&](std::string_view name) { return std::filesystem::exists(folder / name); });
}

TokenizerParts read_sentencepiece_folder(const std::filesystem::path& folder, Json& config) {
  find_class(folder, config);
  const auto name = tokenizer_class(config);
  const auto* facts = find_tokenizer_facts(name);
  const auto ids = facts == nullptr ? PieceIds::of_tokenizer_json : facts->ids;
  // Each of these looks for its own files.
  if (ids == PieceIds::two_models) return two_models(folder, config);
  if (ids == PieceIds::vocabulary) return vocabulary_and_languages(folder, config);
  const auto path = model_path(folder);
  const auto what = "'" + path.string() + "'";
  if (ids == PieceIds::own_then_extra) return own_then_extra(SentencePieceModel::read(path), config, what);
  if (ids == PieceIds::behind_unused) return behind_unused(SentencePieceModel::read(path), config, what);
  if (ids == PieceIds::own_with_bytes) return own_with_bytes(SentencePieceModel::read(path), config, what);
  if (ids == PieceIds::fairseq) return fairseq(SentencePieceModel::read(path), config, what);
  throw_refused(
      what + " does not say which ids its pieces have; that is known for " + classes_with_piece_ids() +
      ", and " +
      (name.empty() ? "tokenizer_config.json names no tokenizer_class" : "this is " + in_quotes(name)) +
      ": save the tokenizer as a tokenizer.json (transformers' save_pretrained)");
}

}  // namespace diffuse

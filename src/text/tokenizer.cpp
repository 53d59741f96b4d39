#include "text/tokenizer.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <variant>

#include "core/error.hpp"
#include "text/added_tokens.hpp"
#include "text/element.hpp"
#include "text/languages.hpp"
#include "text/post_processor.hpp"
#include "text/sentencepiece_folder.hpp"
#include "text/tokenizer_parts.hpp"

namespace diffuse {
namespace {

using Model = std::variant<BpeModel, UnigramModel>;

// The names that tokenizer_config.json gives special tokens by, as transformers lists them.
constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};

Model read_model(const Json& element, const std::string& where) {
  if (!element.is_object()) throw_bad_data(where + " must be an object");
  // Files from before the types were named.
  const bool named = element.contains("type");
  const bool old_bpe = !named && element.contains("merges");
  const bool old_unigram = !named && element.contains("unk_id");
  const auto type = old_bpe ? "BPE" : old_unigram ? "Unigram" : element_type(element, where);
  if (type == "BPE") return BpeModel::from_json(element, where + " 'BPE'");
  if (type == "Unigram") return UnigramModel::from_json(element, where + " 'Unigram'");
  throw_refused(where + " " + in_quotes(type) + " is not known to this build, which has BPE and Unigram");
}

const Json& member_or_null(const Json& object, const char* key) {
  static const Json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

AddedToken read_added_token(const Json& element, std::int32_t id, const std::string& where) {
  const bool special = bool_member(element, "special", false, where);
  return {.id = id,
          .content = require_string(element, "content", where),
          .single_word = bool_member(element, "single_word", false, where),
          .lstrip = bool_member(element, "lstrip", false, where),
          .rstrip = bool_member(element, "rstrip", false, where),
          .normalized = bool_member(element, "normalized", !special, where),
          .special = special};
}

AddedToken special_token(std::int32_t id, std::string content) {
  AddedToken token{.id = id, .content = std::move(content)};
  token.normalized = false;
  token.special = true;
  return token;
}

// "<s>", or an object with content; nothing where it is null.
std::optional<std::string> token_text(const Json& value, const std::string& where) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) return require_string(value, "content", where);
  throw_bad_data(where + " must be a token's text");
}

}  // namespace

struct Tokenizer::State {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Model model;
  TokenDecoder decoder;
  bool language_in_text;
  PostProcessor post_processor;
  std::optional<LanguageRules> languages;
  TokenFinder raw_finder;          // tokens looked for in the text as it is
  TokenFinder normalized_finder;   // and in the normalized text
  std::vector<std::string> texts;  // of each id as the decoder reads it; see `known`
  std::vector<bool> known;
  std::vector<bool> special;
  Vocabulary added_ids;
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> eos;
  std::optional<std::int32_t> pad;
  std::optional<std::int32_t> unk;
  std::vector<std::pair<std::string, std::string>> named;

  const Vocabulary& vocabulary() const {
    return std::visit([](const auto& kind) -> const Vocabulary& { return kind.vocabulary(); }, model);
  }
  std::optional<std::int32_t> id_of(std::string_view token) const {
    if (const auto found = added_ids.find(token); found != added_ids.end()) return found->second;
    const auto found = vocabulary().find(token);
    return found == vocabulary().end() ? std::nullopt : std::optional(found->second);
  }
  bool has(std::int32_t id) const {
    return id >= 0 && static_cast<std::size_t>(id) < known.size() && known[static_cast<std::size_t>(id)];
  }
  void name_id(std::int32_t id, const std::string& text) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= known.size()) {
      texts.resize(index + 1);
      known.resize(index + 1);
      special.resize(index + 1);
    }
    texts[index] = text;
    known[index] = true;
  }
  void name_vocabulary();
  void add(const AddedToken& token, const std::string& where);
  void read_config(const Json& config, std::map<std::int32_t, AddedToken>& tokens, const std::string& where);
  void read_post_processor(const Json& element, const Json& config, const std::string& where);
  void name_source(const std::string& where);
  std::int32_t language(const std::string& code) const;
  void encode_piece(std::string text, bool at_start, std::vector<std::int32_t>& ids) const;
  void take_language(std::string& text, std::vector<std::int32_t>& ids) const;
};

void Tokenizer::State::name_vocabulary() {
  for (const auto& [piece, id] : vocabulary()) name_id(id, piece);
  if (const auto* unigram = std::get_if<UnigramModel>(&model)) {
    for (const auto& [piece, id] : unigram->repeated()) name_id(id, piece);
  }
}

void Tokenizer::State::add(const AddedToken& token, const std::string& where) {
  auto written = token.normalized ? normalizer.apply(token.content) : token.content;
  (token.normalized ? normalized_finder : raw_finder).add(written, token, where);
  // Decoding undoes the normalizer as well.
  name_id(token.id, written);
  special[static_cast<std::size_t>(token.id)] = token.special;
}

// Adds what the config knows: flags of added tokens, and special tokens that tokenizer.json does not list.
void Tokenizer::State::read_config(const Json& config, std::map<std::int32_t, AddedToken>& tokens,
                                   const std::string& where) {
  const auto listed = member_or_null(config, "added_tokens_decoder");
  if (!listed.is_null() && !listed.is_object())
    throw_bad_data(where + ": 'added_tokens_decoder' must be an object");
  for (const auto& [key, element] : listed.items()) {
    const auto here = where + ": added token " + in_quotes(key);
    if (key.empty() || key.size() > 8 || key.find_first_not_of("0123456789") != std::string::npos)
      throw_bad_data(here + " has no id for a key");
    const auto id = token_id(Json(std::stoull(key)), here);
    auto token = read_added_token(element, id, here);
    if (token.content.empty()) continue;
    const auto known_id = id_of(token.content);
    if (known_id && *known_id != id)
      throw_bad_data(here + " is " + in_quotes(token.content) + ", which tokenizer.json gives the id " +
                     std::to_string(*known_id));
    if (!known_id && has(id)) throw_bad_data(here + " is another token in tokenizer.json");
    added_ids.insert_or_assign(token.content, id);
    name_id(id, token.content);
    tokens.insert_or_assign(id, std::move(token));
  }
  const auto make_special = [&](const std::string& text) {
    if (text.empty()) return;
    auto id = id_of(text);
    // transformers gives it the next id, a row that the model may lack.
    if (!id) id = static_cast<std::int32_t>(known.size());
    if (*id > kMaxTokenId) throw_bad_data(where + ": no id is left for " + in_quotes(text));
    const auto [entry, fresh] = tokens.try_emplace(*id, special_token(*id, text));
    if (!fresh) entry->second.special = true;
    added_ids.insert_or_assign(text, *id);
    name_id(*id, text);
  };
  for (const auto* name : kNamedTokens) {
    const auto text = token_text(member_or_null(config, name), where + ": '" + name + "'");
    if (!text) continue;
    make_special(*text);
    named.emplace_back(name, *text);
    const std::string_view key = name;
    if (key == "bos_token") bos = id_of(*text);
    if (key == "eos_token") eos = id_of(*text);
    if (key == "pad_token") pad = id_of(*text);
    if (key == "unk_token") unk = id_of(*text);
  }
  for (const auto* name : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto& list = member_or_null(config, name);
    const auto here = where + ": '" + name + "'";
    if (!list.is_null() && !list.is_array() && !list.is_object())
      throw_bad_data(here + " must be a list or an object");
    for (const auto& [key, value] : list.items()) {
      const auto text = token_text(value, here);
      if (!text) continue;
      make_special(*text);
      if (list.is_object()) named.emplace_back(key, *text);
    }
  }
}

void Tokenizer::State::read_post_processor(const Json& element, const Json& config,
                                           const std::string& where) {
  post_processor = PostProcessor::from_json(element, where + ": post_processor");
  // transformers builds its own where the config says anything of bos and eos, or tokenizer.json nothing.
  const bool own = config.contains("add_bos_token") || config.contains("add_eos_token");
  if (own || element.is_null()) {
    post_processor = {};
    if (bool_member(config, "add_bos_token", false, where) && bos) post_processor.before = {*bos};
    if (bool_member(config, "add_eos_token", false, where) && eos) post_processor.behind = {*eos};
  }
  name_source(where);
  for (const auto* side : {&post_processor.before, &post_processor.behind}) {
    for (const auto id : *side)
      if (!has(id))
        throw_bad_data(where + ": the post_processor adds the id " + std::to_string(id) +
                       ", which no token has");
  }
}

// The source language's token and </s>, where the tokenizer's class has such.
void Tokenizer::State::name_source(const std::string& where) {
  using Source = LanguageFacts::Source;
  if (!languages || languages->facts.source == Source::unnamed) return;
  const auto id = id_of(languages->source_token);
  if (!id && !languages->source_given) return;
  if (!id)
    throw_bad_data(where + ": src_lang is the language of " + in_quotes(languages->source_token) +
                   ", which is no token");
  if (!eos) throw_bad_data(where + ": no eos_token stands behind a text in a language");
  post_processor = languages->facts.source == Source::in_front ? PostProcessor{{*id}, {*eos}}
                                                               : PostProcessor{{}, {*eos, *id}};
}

// The token of a language that is asked for: as it is written, or the only one with another part behind "_".
std::int32_t Tokenizer::State::language(const std::string& code) const {
  const auto token = languages->token_of(code);
  const auto exact = id_of(token);
  const auto is_marked = [&](std::int32_t id) { return special[static_cast<std::size_t>(id)]; };
  if (exact && (is_marked(*exact) || !languages->facts.begins_answer)) return *exact;
  std::vector<std::int32_t> found;
  for (std::size_t id = 0; id < texts.size(); ++id) {
    if (special[id] && texts[id].starts_with(code + "_")) found.push_back(static_cast<std::int32_t>(id));
  }
  if (found.size() == 1) return found[0];
  std::string several;
  for (const auto id : found) several += " " + texts[static_cast<std::size_t>(id)];
  throw_bad_data(
      "`language` is " + in_quotes(code) +
      (found.empty() ? ", which the tokenizer has no token for" : ", which may be any of" + several));
}

// A language's token at the start of a text, as ">>fr<< text" has it: one token, known or not.
void Tokenizer::State::take_language(std::string& text, std::vector<std::int32_t>& ids) const {
  if (!language_in_text || !text.starts_with(">>")) return;
  const auto end = text.find("<<");
  if (end == std::string::npos) return;
  const auto id = id_of(std::string_view(text).substr(0, end + 2));
  const auto unknown = unk ? unk : id;
  if (id || unknown) ids.push_back(id ? *id : *unknown);
  text.erase(0, end + 2);
}

void Tokenizer::State::encode_piece(std::string text, bool at_start, std::vector<std::int32_t>& ids) const {
  take_language(text, ids);
  const auto normalized = normalizer.apply(std::move(text));
  for (const auto& [span, id] : normalized_finder.find(normalized)) {
    if (id >= 0) {
      ids.push_back(id);
      continue;
    }
    Word whole{normalized.substr(span.begin, span.end - span.begin), at_start && span.begin == 0};
    for (const auto& word : pre_tokenizer.apply(std::move(whole)))
      std::visit([&](const auto& kind) { kind.encode(word.text, ids); }, model);
  }
}

bool Tokenizer::present(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / "tokenizer.json") || has_sentencepiece_model(folder);
}

Tokenizer Tokenizer::load(const std::filesystem::path& folder) {
  const auto config_path = folder / "tokenizer_config.json";
  auto config = std::filesystem::exists(config_path) ? read_json(config_path) : Json();
  if (!std::filesystem::exists(folder / "tokenizer.json") && has_sentencepiece_model(folder)) {
    const auto what = "'" + folder.string() + "'";
    if (config.is_null()) config = Json::object();
    if (!config.is_object()) throw_bad_data(what + ": tokenizer_config.json is not an object");
    auto parts = read_sentencepiece_folder(folder, config);
    return from_parts(std::move(parts), config, what);
  }
  return from_json(read_json(folder / "tokenizer.json", 256U << 20, DuplicateKeys::refuse), config,
                   "'" + (folder / "tokenizer.json").string() + "'");
}

Tokenizer Tokenizer::from_json(const Json& tokenizer, const Json& config, const std::string& what) {
  if (!tokenizer.is_object()) throw_bad_data(what + " is not an object");
  const auto element = [&](const char* key) -> const Json& { return member_or_null(tokenizer, key); };
  return from_parts(
      {.normalizer = Normalizer::from_json(element("normalizer"), what + ": normalizer"),
       .pre_tokenizer = PreTokenizer::from_json(element("pre_tokenizer"), what + ": pre_tokenizer"),
       .model = read_model(element("model"), what + ": model"),
       .decoder = TokenDecoder::from_json(element("decoder"), what + ": decoder"),
       .added_tokens = element("added_tokens"),
       .post_processor = element("post_processor")},
      config, what);
}

Tokenizer Tokenizer::from_parts(TokenizerParts parts, const Json& config, const std::string& what) {
  if (!config.is_null() && !config.is_object())
    throw_bad_data(what + ": tokenizer_config.json is not an object");
  static const Json no_config = Json::object();
  const auto& settings = config.is_null() ? no_config : config;
  auto state = std::make_shared<State>(State{
      .normalizer = std::move(parts.normalizer),
      .pre_tokenizer = std::move(parts.pre_tokenizer),
      .model = std::move(parts.model),
      .decoder = std::move(parts.decoder),
      .language_in_text = parts.language_in_text,
      .post_processor = {},
      .languages = LanguageRules::of(settings),
      .raw_finder = {},
      .normalized_finder = {},
      .texts = {},
      .known = {},
      .special = {},
      .added_ids = {},
      .bos = {},
      .eos = {},
      .pad = {},
      .unk = {},
      .named = {},
  });
  state->name_vocabulary();

  std::map<std::int32_t, AddedToken> tokens;
  const auto& listed = parts.added_tokens;
  if (!listed.is_null() && !listed.is_array()) throw_bad_data(what + ": 'added_tokens' must be a list");
  for (const auto& entry : listed) {
    const auto where = what + ": added_tokens";
    if (!entry.is_object()) throw_bad_data(where + " holds something that is no object");
    const auto id = token_id(member_or_null(entry, "id"), where);
    auto token = read_added_token(entry, id, where);
    if (token.content.empty()) continue;
    const auto known_id = state->id_of(token.content);
    if (known_id && *known_id != id)
      throw_bad_data(where + " gives " + in_quotes(token.content) + " the id " + std::to_string(id) +
                     ", but it has " + std::to_string(*known_id));
    if (!known_id && state->has(id))
      throw_bad_data(where + " gives " + in_quotes(token.content) + " the id " + std::to_string(id) +
                     ", which another token has");
    state->added_ids.insert_or_assign(token.content, id);
    state->name_id(id, token.content);
    tokens.insert_or_assign(id, std::move(token));
  }
  state->read_config(settings, tokens, what + " with tokenizer_config.json");
  for (const auto& [id, token] : tokens) state->add(token, what);
  state->read_post_processor(parts.post_processor, settings, what);
  return Tokenizer(std::move(state));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = repair_utf8(text);
    text = repaired;
  }
  const auto& post = state_->post_processor;
  std::vector<std::int32_t> ids;
  if (add_special) ids = post.before;
  for (const auto& [span, id] : state_->raw_finder.find(text)) {
    if (id >= 0) {
      ids.push_back(id);
    } else {
      state_->encode_piece(std::string(text.substr(span.begin, span.end - span.begin)), span.begin == 0, ids);
    }
  }
  if (add_special) ids.insert(ids.end(), post.behind.begin(), post.behind.end());
  return ids;
}

Tokenizer::Source Tokenizer::encode_source(std::string_view text, const std::string& language) const {
  if (language.empty()) return {encode(text, true), std::nullopt};
  if (!state_->languages)
    throw_bad_data("`language` names what to translate into, and this tokenizer has no languages");
  const auto id = state_->language(language);
  if (state_->languages->facts.begins_answer) return {encode(text, true), id};
  if (text.starts_with(state_->languages->facts.before))
    throw_bad_data("the prompt begins with a language's token, and `language` names one as well");
  return {encode(state_->languages->token_of(language) + " " + std::string(text), true), std::nullopt};
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (const auto id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

std::int32_t Tokenizer::vocab_size() const {
  return static_cast<std::int32_t>(state_->known.size());
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  return state_->id_of(token);
}

std::optional<std::string> Tokenizer::token_of(std::int32_t id) const {
  return state_->has(id) ? std::optional(state_->texts[static_cast<std::size_t>(id)]) : std::nullopt;
}

bool Tokenizer::is_special(std::int32_t id) const {
  return state_->has(id) && state_->special[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> Tokenizer::bos_id() const {
  return state_->bos;
}

std::optional<std::int32_t> Tokenizer::eos_id() const {
  return state_->eos;
}

std::optional<std::int32_t> Tokenizer::pad_id() const {
  return state_->pad;
}

const std::vector<std::pair<std::string, std::string>>& Tokenizer::special_tokens() const {
  return state_->named;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : state_(tokenizer.state_), skip_special_(skip_special), stream_(state_->decoder) {}

std::string StreamDecoder::push(std::int32_t id) {
  if (!state_->has(id)) return {};
  if (skip_special_ && state_->special[static_cast<std::size_t>(id)]) return {};
  return stream_.push(state_->texts[static_cast<std::size_t>(id)]);
}

std::string StreamDecoder::finish() {
  return stream_.finish();
}

}  // namespace diffuse

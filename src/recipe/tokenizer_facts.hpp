#pragma once
// Stated facts of tokenizer classes, a row each: what neither tokenizer_config.json nor a sentencepiece model
// says. The class is the one that tokenizer_config.json names, without its "Fast"; the facts are
// transformers'.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace diffuse {

// Which ids the pieces of a sentencepiece model have.
enum class PieceIds : std::uint8_t {
  of_tokenizer_json,  // no model is read
  own_then_extra,     // their own; <extra_id_99> down to <extra_id_0> behind them. Unigram
  own_with_bytes,     // their own; what is no piece falls back to bytes. BPE
  fairseq,            // <s> <pad> </s> <unk>, the pieces from the fourth on, languages, <mask>. Unigram
  behind_unused,  // <pad>, </s>, masks, unused tokens up to `offset`, the pieces from the third on. Unigram
  vocabulary,     // those of vocab.json, languages behind them
  two_models,     // those of vocab.json; one model cuts what is read, another what is answered
};

// How the tokenizer of a translation model names languages.
struct LanguageFacts {
  enum class Source : std::uint8_t {
    unnamed,
    in_front,  // the source language's token, the text, </s>
    behind,    // the text, </s>, the source language's token
  };
  Source source = Source::unnamed;
  std::optional<Source> legacy_source = {};  // where `legacy_behaviour` is set
  std::string_view default_source = {};
  // The target language's token begins the answer; else it begins the text.
  bool begins_answer = true;
  std::string_view before = {};  // what a language's token has around its code
  std::string_view behind = {};
  // The codes of the languages whose tokens follow the pieces of a sentencepiece model, in order.
  std::span<const std::string_view> behind_pieces = {};
};

struct TokenizerFacts {
  std::string_view name;
  PieceIds ids = PieceIds::of_tokenizer_json;
  bool joins_spaces = false;  // runs of spaces are one, and a text is not cut at other white space
  std::optional<LanguageFacts> languages = {};
};

// Null for a class without facts.
const TokenizerFacts* find_tokenizer_facts(std::string_view name);
// The class to take where only the kind is known: the first row of it.
std::string_view tokenizer_class_with(PieceIds ids);
// The classes whose sentencepiece models can be read, for messages: "A, B and C".
std::string classes_with_piece_ids();

}  // namespace diffuse

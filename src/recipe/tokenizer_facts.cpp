#include "recipe/tokenizer_facts.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace diffuse {
namespace {

// mBART's 25, then the 27 that mBART-50 adds.
constexpr std::size_t kFirstLanguages = 25;
constexpr std::array kLanguages = std::to_array<std::string_view>(
    {"ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT",
     "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK",
     "tr_TR", "vi_VN", "zh_CN", "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE",
     "km_KH", "mk_MK", "ml_IN", "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN",
     "te_IN", "th_TH", "tl_XX", "uk_UA", "ur_PK", "xh_ZA", "gl_ES", "sl_SI"});

constexpr std::array kShortLanguages = std::to_array<std::string_view>(
    {"af", "am", "ar", "ast", "az", "ba",  "be", "bg", "bn", "br", "bs", "ca", "ceb", "cs", "cy", "da", "de",
     "el", "en", "es", "et",  "fa", "ff",  "fi", "fr", "fy", "ga", "gd", "gl", "gu",  "ha", "he", "hi", "hr",
     "ht", "hu", "hy", "id",  "ig", "ilo", "is", "it", "ja", "jv", "ka", "kk", "km",  "kn", "ko", "lb", "lg",
     "ln", "lo", "lt", "lv",  "mg", "mk",  "ml", "mn", "mr", "ms", "my", "ne", "nl",  "no", "ns", "oc", "or",
     "pa", "pl", "ps", "pt",  "ro", "ru",  "sd", "si", "sk", "sl", "so", "sq", "sr",  "ss", "su", "sv", "sw",
     "ta", "th", "tl", "tn",  "tr", "uk",  "ur", "uz", "vi", "wo", "xh", "yi", "yo",  "zh", "zu"});

using Source = LanguageFacts::Source;

constexpr std::array kRows = {
    TokenizerFacts{.name = "T5Tokenizer", .ids = PieceIds::own_then_extra},
    TokenizerFacts{.name = "MBartTokenizer",
                   .ids = PieceIds::fairseq,
                   .languages = LanguageFacts{.source = Source::behind,
                                              .default_source = "en_XX",
                                              .behind_pieces = std::span(kLanguages).first(kFirstLanguages)}},
    TokenizerFacts{.name = "MBart50Tokenizer",
                   .ids = PieceIds::fairseq,
                   .joins_spaces = true,
                   .languages = LanguageFacts{.source = Source::in_front,
                                              .default_source = "en_XX",
                                              .behind_pieces = kLanguages}},
    TokenizerFacts{.name = "M2M100Tokenizer",
                   .ids = PieceIds::vocabulary,
                   .languages = LanguageFacts{.source = Source::in_front,
                                              .default_source = "en",
                                              .before = "__",
                                              .behind = "__",
                                              .behind_pieces = kShortLanguages}},
    TokenizerFacts{.name = "MarianTokenizer",
                   .ids = PieceIds::two_models,
                   .languages = LanguageFacts{.begins_answer = false, .before = ">>", .behind = "<<"}},
    TokenizerFacts{.name = "XLMRobertaTokenizer", .ids = PieceIds::fairseq},
    TokenizerFacts{.name = "PegasusTokenizer", .ids = PieceIds::behind_unused},
    TokenizerFacts{.name = "LlamaTokenizer", .ids = PieceIds::own_with_bytes},
    TokenizerFacts{.name = "NllbTokenizer",
                   .languages = LanguageFacts{.source = Source::in_front,
                                              .legacy_source = Source::behind,
                                              .default_source = "eng_Latn"}},
};

}  // namespace

const TokenizerFacts* find_tokenizer_facts(std::string_view name) {
  const auto found = std::ranges::find(kRows, name, &TokenizerFacts::name);
  return found == kRows.end() ? nullptr : &*found;
}

std::string_view tokenizer_class_with(PieceIds ids) {
  const auto found = std::ranges::find(kRows, ids, &TokenizerFacts::ids);
  return found == kRows.end() ? std::string_view() : found->name;
}

std::string classes_with_piece_ids() {
  std::vector<std::string_view> names;
  for (const auto& row : kRows)
    if (row.ids != PieceIds::of_tokenizer_json) names.push_back(row.name);
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace diffuse

#include "text/languages.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "text/element.hpp"

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

}  // namespace

std::optional<LanguageRules> LanguageRules::of(const Json& config) {
  const auto name = tokenizer_class(config);
  LanguageRules rules;
  std::string source;
  if (name == "MBartTokenizer") {
    rules.source = Source::behind;
    source = "en_XX";
  } else if (name == "MBart50Tokenizer") {
    rules.source = Source::in_front;
    source = "en_XX";
  } else if (name == "NllbTokenizer") {
    const bool old = bool_member(config, "legacy_behaviour", false, "tokenizer_config.json");
    rules.source = old ? Source::behind : Source::in_front;
    source = "eng_Latn";
  } else if (name == "M2M100Tokenizer") {
    rules.source = Source::in_front;
    rules.before = "__";
    rules.behind = "__";
    source = "en";
  } else if (name == "MarianTokenizer") {
    rules.begins_answer = false;
    rules.before = ">>";
    rules.behind = "<<";
  } else {
    return std::nullopt;
  }
  if (rules.source == Source::unnamed) return rules;
  const auto given = string_member(config, "src_lang", "tokenizer_config.json");
  rules.source_given = given.has_value();
  rules.source_token = rules.token_of(given.value_or(source));
  return rules;
}

std::string LanguageRules::token_of(std::string_view code) const {
  return std::string(before) + std::string(code) + std::string(behind);
}

std::string tokenizer_class(const Json& config) {
  auto name = string_member(config, "tokenizer_class", "tokenizer_config.json").value_or("");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

std::vector<std::string_view> languages_behind_pieces(std::string_view tokenizer_class) {
  std::span<const std::string_view> codes;
  if (tokenizer_class == "MBartTokenizer") codes = std::span(kLanguages).first(kFirstLanguages);
  if (tokenizer_class == "MBart50Tokenizer") codes = kLanguages;
  if (tokenizer_class == "M2M100Tokenizer") codes = kShortLanguages;
  return {codes.begin(), codes.end()};
}

}  // namespace diffuse

#include "text/speech_languages.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace diffuse {
namespace {

using NamedCode = std::pair<std::string_view, std::string_view>;

// English names, some of them of one language, and codes. Sorted by name.
constexpr auto kLanguages = std::to_array<NamedCode>(
    {{"afrikaans", "af"},     {"albanian", "sq"},      {"amharic", "am"},     {"arabic", "ar"},
     {"armenian", "hy"},      {"assamese", "as"},      {"azerbaijani", "az"}, {"bashkir", "ba"},
     {"basque", "eu"},        {"belarusian", "be"},    {"bengali", "bn"},     {"bosnian", "bs"},
     {"breton", "br"},        {"bulgarian", "bg"},     {"burmese", "my"},     {"cantonese", "yue"},
     {"castilian", "es"},     {"catalan", "ca"},       {"chinese", "zh"},     {"croatian", "hr"},
     {"czech", "cs"},         {"danish", "da"},        {"dutch", "nl"},       {"english", "en"},
     {"estonian", "et"},      {"faroese", "fo"},       {"finnish", "fi"},     {"flemish", "nl"},
     {"french", "fr"},        {"galician", "gl"},      {"georgian", "ka"},    {"german", "de"},
     {"greek", "el"},         {"gujarati", "gu"},      {"haitian", "ht"},     {"haitian creole", "ht"},
     {"hausa", "ha"},         {"hawaiian", "haw"},     {"hebrew", "he"},      {"hindi", "hi"},
     {"hungarian", "hu"},     {"icelandic", "is"},     {"indonesian", "id"},  {"italian", "it"},
     {"japanese", "ja"},      {"javanese", "jw"},      {"kannada", "kn"},     {"kazakh", "kk"},
     {"khmer", "km"},         {"korean", "ko"},        {"lao", "lo"},         {"latin", "la"},
     {"latvian", "lv"},       {"letzeburgesch", "lb"}, {"lingala", "ln"},     {"lithuanian", "lt"},
     {"luxembourgish", "lb"}, {"macedonian", "mk"},    {"malagasy", "mg"},    {"malay", "ms"},
     {"malayalam", "ml"},     {"maltese", "mt"},       {"mandarin", "zh"},    {"maori", "mi"},
     {"marathi", "mr"},       {"moldavian", "ro"},     {"moldovan", "ro"},    {"mongolian", "mn"},
     {"myanmar", "my"},       {"nepali", "ne"},        {"norwegian", "no"},   {"nynorsk", "nn"},
     {"occitan", "oc"},       {"panjabi", "pa"},       {"pashto", "ps"},      {"persian", "fa"},
     {"polish", "pl"},        {"portuguese", "pt"},    {"punjabi", "pa"},     {"pushto", "ps"},
     {"romanian", "ro"},      {"russian", "ru"},       {"sanskrit", "sa"},    {"serbian", "sr"},
     {"shona", "sn"},         {"sindhi", "sd"},        {"sinhala", "si"},     {"sinhalese", "si"},
     {"slovak", "sk"},        {"slovenian", "sl"},     {"somali", "so"},      {"spanish", "es"},
     {"sundanese", "su"},     {"swahili", "sw"},       {"swedish", "sv"},     {"tagalog", "tl"},
     {"tajik", "tg"},         {"tamil", "ta"},         {"tatar", "tt"},       {"telugu", "te"},
     {"thai", "th"},          {"tibetan", "bo"},       {"turkish", "tr"},     {"turkmen", "tk"},
     {"ukrainian", "uk"},     {"urdu", "ur"},          {"uzbek", "uz"},       {"valencian", "ca"},
     {"vietnamese", "vi"},    {"welsh", "cy"},         {"yiddish", "yi"},     {"yoruba", "yo"}});

constexpr std::array<std::string_view, 6> kSpaceless = {"zh", "ja", "th", "lo", "my", "yue"};

}  // namespace

std::string language_code(std::string_view name) {
  if (name.size() > 4 && name.starts_with("<|") && name.ends_with("|>"))
    name = name.substr(2, name.size() - 4);
  std::string wanted(name);
  std::ranges::transform(wanted, wanted.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto found = std::ranges::find_if(
      kLanguages, [&](const NamedCode& known) { return known.first == wanted || known.second == wanted; });
  return found == kLanguages.end() ? std::string() : std::string(found->second);
}

bool is_spaceless(std::string_view code) {
  return std::ranges::find(kSpaceless, code) != kSpaceless.end();
}

}  // namespace diffuse

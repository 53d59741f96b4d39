#pragma once
// Names and codes of the languages that Whisper's models know.

#include <string>
#include <string_view>

namespace diffuse {

// The code of a language given by its code ("de"), its token ("<|de|>") or its English name ("German",
// "Castilian"), without regard to case; empty where there is none.
std::string language_code(std::string_view name);

// True for languages that write without spaces between words.
bool is_spaceless(std::string_view code);

}  // namespace diffuse

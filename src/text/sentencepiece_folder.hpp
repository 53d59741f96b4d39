#pragma once
// The tokenizer of a folder that has a sentencepiece model and no tokenizer.json. The model says how text
// becomes pieces, but not which ids the pieces have nor what stands around a text: those are facts of the
// tokenizer class that tokenizer_config.json names, as transformers has them.

#include <filesystem>
#include <span>
#include <string_view>

#include "core/json.hpp"
#include "text/tokenizer_parts.hpp"

namespace diffuse {

// The names that such models have, in the order of preference.
std::span<const std::string_view> sentencepiece_names();

bool has_sentencepiece_model(const std::filesystem::path& folder);

// `config` is the folder's tokenizer_config.json (an object); the class, where it can be told otherwise, and
// special tokens that it leaves unnamed and the class has a name for are added to it. Throws missing input
// where a file that the class needs is not there, bad data where one contradicts itself, refused for a class
// that this build has no facts of.
TokenizerParts read_sentencepiece_folder(const std::filesystem::path& folder, Json& config);

}  // namespace diffuse

#pragma once
// Reading the elements of a tokenizer.json: `where` names the element in errors ("'x/tokenizer.json':
// decoder").

#include <cstdint>
#include <optional>
#include <string>

#include "core/json.hpp"

namespace diffuse {

// Ids above this are refused: no vocabulary is near it, and tables are as long as the highest id.
inline constexpr std::int64_t kMaxTokenId = (1 << 22) - 1;

// The element's `type`. Throws bad data where it is no object or has none.
std::string element_type(const Json& element, const std::string& where);

// Members of an element; a missing (or, but for require_, null) one is the default. Throw bad data for
// another type.
bool bool_member(const Json& element, const char* key, bool otherwise, const std::string& where);
std::optional<std::string> string_member(const Json& element, const char* key, const std::string& where);
std::string require_string(const Json& element, const char* key, const std::string& where);
const Json& require_array(const Json& element, const char* key, const std::string& where);
std::size_t require_count(const Json& element, const char* key, const std::string& where);

// A member that must be one character.
std::string require_letter(const Json& element, const char* key, const std::string& where);

// A token id: an integer from 0 to kMaxTokenId.
std::int32_t token_id(const Json& value, const std::string& where);

// A string of a file in an error message: quoted, cut when long, on one line.
std::string in_quotes(std::string_view text);

}  // namespace diffuse

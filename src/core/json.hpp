#pragma once
// Reading JSON that a stranger wrote: size and depth are bounded, duplicate keys can be refused.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace diffuse {

using Json = nlohmann::json;

inline constexpr int kMaxJsonDepth = 64;

enum class DuplicateKeys { last_wins, refuse };

// Parses `text`. Python's json writes Infinity, -Infinity and NaN, which JSON does not have: they come out as
// strings of that name, so a value that nobody reads does no harm and one that is read as a number is an
// error. `what` names the source in an error ("config file 'x/config.json'"). Throws bad data where the text
// is not JSON, nests deeper than kMaxJsonDepth, or (with DuplicateKeys::refuse) repeats a key in one object.
Json parse_json(std::string_view text, const std::string& what,
                DuplicateKeys keys = DuplicateKeys::last_wins);

// Reads and parses a file of at most `max_bytes`. Throws missing input where it cannot be opened, else as
// above.
Json read_json(const std::filesystem::path& path, std::uint64_t max_bytes = 256U << 20,
               DuplicateKeys keys = DuplicateKeys::last_wins);

// The text of `value`; bytes that are not UTF-8 become U+FFFD. `indent` below 0: on one line.
std::string dump(const Json& value, int indent = -1);

// The whole of a file of at most `max_bytes`.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

}  // namespace diffuse

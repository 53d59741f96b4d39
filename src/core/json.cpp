#include "core/json.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <set>
#include <vector>

#include "core/error.hpp"

namespace diffuse {
namespace {

// Refuses while parsing, before a value that is too deep or repeated has been built.
class Guard {
 public:
  Guard(const std::string& what, DuplicateKeys keys) : what_(what), refuse_(keys == DuplicateKeys::refuse) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth >= kMaxJsonDepth) {
      throw_bad_data(what_ + ": nests deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    }
    if (!refuse_) return true;
    if (event == Event::object_start) seen_.emplace_back();
    if (event == Event::object_end) seen_.pop_back();
    if (event == Event::key && !seen_.back().insert(parsed.get<std::string>()).second) {
      throw_bad_data(what_ + ": the key '" + parsed.get<std::string>() + "' stands there twice");
    }
    return true;
  }

 private:
  const std::string& what_;
  bool refuse_;
  std::vector<std::set<std::string>> seen_;
};

// The text with Python's names of numbers put in quotes, outside of strings.
std::string quote_python_numbers(std::string_view text) {
  constexpr std::array<std::string_view, 3> kNames = {"-Infinity", "Infinity", "NaN"};
  std::string out;
  out.reserve(text.size() + 64);
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (in_string && text[at] == '\\' && at + 1 < text.size()) {
      out += text[at++];
      out += text[at];
      continue;
    }
    if (text[at] == '"') in_string = !in_string;
    const auto* const name = std::find_if(kNames.begin(), kNames.end(), [&](std::string_view candidate) {
      return !in_string && text.substr(at, candidate.size()) == candidate;
    });
    if (name == kNames.end()) {
      out += text[at];
      continue;
    }
    out += '"';
    out += *name;
    out += '"';
    at += name->size() - 1;
  }
  return out;
}

bool may_hold_python_numbers(std::string_view text) {
  return text.find("Infinity") != std::string_view::npos || text.find("NaN") != std::string_view::npos;
}

}  // namespace

Json parse_json(std::string_view text, const std::string& what, DuplicateKeys keys) {
  Guard guard(what, keys);
  std::string quoted;
  if (may_hold_python_numbers(text)) {
    quoted = quote_python_numbers(text);
    text = quoted;
  }
  try {
    return Json::parse(text.begin(), text.end(), [&](int depth, Json::parse_event_t event, Json& parsed) {
      return guard(depth, event, parsed);
    });
  } catch (const Json::exception& problem) {
    throw_bad_data(what + ": not valid JSON (" + problem.what() + ")");
  }
}

std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  std::error_code failed;
  const auto status = std::filesystem::status(path, failed);
  if (!std::filesystem::exists(status)) throw_missing("reading '" + path.string() + "': no such file");
  if (!std::filesystem::is_regular_file(status))
    throw_missing("reading '" + path.string() + "': not a regular file");
  const auto bytes = std::filesystem::file_size(path, failed);
  if (failed) throw_io("reading '" + path.string() + "': " + failed.message());
  if (bytes > max_bytes) {
    throw_bad_data("reading '" + path.string() + "': " + std::to_string(bytes) + " bytes, more than the " +
                   std::to_string(max_bytes) + " that such a file may have");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_errno("opening '" + path.string() + "'");
  std::string text(bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  if (static_cast<std::uint64_t>(file.gcount()) != bytes)
    throw_io("reading '" + path.string() + "': it is shorter than its size says");
  return text;
}

Json read_json(const std::filesystem::path& path, std::uint64_t max_bytes, DuplicateKeys keys) {
  return parse_json(read_file(path, max_bytes), "'" + path.string() + "'", keys);
}

std::string dump(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace diffuse

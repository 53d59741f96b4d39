#include "text/charsmap.hpp"

#include <unicode/brkiter.h>
#include <unicode/utext.h>

#include <array>
#include <memory>

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace diffuse {
namespace {

// A unit of the double array: label in the low byte, or a value (bit 31); bit 8 says that a rule ends here.
constexpr std::uint32_t kValueBit = 1U << 31;
std::uint32_t label_of(std::uint32_t unit) {
  return unit & (kValueBit | 0xFF);
}
std::uint32_t offset_of(std::uint32_t unit) {
  return (unit >> 10) << ((unit & (1U << 9)) >> 6);
}
bool ends_rule(std::uint32_t unit) {
  return ((unit >> 8) & 1) != 0;
}

std::uint32_t little_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = (value << 8) | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// The ends of the user-perceived characters of valid UTF-8.
class Clusters {
 public:
  explicit Clusters(std::string_view text) {
    UErrorCode failed = U_ZERO_ERROR;
    iterator_.reset(icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), failed));
    text_ = utext_openUTF8(nullptr, text.data(), static_cast<std::int64_t>(text.size()), &failed);
    if (U_SUCCESS(failed)) iterator_->setText(text_, failed);
    if (U_FAILURE(failed)) {
      utext_close(text_);
      throw_internal(std::string("ICU failed to find the characters of a text: ") + u_errorName(failed));
    }
  }
  ~Clusters() { utext_close(text_); }
  Clusters(const Clusters&) = delete;
  Clusters& operator=(const Clusters&) = delete;

  std::size_t next_end() { return static_cast<std::size_t>(iterator_->next()); }

 private:
  std::unique_ptr<icu::BreakIterator> iterator_;
  UText* text_ = nullptr;
};

}  // namespace

Charsmap Charsmap::parse(std::string_view blob, const std::string& where) {
  const auto here = where + ": precompiled_charsmap";
  if (blob.size() < 4) throw_bad_data(here + " is cut short");
  const auto bytes = little_endian(blob, 0);
  if (bytes == 0 || bytes % 4 != 0 || bytes > blob.size() - 4)
    throw_bad_data(here + " states a table of " + std::to_string(bytes) + " bytes in " +
                   std::to_string(blob.size()));
  Charsmap map;
  map.units_.reserve(bytes / 4);
  for (std::size_t at = 4; at < 4 + std::size_t{bytes}; at += 4)
    map.units_.push_back(little_endian(blob, at));
  map.replacements_ = blob.substr(4 + std::size_t{bytes});
  map.check(here);
  return map;
}

// Visits each place that bytes can lead to once: a place's children lie in one stretch of 256 units.
void Charsmap::check(const std::string& where) const {
  std::vector<bool> seen(units_.size());
  std::vector<bool> checked(replacements_.size());
  std::vector<std::uint32_t> waiting = {offset_of(units_[0])};
  while (!waiting.empty()) {
    const auto base = waiting.back();
    waiting.pop_back();
    if ((base | 0xFF) >= units_.size()) throw_bad_data(where + " points beyond its table");
    if (seen[base]) continue;
    seen[base] = true;
    for (std::uint32_t byte = 1; byte < 256; ++byte) {
      const auto at = base ^ byte;
      const auto unit = units_[at];
      if (label_of(unit) != byte) continue;
      const auto children = at ^ offset_of(unit);
      waiting.push_back(children);
      if (!ends_rule(unit)) continue;
      if (children >= units_.size()) throw_bad_data(where + " points beyond its table");
      const auto value = units_[children] & ~kValueBit;
      if (value >= replacements_.size()) throw_bad_data(where + " points beyond its replacements");
      if (checked[value]) continue;
      checked[value] = true;
      if (!is_valid_utf8(replacement(value))) throw_bad_data(where + " has a replacement that is no UTF-8");
    }
  }
}

std::string_view Charsmap::replacement(std::uint32_t at) const {
  const auto rest = std::string_view(replacements_).substr(at);
  return rest.substr(0, rest.find('\0'));
}

// Calls visit(bytes, value) for each rule that begins the text, the shortest first, until it returns false.
template <typename Visit>
void Charsmap::walk(std::string_view text, Visit&& visit) const {
  auto at = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) return;
    at ^= byte;
    const auto unit = units_[at];
    if (label_of(unit) != byte) return;
    at ^= offset_of(unit);
    if (ends_rule(unit) && !visit(i + 1, units_[at] & ~kValueBit)) return;
  }
}

std::optional<Charsmap::Match> Charsmap::shortest(std::string_view text) const {
  std::optional<Match> found;
  walk(text, [&](std::size_t bytes, std::uint32_t value) {
    found = {bytes, replacement(value)};
    return false;
  });
  return found;
}

std::optional<Charsmap::Match> Charsmap::longest(std::string_view text) const {
  std::optional<Match> found;
  walk(text, [&](std::size_t bytes, std::uint32_t value) {
    found = {bytes, replacement(value)};
    return true;
  });
  return found;
}

std::string Charsmap::by_clusters(std::string_view text) const {
  constexpr std::size_t kWholeBytes = 6;
  std::string out;
  if (text.empty()) return out;
  out.reserve(text.size());
  Clusters clusters(text);
  for (std::size_t begin = 0; begin < text.size();) {
    const auto cluster = text.substr(begin, clusters.next_end() - begin);
    begin += cluster.size();
    if (cluster.size() < kWholeBytes) {
      if (const auto rule = shortest(cluster)) {
        out += rule->text;
        continue;
      }
    }
    for (std::size_t at = 0; at < cluster.size();) {
      const auto from = at;
      take_utf8(cluster, at);
      const auto letter = cluster.substr(from, at - from);
      const auto rule = shortest(letter);
      out += rule ? rule->text : letter;
    }
  }
  return out;
}

std::string decode_base64(std::string_view text, const std::string& where) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static const auto values = [&] {
    std::array<std::int8_t, 256> table{};
    table.fill(-1);
    for (std::size_t i = 0; i < kDigits.size(); ++i)
      table[static_cast<unsigned char>(kDigits[i])] = static_cast<std::int8_t>(i);
    return table;
  }();
  const auto wrong = [&]() { throw_bad_data(where + " is not base64"); };
  if (text.size() % 4 != 0) wrong();
  if (text.ends_with("==")) {
    text.remove_suffix(2);
  } else if (text.ends_with('=')) {
    text.remove_suffix(1);
  }
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  int held = 0;
  for (const char letter : text) {
    const auto value = values[static_cast<unsigned char>(letter)];
    if (value < 0) wrong();
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>((bits >> held) & 0xFF);
  }
  return bytes;
}

}  // namespace diffuse

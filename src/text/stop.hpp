#pragma once
// When a sample ends: ids that end it, and strings in its text that do.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace diffuse {

// The ids that end a sample. Small and sorted; cheap to copy.
class EosSet {
 public:
  EosSet() = default;
  explicit EosSet(std::vector<std::int32_t> ids);
  bool contains(std::int32_t id) const;
  const std::vector<std::int32_t>& ids() const { return ids_; }

 private:
  std::vector<std::int32_t> ids_;
};

// Looks for stop strings in text that comes in pieces. The text ends before the stop string that is complete
// first (the longest of those that end at the same byte), wherever the pieces were cut. One a sample.
class StopMatcher {
 public:
  // No string may be empty (parse_generate sees to that). Without strings everything passes through.
  explicit StopMatcher(std::vector<std::string> stops);

  // Takes a piece, returns the text that no stop string can reach any more. Nothing once stopped().
  std::string push(std::string_view piece);
  // At the end of the sample: the text that was held back (empty once stopped).
  std::string finish();

  bool stopped() const { return stopped_; }
  // The string that was found; empty before.
  const std::string& found() const { return found_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<std::size_t> fallback;  // for each length matched, the longest shorter one that still fits
    std::size_t matched = 0;
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  std::string found_;
  bool stopped_ = false;
};

}  // namespace diffuse

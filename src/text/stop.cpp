#include "text/stop.hpp"

#include <algorithm>
#include <utility>

namespace diffuse {

EosSet::EosSet(std::vector<std::int32_t> ids) : ids_(std::move(ids)) {
  std::sort(ids_.begin(), ids_.end());
  ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
}

bool EosSet::contains(std::int32_t id) const {
  return std::binary_search(ids_.begin(), ids_.end(), id);
}

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (auto& stop : stops) {
    Pattern pattern{std::move(stop), {0, 0}, 0};
    const auto& text = pattern.text;
    for (std::size_t i = 1; i < text.size(); ++i) {
      auto length = pattern.fallback[i];
      while (length > 0 && text[length] != text[i]) length = pattern.fallback[length];
      pattern.fallback.push_back(text[length] == text[i] ? length + 1 : 0);
    }
    patterns_.push_back(std::move(pattern));
  }
  // Of two that end at the same byte, the longer is the one that is found.
  std::stable_sort(patterns_.begin(), patterns_.end(),
                   [](const Pattern& a, const Pattern& b) { return a.text.size() > b.text.size(); });
}

std::string StopMatcher::push(std::string_view piece) {
  if (stopped_) return {};
  if (patterns_.empty()) return std::string(piece);
  for (const char byte : piece) {
    held_ += byte;
    for (auto& pattern : patterns_) {
      auto& matched = pattern.matched;
      while (matched > 0 && pattern.text[matched] != byte) matched = pattern.fallback[matched];
      if (pattern.text[matched] == byte) ++matched;
      if (matched < pattern.text.size()) continue;
      stopped_ = true;
      found_ = pattern.text;
      held_.resize(held_.size() - found_.size());
      return std::exchange(held_, {});
    }
  }
  std::size_t kept = 0;
  for (const auto& pattern : patterns_) kept = std::max(kept, pattern.matched);
  auto out = held_.substr(0, held_.size() - kept);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::finish() {
  return std::exchange(held_, {});
}

}  // namespace diffuse

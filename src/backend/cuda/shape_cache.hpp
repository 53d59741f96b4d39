#pragma once
// Which shapes of repeated work are worth recording, and what was recorded: a bounded map that forgets what
// was used longest ago. Pure; what a recording is, it does not know.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace diffuse::cuda {

struct ShapeLimits {
  // A shape that was met so often is recorded when it is met again: a recording takes as long as some plain
  // runs.
  std::uint64_t sightings = 3;
  std::size_t kept = 32;      // recordings, each of some memory on the card
  std::size_t counted = 256;  // shapes that are remembered, with a recording or without
};

enum class Advice : std::uint8_t { run, record, replay };

// Shapes are ordered by <.
template <class Shape, class Recording>
class ShapeCache {
 public:
  explicit ShapeCache(ShapeLimits limits = {}) : limits_(limits) {}

  // A shape is met once more.
  Advice see(const Shape& shape) {
    auto found = entries_.find(shape);
    if (found == entries_.end()) {
      if (entries_.size() >= limits_.counted) forget_one();
      found = entries_.emplace(shape, Entry{}).first;
    }
    auto& entry = found->second;
    entry.used = ++now_;
    if (entry.recording) return Advice::replay;
    if (entry.hopeless) return Advice::run;
    return entry.sightings++ < limits_.sightings ? Advice::run : Advice::record;
  }

  // Of a shape that is to be replayed.
  const Recording& at(const Shape& shape) const { return *entries_.at(shape).recording; }

  // Keeps the recording of a shape that was met. Gives back the one that had to go for it, if any.
  std::optional<Recording> keep(const Shape& shape, Recording recording) {
    std::optional<Recording> old;
    if (recordings() >= limits_.kept) {
      auto& oldest = oldest_of([](const Entry& entry) { return entry.recording.has_value(); })->second;
      old = std::exchange(oldest.recording, std::nullopt);
      oldest.sightings = 0;
    }
    entries_.at(shape).recording = std::move(recording);
    return old;
  }

  // A shape that was met could not be recorded, and is not to be tried again.
  void give_up(const Shape& shape) { entries_.at(shape).hopeless = true; }

  void clear() { entries_.clear(); }

  std::size_t recordings() const {
    return static_cast<std::size_t>(std::count_if(entries_.begin(), entries_.end(), [](const auto& each) {
      return each.second.recording.has_value();
    }));
  }

 private:
  struct Entry {
    std::uint64_t sightings = 0;
    std::uint64_t used = 0;
    bool hopeless = false;
    std::optional<Recording> recording;
  };
  using Entries = std::map<Shape, Entry>;

  // There is one.
  template <class Which>
  typename Entries::iterator oldest_of(const Which& which) {
    auto oldest = entries_.end();
    for (auto each = entries_.begin(); each != entries_.end(); ++each) {
      if (which(each->second) && (oldest == entries_.end() || each->second.used < oldest->second.used))
        oldest = each;
    }
    return oldest;
  }
  // Of those without a recording: there are more shapes than recordings.
  void forget_one() {
    entries_.erase(oldest_of([](const Entry& entry) { return !entry.recording.has_value(); }));
  }

  ShapeLimits limits_;
  Entries entries_;
  std::uint64_t now_ = 0;
};

}  // namespace diffuse::cuda

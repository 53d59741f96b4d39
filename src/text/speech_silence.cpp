#include "text/speech_silence.hpp"

#include <algorithm>
#include <string>

#include "text/speech_words.hpp"

namespace diffuse {
namespace {

constexpr double kImprobable = 0.15;
constexpr double kShort = 0.133;  // seconds
constexpr double kShortWeight = 15;
constexpr double kLong = 2.0;
constexpr std::size_t kWordsLookedAt = 8;
constexpr double kStrange = 3;
constexpr double kEdge = 2.0;  // seconds: so near a window's edge counts as silence

double strangeness(const TranscriptWord& word) {
  const double length = word.end - word.start;
  double score = word.probability < kImprobable ? 1 : 0;
  if (length < kShort) score += (kShort - length) * kShortWeight;
  if (length > kLong) score += length - kLong;
  return score;
}

bool is_punctuation(const std::string& word) {
  const auto all = std::string(kPrependPunctuation) + std::string(kAppendPunctuation);
  return all.find(word) != std::string::npos;
}

bool is_strange(const TranscriptSegment* segment) {
  if (segment == nullptr || segment->words.empty()) return false;
  double score = 0;
  std::size_t count = 0;
  for (const auto& word : segment->words) {
    if (is_punctuation(word.word)) continue;
    if (count == kWordsLookedAt) break;
    score += strangeness(word);
    ++count;
  }
  return score >= kStrange || score + 0.01 >= static_cast<double>(count);
}

const TranscriptSegment* first_with_words(std::span<const TranscriptSegment> segments) {
  const auto found = std::ranges::find_if(segments, [](const auto& each) { return !each.words.empty(); });
  return found == segments.end() ? nullptr : &*found;
}

}  // namespace

SkippedSilence skip_silence(std::span<const TranscriptSegment> segments, const WindowPlace& window,
                            double last_speech, double threshold) {
  SkippedSilence skipped{.keep = segments.size(), .next = std::nullopt, .nothing = false};
  const auto* first = first_with_words(segments);
  if (is_strange(first) && first->start - window.begin > threshold) {
    skipped.nothing = true;
    skipped.next = first->start;
    return skipped;
  }
  double end_before = last_speech;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const auto& segment = segments[i];
    if (segment.words.empty()) continue;
    if (is_strange(&segment)) {
      const auto* following = first_with_words(segments.subspan(i + 1));
      const double next_start = following != nullptr ? following->words.front().start : window.end;
      const bool silence_before = segment.start - end_before > threshold || segment.start < threshold ||
                                  segment.start - window.begin < kEdge;
      const bool silence_after = next_start - segment.end > threshold || is_strange(following) ||
                                 window.whole_end - segment.end < kEdge;
      if (silence_before && silence_after) {
        skipped.keep = i;
        skipped.next = window.recording_end - segment.end < threshold
                           ? window.recording_end
                           : std::max(window.begin + 1, segment.start);
        return skipped;
      }
    }
    end_before = segment.end;
  }
  return skipped;
}

}  // namespace diffuse

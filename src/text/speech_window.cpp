#include "text/speech_window.hpp"

#include <zlib.h>

#include <algorithm>

#include "core/error.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kFramesATimestamp = 2;
constexpr double kSecondsATimestamp = 0.02;

}  // namespace

double compression_ratio(std::string_view text) {
  if (text.empty()) return 0;
  std::vector<Bytef> packed(compressBound(text.size()));
  uLongf size = packed.size();
  if (compress(packed.data(), &size, reinterpret_cast<const Bytef*>(text.data()), text.size()) != Z_OK)
    throw_internal("zlib could not pack a text");
  return static_cast<double>(text.size()) / static_cast<double>(size);
}

double average_logprob(double sum, std::size_t tokens) {
  return sum / static_cast<double>(tokens + 1);
}

WindowVerdict judge(const WindowScores& scores, const FallbackLimits& limits, bool last) {
  const bool unsure = limits.logprob && scores.avg_logprob < *limits.logprob;
  const bool repetitive = limits.compression_ratio && scores.compression_ratio > *limits.compression_ratio;
  const bool quiet = limits.no_speech && scores.no_speech_prob > *limits.no_speech;
  const bool sure = limits.logprob && scores.avg_logprob > *limits.logprob;
  if ((repetitive || unsure) && !(quiet && unsure) && !last) return WindowVerdict::retry;
  return quiet && !sure ? WindowVerdict::silent : WindowVerdict::keep;
}

WindowCut cut_window(std::span<const std::int32_t> chosen, const SpeechTokens& tokens, std::int64_t frames) {
  const auto is_timestamp = [&](std::size_t i) { return tokens.is_timestamp(chosen[i]); };
  const auto index = [&](std::size_t i) { return chosen[i] - tokens.first_timestamp; };
  const auto seconds = [&](std::size_t i) { return index(i) * kSecondsATimestamp; };
  const std::size_t count = chosen.size();
  WindowCut cut;
  cut.to_the_end = count >= 2 && is_timestamp(count - 1) && !is_timestamp(count - 2);

  std::vector<std::size_t> ends;  // each behind the first timestamp of a pair
  for (std::size_t i = 1; i < count; ++i)
    if (is_timestamp(i - 1) && is_timestamp(i)) ends.push_back(i);
  if (!ends.empty()) {
    if (cut.to_the_end) ends.push_back(count);
    std::size_t first = 0;
    for (const auto end : ends) {
      cut.segments.push_back({first, end, seconds(first), seconds(end - 1)});
      first = end;
    }
    cut.said = cut.to_the_end ? count : first + 1;
    cut.advance = cut.to_the_end ? frames : index(first - 1) * kFramesATimestamp;
  } else {
    double length = static_cast<double>(frames) / kFramesASecond;
    for (std::size_t i = count; i > 0; --i) {
      if (!is_timestamp(i - 1)) continue;
      if (index(i - 1) != 0) length = seconds(i - 1);
      break;
    }
    cut.segments.push_back({0, count, 0, length});
    cut.said = count;
    cut.advance = frames;
  }
  // The rules keep a pair from standing at 0.00; a window that was decoded without them must end too.
  if (cut.advance < 1) cut.advance = frames;
  return cut;
}

}  // namespace diffuse

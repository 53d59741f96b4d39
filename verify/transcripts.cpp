#include "verify/transcripts.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>

namespace diffuse {
namespace {

// A value's place: the segment (-1: the transcript's own), the word in it (-1: the segment's own), and which
// of its values.
using Place = std::tuple<std::int64_t, std::int64_t, int>;
using Values = std::map<Place, std::string>;  // each with its name in front

// So that two are the same text where they are the same number.
std::string in_full(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.17g", value);
  return text.data();
}

class Listing {
 public:
  explicit Listing(const Transcript& transcript) {
    own("text", shown_safely(transcript.text));
    own("language", shown_safely(transcript.language));
    own("language_probability", in_full(transcript.language_probability));
    own("with_words", transcript.with_words ? "true" : "false");
    own("duration", in_full(transcript.duration));
    for (const auto& each : transcript.segments) segment(each);
  }

  Values take() { return std::move(values_); }

 private:
  void own(const std::string& name, const std::string& value) {
    values_.emplace(Place{segment_, word_, next_++}, name + " " + value);
  }

  void segment(const TranscriptSegment& each) {
    ++segment_;
    word_ = -1;
    next_ = 0;
    own("seek", std::to_string(each.seek));
    own("start", in_full(each.start));
    own("end", in_full(each.end));
    own("text", shown_safely(each.text));
    std::string tokens;
    for (const auto id : each.tokens) tokens += (tokens.empty() ? "" : ", ") + std::to_string(id);
    own("tokens", tokens);
    own("language", shown_safely(each.language));
    own("temperature", in_full(each.temperature));
    own("avg_logprob", in_full(each.avg_logprob));
    own("compression_ratio", in_full(each.compression_ratio));
    own("no_speech_prob", in_full(each.no_speech_prob));
    for (const auto& one : each.words) word(one);
  }

  void word(const TranscriptWord& each) {
    ++word_;
    next_ = 0;
    const auto which = "word " + std::to_string(word_) + ": ";
    own(which + "word", shown_safely(each.word));
    own(which + "start", in_full(each.start));
    own(which + "end", in_full(each.end));
    own(which + "probability", in_full(each.probability));
  }

  Values values_;
  std::int64_t segment_ = -1;
  std::int64_t word_ = -1;
  int next_ = 0;
};

std::string side(const std::optional<Transcript>& transcript) {
  return transcript ? std::to_string(transcript->segments.size()) + " segments" : "none";
}

}  // namespace

std::optional<Difference> transcript_difference(const std::optional<Transcript>& whole,
                                                const std::optional<Transcript>& split) {
  if (!whole && !split) return std::nullopt;
  if (!whole || !split)
    return Difference{.what = What::transcript, .whole = side(whole), .split = side(split)};
  const auto ours = Listing(*whole).take();
  auto theirs = Listing(*split).take();
  std::map<Place, std::pair<std::string, std::string>> apart;
  for (const auto& [place, value] : ours) {
    auto other = theirs.extract(place);
    if (other.empty()) {
      apart[place] = {value, "none"};
    } else if (other.mapped() != value) {
      apart[place] = {value, other.mapped()};
    }
  }
  for (const auto& [place, value] : theirs) apart[place] = {"none", value};
  if (apart.empty()) return std::nullopt;
  const auto& [place, values] = *apart.begin();
  Difference found{
      .what = What::transcript, .count = apart.size(), .whole = values.first, .split = values.second};
  if (const auto segment = std::get<0>(place); segment >= 0) found.position = segment;
  return found;
}

}  // namespace diffuse

#include "job/transcript.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <vector>

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kWide = 1000;  // where no limit is given
constexpr double kLongPause = 3;      // seconds after which a new subtitle begins

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Halves to the even number, as Python's round.
std::int64_t milliseconds(double seconds) {
  return std::max<std::int64_t>(0, std::llrint(seconds * 1000.0));
}

// ---- subtitles
// -------------------------------------------------------------------------------------------------

struct Style {
  bool always_hours;
  char decimal;
};
constexpr Style kSrt = {true, ','};
constexpr Style kVtt = {false, '.'};

std::string clock_text(double seconds, Style style) {
  const std::int64_t total = milliseconds(seconds);
  const auto hours = static_cast<long long>(total / 3'600'000);
  std::array<char, 64> text{};
  int used = 0;
  if (style.always_hours || hours > 0) used = std::snprintf(text.data(), text.size(), "%02lld:", hours);
  std::snprintf(text.data() + used, text.size() - static_cast<std::size_t>(used), "%02d:%02d%c%03d",
                static_cast<int>(total / 60'000 % 60), static_cast<int>(total / 1000 % 60), style.decimal,
                static_cast<int>(total % 1000));
  return text.data();
}

struct Cue {
  std::string start;
  std::string end;
  std::string text;
};
using Words = std::vector<TranscriptWord>;

double first_start(const Transcript& transcript) {
  for (const auto& segment : transcript.segments)
    if (!segment.words.empty()) return segment.words.front().start;
  return transcript.segments.empty() ? 0.0 : transcript.segments.front().start;
}

std::int64_t length_of(std::string_view text) {
  return static_cast<std::int64_t>(count_utf8(text));
}

// Lays words into lines and lines into subtitles.
class Layout {
 public:
  Layout(const SubtitleOptions& options, double start)
      : lines_(options.max_line_count),
        by_segment_(!options.max_line_count || !options.max_line_width),
        width_(options.max_line_width.value_or(kWide)),
        last_(start) {}

  // `begins`: the first word of its segment, or of its group of max_words_per_line.
  void add(TranscriptWord word, bool begins) {
    const bool pause = !by_segment_ && word.start - last_ > kLongPause;
    const bool fits = line_length_ + length_of(word.word) <= width_;
    const bool breaks = begins && !subtitle_.empty() && by_segment_;
    if (line_length_ > 0 && fits && !pause && !breaks) {
      line_length_ += length_of(word.word);
    } else {
      new_line(word, pause, breaks);
    }
    last_ = word.start;
    subtitle_.push_back(std::move(word));
  }

  std::vector<Words> take() {
    if (!subtitle_.empty()) subtitles_.push_back(std::move(subtitle_));
    return std::move(subtitles_);
  }

 private:
  void new_line(TranscriptWord& word, bool pause, bool breaks) {
    word.word = std::string(stripped(word.word));
    line_length_before_ = line_length_;
    line_length_ = length_of(word.word);
    const bool full = !subtitle_.empty() && lines_ && (pause || line_count_ >= *lines_);
    if (full || breaks) {
      subtitles_.push_back(std::move(subtitle_));
      subtitle_.clear();
      line_count_ = 1;
    } else if (line_length_before_ > 0) {
      ++line_count_;
      word.word = "\n" + word.word;
    }
  }

  std::optional<std::int64_t> lines_;
  bool by_segment_;
  std::int64_t width_;
  double last_;
  std::int64_t line_length_ = 0;
  std::int64_t line_length_before_ = 0;
  std::int64_t line_count_ = 1;
  Words subtitle_;
  std::vector<Words> subtitles_;
};

std::vector<Words> subtitles_of(const Transcript& transcript, const SubtitleOptions& options) {
  Layout layout(options, first_start(transcript));
  const auto group =
      static_cast<std::size_t>(std::max<std::int64_t>(options.max_words_per_line.value_or(kWide), 1));
  for (const auto& segment : transcript.segments)
    for (std::size_t i = 0; i < segment.words.size(); ++i) layout.add(segment.words[i], i % group == 0);
  return layout.take();
}

std::string underlined(std::string_view word) {
  const auto bare = stripped(word);
  const auto front = bare.empty() ? word.size() : static_cast<std::size_t>(bare.data() - word.data());
  return std::string(word.substr(0, front)) + "<u>" + std::string(word.substr(front)) + "</u>";
}

void add_highlights(std::vector<Cue>& cues, const Words& words, Style style) {
  std::string plain;
  for (const auto& word : words) plain += word.word;
  std::string last = clock_text(words.front().start, style);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto start = clock_text(words[i].start, style);
    const auto end = clock_text(words[i].end, style);
    if (last != start) cues.push_back({last, start, plain});
    std::string marked;
    for (std::size_t k = 0; k < words.size(); ++k)
      marked += k == i ? underlined(words[k].word) : words[k].word;
    cues.push_back({start, end, marked});
    last = end;
  }
}

std::vector<Cue> cues_of(const Transcript& transcript, const SubtitleOptions& options, Style style) {
  std::vector<Cue> cues;
  if (!transcript.with_words || transcript.segments.empty()) {
    for (const auto& segment : transcript.segments)
      cues.push_back({clock_text(segment.start, style), clock_text(segment.end, style),
                      replaced(std::string(stripped(segment.text)), "-->", "->")});
    return cues;
  }
  for (const auto& words : subtitles_of(transcript, options)) {
    if (options.highlight_words) {
      add_highlights(cues, words, style);
      continue;
    }
    Cue cue = {clock_text(words.front().start, style), clock_text(words.back().end, style), ""};
    for (const auto& word : words) cue.text += word.word;
    cues.push_back(std::move(cue));
  }
  return cues;
}

// ---- JSON as Python writes it
// ----------------------------------------------------------------------------------

std::string python_text(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Python's repr of a float: the fewest digits that give it back, an exponent below 1e-4 and from 1e16 on.
std::string python_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 64> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(digits.data(), end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

template <typename Range, typename Item>
std::string list_of(const Range& range, const Item& item) {
  std::string text = "[";
  for (const auto& value : range) {
    if (text.size() > 1) text += ", ";
    text += item(value);
  }
  return text + "]";
}

std::string word_json(const TranscriptWord& word) {
  return "{\"word\": " + python_text(word.word) + ", \"start\": " + python_number(word.start) +
         ", \"end\": " + python_number(word.end) + ", \"probability\": " + python_number(word.probability) +
         "}";
}

std::string segment_json(const TranscriptSegment& segment, std::size_t id, bool with_words) {
  std::string text =
      "{\"id\": " + std::to_string(id) + ", \"seek\": " + std::to_string(segment.seek) +
      ", \"start\": " + python_number(segment.start) + ", \"end\": " + python_number(segment.end) +
      ", \"text\": " + python_text(segment.text) +
      ", \"tokens\": " + list_of(segment.tokens, [](std::int32_t token) { return std::to_string(token); }) +
      ", \"temperature\": " + python_number(segment.temperature) +
      ", \"avg_logprob\": " + python_number(segment.avg_logprob) +
      ", \"compression_ratio\": " + python_number(segment.compression_ratio) +
      ", \"no_speech_prob\": " + python_number(segment.no_speech_prob);
  if (with_words) text += ", \"words\": " + list_of(segment.words, word_json);
  return text + "}";
}

// ---- out of a result's JSON
// ------------------------------------------------------------------------------------

class ObjectReader {
 public:
  ObjectReader(const Json& value, const std::string& what) : value_(value), what_(what) {
    if (!value.is_object()) throw_bad_data(what + ": not an object");
  }
  double number(const char* name) const { return get(name, &Json::is_number).get<double>(); }
  std::string text(const char* name) const { return get(name, &Json::is_string).get<std::string>(); }
  bool boolean(const char* name) const { return get(name, &Json::is_boolean).get<bool>(); }
  std::int64_t integer(const char* name) const {
    return get(name, &Json::is_number_integer).get<std::int64_t>();
  }
  const Json& list(const char* name) const { return get(name, &Json::is_array); }

 private:
  const Json& get(const char* name, bool (Json::*kind)() const noexcept) const {
    const auto found = value_.find(name);
    if (found == value_.end() || !((*found).*kind)())
      throw_bad_data(what_ + ": `" + name + "` is missing or of another kind");
    return *found;
  }
  const Json& value_;
  const std::string& what_;
};

TranscriptSegment segment_of(const Json& value, const std::string& what) {
  const ObjectReader in(value, what);
  TranscriptSegment segment;
  segment.seek = in.integer("seek");
  segment.start = in.number("start");
  segment.end = in.number("end");
  segment.text = in.text("text");
  for (const auto& token : in.list("tokens")) {
    if (!token.is_number_integer()) throw_bad_data(what + ": `tokens` holds what is no id");
    segment.tokens.push_back(token.get<std::int32_t>());
  }
  segment.language = in.text("language");
  segment.temperature = in.number("temperature");
  segment.avg_logprob = in.number("avg_logprob");
  segment.compression_ratio = in.number("compression_ratio");
  segment.no_speech_prob = in.number("no_speech_prob");
  for (const auto& item : in.list("words")) {
    const ObjectReader word(item, what);
    segment.words.push_back(
        {word.text("word"), word.number("start"), word.number("end"), word.number("probability")});
  }
  return segment;
}

Json json_of(const TranscriptSegment& segment) {
  Json words = Json::array();
  for (const auto& word : segment.words)
    words.push_back(
        {{"word", word.word}, {"start", word.start}, {"end", word.end}, {"probability", word.probability}});
  return {{"seek", segment.seek},
          {"start", segment.start},
          {"end", segment.end},
          {"text", segment.text},
          {"tokens", segment.tokens},
          {"language", segment.language},
          {"temperature", segment.temperature},
          {"avg_logprob", segment.avg_logprob},
          {"compression_ratio", segment.compression_ratio},
          {"no_speech_prob", segment.no_speech_prob},
          {"words", std::move(words)}};
}

}  // namespace

std::string transcript_text(const Transcript& transcript) {
  std::string text;
  for (const auto& segment : transcript.segments) text += std::string(stripped(segment.text)) + "\n";
  return text;
}

std::string transcript_srt(const Transcript& transcript, const SubtitleOptions& options) {
  std::string text;
  std::size_t number = 0;
  for (const auto& cue : cues_of(transcript, options, kSrt))
    text += std::to_string(++number) + "\n" + cue.start + " --> " + cue.end + "\n" + cue.text + "\n\n";
  return text;
}

std::string transcript_vtt(const Transcript& transcript, const SubtitleOptions& options) {
  std::string text = "WEBVTT\n\n";
  for (const auto& cue : cues_of(transcript, options, kVtt))
    text += cue.start + " --> " + cue.end + "\n" + cue.text + "\n\n";
  return text;
}

std::string transcript_tsv(const Transcript& transcript) {
  std::string text = "start\tend\ttext\n";
  for (const auto& segment : transcript.segments)
    text += std::to_string(milliseconds(segment.start)) + "\t" + std::to_string(milliseconds(segment.end)) +
            "\t" + replaced(std::string(stripped(segment.text)), "\t", " ") + "\n";
  return text;
}

std::string transcript_json(const Transcript& transcript) {
  std::string segments = "[";
  for (std::size_t i = 0; i < transcript.segments.size(); ++i)
    segments += (i > 0 ? ", " : "") + segment_json(transcript.segments[i], i, transcript.with_words);
  return "{\"text\": " + python_text(transcript.text) + ", \"segments\": " + segments +
         "], \"language\": " + python_text(transcript.language) + "}";
}

Json json_of(const Transcript& transcript) {
  Json segments = Json::array();
  for (const auto& segment : transcript.segments) segments.push_back(json_of(segment));
  return {{"text", transcript.text},
          {"language", transcript.language},
          {"language_probability", transcript.language_probability},
          {"with_words", transcript.with_words},
          {"duration", transcript.duration},
          {"segments", std::move(segments)}};
}

Transcript transcript_of(const Json& value, const std::string& what) {
  const ObjectReader in(value, what);
  Transcript transcript;
  transcript.text = in.text("text");
  transcript.language = in.text("language");
  transcript.language_probability = in.number("language_probability");
  transcript.with_words = in.boolean("with_words");
  transcript.duration = in.number("duration");
  const auto& segments = in.list("segments");
  for (std::size_t i = 0; i < segments.size(); ++i)
    transcript.segments.push_back(segment_of(segments[i], what + ": segment " + std::to_string(i)));
  return transcript;
}

}  // namespace diffuse

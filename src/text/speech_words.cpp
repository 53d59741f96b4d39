#include "text/speech_words.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "text/speech_languages.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kMedianWidth = 7;
constexpr double kColumnsASecond = 50;
constexpr std::string_view kAsciiPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
constexpr std::string_view kSentenceEnds = ".。!！?？";
constexpr double kLongestUsual = 0.7;  // seconds: what the usual word has at most

bool within(std::string_view part, std::string_view text) {
  return text.find(part) != std::string_view::npos;
}

// Two decimals, as a reader would round the number that is written out.
double hundredths(double seconds) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.2f", seconds);
  return std::strtod(text.data(), nullptr);
}

std::vector<char32_t> characters(std::string_view text) {
  std::vector<char32_t> out;
  for (std::size_t at = 0; at < text.size();) out.push_back(take_utf8(text, at));
  return out;
}

// Each word the fewest tokens that are whole characters together.
std::vector<WordTokens> character_words(std::span<const std::int32_t> ids, const DecodeTokens& decode) {
  constexpr char32_t kReplacement = 0xFFFD;
  const auto whole = characters(decode(ids));
  std::vector<WordTokens> words;
  std::vector<std::int32_t> current;
  std::size_t offset = 0;
  for (const auto id : ids) {
    current.push_back(id);
    const auto text = decode(current);
    const auto codes = characters(text);
    const auto broken = std::ranges::find(codes, kReplacement);
    // A replacement that is there in the whole text as well is no cut.
    const std::size_t place = offset + static_cast<std::size_t>(broken - codes.begin());
    if (broken != codes.end() && (place >= whole.size() || whole[place] != kReplacement)) continue;
    words.push_back({text, std::exchange(current, {})});
    offset += codes.size();
  }
  return words;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Shortens words beside the end of a sentence that are longer than `longest`.
void shorten_at_sentences(std::vector<TimedWord>& words, double longest) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].end - words[i].start <= longest) continue;
    if (within(words[i].word, kSentenceEnds)) {
      words[i].end = words[i].start + longest;
    } else if (within(words[i - 1].word, kSentenceEnds)) {
      words[i].start = words[i].end - longest;
    }
  }
}

// The first and last words against the pause before them and the segment's own times.
void settle_edges(TranscriptSegment& segment, double last_speech, double usual, double longest) {
  auto& words = segment.words;
  if (words.empty()) return;
  auto& first = words.front();
  const bool after_pause = first.end - last_speech > usual * 4;
  const bool long_first = first.end - first.start > longest;
  const bool long_pair = words.size() > 1 && words[1].end - first.start > longest * 2;
  if (after_pause && (long_first || long_pair)) {
    if (words.size() > 1 && words[1].end - words[1].start > longest) {
      const double border = std::max(words[1].end / 2, words[1].end - longest);
      first.end = words[1].start = border;
    }
    first.start = std::max(0.0, first.end - longest);
  }
  if (segment.start < first.end && segment.start - 0.5 > first.start) {
    first.start = std::max(0.0, std::min(first.end - usual, segment.start));
  } else {
    segment.start = first.start;
  }
  auto& last = words.back();
  if (segment.end > last.start && segment.end + 0.5 < last.end) {
    last.end = std::max(last.start + usual, segment.end);
  } else {
    segment.end = last.end;
  }
}

// [rows, used] of one head: rows scaled to sum to 1, then columns to mean 0 and deviation 1.
std::vector<float> scaled_head(const WordAttention& attention, std::int64_t head, std::int64_t used) {
  const auto rows = static_cast<std::size_t>(attention.rows);
  const auto width = static_cast<std::size_t>(used);
  std::vector<double> values(rows * width);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* from = attention.weights.data() + (static_cast<std::size_t>(head) * rows + row) *
                                                       static_cast<std::size_t>(attention.columns);
    double sum = 0;
    for (std::size_t i = 0; i < width; ++i) sum += static_cast<double>(from[i]);
    for (std::size_t i = 0; i < width; ++i)
      values[row * width + i] = sum > 0 ? static_cast<double>(from[i]) / sum : 0;
  }
  std::vector<float> scaled(values.size());
  for (std::size_t i = 0; i < width; ++i) {
    double mean = 0;
    for (std::size_t row = 0; row < rows; ++row) mean += values[row * width + i];
    mean /= static_cast<double>(rows);
    double variance = 0;
    for (std::size_t row = 0; row < rows; ++row) {
      const double apart = values[row * width + i] - mean;
      variance += apart * apart;
    }
    const double deviation = std::sqrt(variance / static_cast<double>(rows));
    for (std::size_t row = 0; row < rows; ++row)
      scaled[row * width + i] =
          deviation > 0 ? static_cast<float>((values[row * width + i] - mean) / deviation) : 0.0F;
  }
  return scaled;
}

}  // namespace

std::vector<float> median_filter(std::span<const float> rows, std::int64_t length, std::int64_t width) {
  const std::int64_t half = width / 2;
  std::vector<float> out(rows.begin(), rows.end());
  if (length <= half) return out;
  std::vector<float> window(static_cast<std::size_t>(width));
  for (std::size_t row = 0; row < rows.size(); row += static_cast<std::size_t>(length)) {
    for (std::int64_t i = 0; i < length; ++i) {
      for (std::int64_t k = -half; k <= half; ++k) {
        std::int64_t at = std::abs(i + k);
        if (at >= length) at = 2 * (length - 1) - at;
        window[static_cast<std::size_t>(k + half)] = rows[row + static_cast<std::size_t>(at)];
      }
      std::ranges::nth_element(window, window.begin() + half);
      out[row + static_cast<std::size_t>(i)] = window[static_cast<std::size_t>(half)];
    }
  }
  return out;
}

std::vector<std::int64_t> warped_starts(std::span<const float> cost, std::int64_t rows,
                                        std::int64_t columns) {
  enum : std::uint8_t { both, row_only, column_only };
  constexpr float kFar = std::numeric_limits<float>::infinity();
  const auto height = static_cast<std::size_t>(rows);
  const auto width = static_cast<std::size_t>(columns);
  std::vector<float> total((height + 1) * (width + 1), kFar);
  std::vector<std::uint8_t> step((height + 1) * (width + 1), column_only);
  const auto at = [&](std::size_t i, std::size_t j) { return i * (width + 1) + j; };
  total[0] = 0;
  for (std::size_t i = 1; i <= height; ++i) step[at(i, 0)] = row_only;
  for (std::size_t i = 1; i <= height; ++i) {
    for (std::size_t j = 1; j <= width; ++j) {
      const float diagonal = total[at(i - 1, j - 1)];
      const float above = total[at(i - 1, j)];
      const float before = total[at(i, j - 1)];
      const std::uint8_t from = diagonal < above && diagonal < before ? both
                                : above < diagonal && above < before  ? row_only
                                                                      : column_only;
      step[at(i, j)] = from;
      total[at(i, j)] = cost[(i - 1) * width + (j - 1)] + (from == both       ? diagonal
                                                           : from == row_only ? above
                                                                              : before);
    }
  }
  std::vector<std::int64_t> starts(height, 0);
  for (std::size_t i = height, j = width; i > 0 || j > 0;) {
    if (i > 0) starts[i - 1] = static_cast<std::int64_t>(j) - 1;  // the last to be seen is the first column
    const auto from = step[at(i, j)];
    if (from != column_only) --i;
    if (from != row_only) --j;
  }
  for (auto& start : starts) start = std::max<std::int64_t>(start, 0);
  return starts;
}

std::vector<std::int64_t> token_starts(const WordAttention& attention, std::int64_t used, std::int64_t front,
                                       std::int64_t back) {
  used = std::min(used, attention.columns);
  const std::int64_t wanted = attention.rows - front - back;
  const bool fits = attention.heads > 0 && wanted > 0 && used > 0 &&
                    static_cast<std::int64_t>(attention.weights.size()) ==
                        attention.heads * attention.rows * attention.columns;
  if (!fits) throw_internal("the alignment heads' attention has not the shape that it states");
  std::vector<double> sums(static_cast<std::size_t>(wanted * used));
  for (std::int64_t head = 0; head < attention.heads; ++head) {
    const auto smooth = median_filter(scaled_head(attention, head, used), used, kMedianWidth);
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] += static_cast<double>(smooth[static_cast<std::size_t>(front * used) + i]);
  }
  std::vector<float> cost(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i)
    cost[i] = -static_cast<float>(sums[i] / static_cast<double>(attention.heads));
  return warped_starts(cost, wanted, used);
}

std::vector<WordTokens> words_of(std::span<const std::int32_t> ids, const SpeechTokens& tokens,
                                 std::string_view language, const DecodeTokens& decode) {
  auto pieces = character_words(ids, decode);
  if (is_spaceless(language)) return pieces;
  std::vector<WordTokens> words;
  for (auto& piece : pieces) {
    const bool special = piece.tokens.front() >= tokens.end;
    const bool punctuation = within(stripped(piece.word), kAsciiPunctuation);
    if (special || punctuation || piece.word.starts_with(' ') || words.empty()) {
      words.push_back(std::move(piece));
    } else {
      words.back().word += piece.word;
      words.back().tokens.insert(words.back().tokens.end(), piece.tokens.begin(), piece.tokens.end());
    }
  }
  return words;
}

std::vector<TimedWord> timed_words(std::span<const std::int32_t> ids, std::span<const std::int64_t> starts,
                                   std::span<const double> probabilities, const SpeechTokens& tokens,
                                   std::string_view language, const DecodeTokens& decode) {
  if (starts.size() != ids.size() + 1 || probabilities.size() != ids.size())
    throw_internal("the words' tokens, times and probabilities do not fit together");
  std::vector<TimedWord> timed;
  std::size_t first = 0;
  for (auto& word : words_of(ids, tokens, language, decode)) {
    const std::size_t end = first + word.tokens.size();
    double sum = 0;
    for (std::size_t i = first; i < end; ++i) sum += probabilities[i];
    timed.push_back(
        {std::move(word.word), word.tokens.size(), static_cast<double>(starts[first]) / kColumnsASecond,
         static_cast<double>(starts[end]) / kColumnsASecond, sum / static_cast<double>(word.tokens.size())});
    first = end;
  }
  return timed;
}

void merge_punctuation(std::vector<TimedWord>& words, std::string_view prepended, std::string_view appended) {
  const auto empty = [](TimedWord& word) {
    word.word.clear();
    word.tokens = 0;
  };
  // From the end: a mark goes in front of the word that follows it.
  for (std::size_t i = words.size(), following = words.size(); i-- > 0;) {
    if (following < words.size() && words[i].word.starts_with(' ') &&
        within(stripped(words[i].word), prepended)) {
      words[following].word = words[i].word + words[following].word;
      words[following].tokens += words[i].tokens;
      empty(words[i]);
    } else {
      following = i;
    }
  }
  for (std::size_t i = 1, previous = 0; i < words.size(); ++i) {
    if (!words[previous].word.ends_with(' ') && within(words[i].word, appended)) {
      words[previous].word += words[i].word;
      words[previous].tokens += words[i].tokens;
      empty(words[i]);
    } else {
      previous = i;
    }
  }
}

void place_words(std::span<TranscriptSegment> segments, std::vector<TimedWord> words,
                 const SpeechTokens& tokens, double last_speech, const WordOptions& options) {
  if (segments.empty()) return;
  std::vector<double> lengths;
  for (const auto& word : words)
    if (word.end != word.start) lengths.push_back(word.end - word.start);
  const double usual = std::min(kLongestUsual, median_of(lengths));
  const double longest = usual * 2;
  if (!lengths.empty()) shorten_at_sentences(words, longest);
  merge_punctuation(words, options.prepend, options.append);

  const double offset = static_cast<double>(segments.front().seek) / 100;
  std::size_t next = 0;
  for (auto& segment : segments) {
    const auto wanted = static_cast<std::size_t>(
        std::ranges::count_if(segment.tokens, [&](std::int32_t id) { return id < tokens.end; }));
    segment.words.clear();
    for (std::size_t taken = 0; next < words.size() && taken < wanted; ++next) {
      const auto& word = words[next];
      taken += word.tokens;
      if (word.word.empty()) continue;
      segment.words.push_back(
          {word.word, hundredths(offset + word.start), hundredths(offset + word.end), word.probability});
    }
    settle_edges(segment, last_speech, usual, longest);
    if (!segment.words.empty()) last_speech = segment.end;
  }
}

}  // namespace diffuse

#pragma once
// When each word was said: the cross-attention of a model's alignment heads, laid beside time by dynamic time
// warping. Behaviour: openai-whisper's word timestamps.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/transcript.hpp"
#include "text/speech_tokens.hpp"

namespace diffuse {

inline constexpr std::string_view kPrependPunctuation = "\"'“¿([{-";
inline constexpr std::string_view kAppendPunctuation = "\"'.。,，!！?？:：”)]}、";

// The text of ids with special tokens written out: Tokenizer::decode(ids, false).
using DecodeTokens = std::function<std::string(std::span<const std::int32_t>)>;

// Median over `width` (odd) neighbours along each row, the ends mirrored. `rows` is [count, length];
// unchanged where length <= width / 2.
std::vector<float> median_filter(std::span<const float> rows, std::int64_t length, std::int64_t width);

// The cheapest monotone path through `cost` [rows, columns]: for each row its first column.
std::vector<std::int64_t> warped_starts(std::span<const float> cost, std::int64_t rows, std::int64_t columns);

// Where in the sound each token was said. Returns for each row its first column.
struct WordAttention {
  std::vector<float> weights;  // [heads, rows, columns] probabilities; a row a token, a column 20 ms
  std::int64_t heads = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
// Only the first `used` columns hold sound; `front` rows before and `back` rows behind what is wanted take
// part in the scaling alone. Each row is scaled to sum to 1 over the used columns, each column to mean 0 and
// deviation 1 over the rows; then the median filter of width 7, the mean over the heads, and the path.
std::vector<std::int64_t> token_starts(const WordAttention& attention, std::int64_t used, std::int64_t front,
                                       std::int64_t back);

struct WordTokens {
  std::string word;
  std::vector<std::int32_t> tokens;
  bool operator==(const WordTokens&) const = default;
};

// Tokens -> words, at spaces, or at every character where a language has no spaces. A character that several
// tokens make up is not cut; punctuation stands alone (merge_punctuation puts it back); special tokens too.
std::vector<WordTokens> words_of(std::span<const std::int32_t> ids, const SpeechTokens& tokens,
                                 std::string_view language, const DecodeTokens& decode);

struct TimedWord {
  std::string word;
  std::size_t tokens = 0;  // how many it has; 0 for one that was merged into its neighbour
  double start = 0;        // seconds from the window's begin
  double end = 0;
  double probability = 0;
};

// `starts`: of the token in front of the text and of each text token (token_starts with `front` the tokens of
// the start, `back` the end's): ids + 1 of them. `probabilities`: of each text token.
std::vector<TimedWord> timed_words(std::span<const std::int32_t> ids, std::span<const std::int64_t> starts,
                                   std::span<const double> probabilities, const SpeechTokens& tokens,
                                   std::string_view language, const DecodeTokens& decode);

void merge_punctuation(std::vector<TimedWord>& words, std::string_view prepended, std::string_view appended);

struct WordOptions {
  std::string prepend = std::string(kPrependPunctuation);
  std::string append = std::string(kAppendPunctuation);
};

// Gives the segments of one window their words, and moves the segments' times to them. Words that are far
// longer than the usual one at a sentence's or a pause's edge are shortened. `last_speech`: when the last
// word before this window ended. The segments' tokens of text must be those that `words` were made of, in
// order.
void place_words(std::span<TranscriptSegment> segments, std::vector<TimedWord> words,
                 const SpeechTokens& tokens, double last_speech, const WordOptions& options);

}  // namespace diffuse

#include "text/speech_words.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"
#include "tests/text/speech_support.hpp"

namespace diffuse::test {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(SpeechWords, median_is_that_of_transformers) {
  const auto& one = speech_fixture()["median"];
  const auto rows = list_of<float>(one["rows"]);
  EXPECT_EQ(median_filter(rows, one["length"], one["width"]), list_of<float>(one["result"]));
  EXPECT_EQ(median_filter(std::vector<float>{3, 1, 2}, 3, 7), (std::vector<float>{3, 1, 2}));
}

TEST(SpeechWords, paths_are_those_of_transformers) {
  for (const auto& one : speech_fixture()["warps"])
    EXPECT_EQ(warped_starts(list_of<float>(one["cost"]), one["rows"], one["columns"]),
              list_of<std::int64_t>(one["starts"]));
}

TEST(SpeechWords, tokens_start_where_openai_says) {
  const auto& one = speech_fixture()["attention"];
  WordAttention attention = {list_of<float>(one["weights"]), one["heads"], one["rows"], one["columns"]};
  EXPECT_EQ(token_starts(attention, one["used"], one["front"], 1), list_of<std::int64_t>(one["starts"]));
  attention.weights.pop_back();
  EXPECT_THROW(token_starts(attention, 10, 1, 1), Error);
}

TEST(SpeechWords, rows_that_say_nothing_are_no_harm) {
  const WordAttention attention = {std::vector<float>(2 * 4 * 20, 0.0F), 2, 4, 20};
  EXPECT_EQ(token_starts(attention, 20, 1, 1).size(), 2U);
}

TEST(SpeechWords, are_split_as_openai_does) {
  for (const auto& one : speech_fixture()["words"]) {
    const auto words = words_of(list_of<std::int32_t>(one["ids"]), small_tokens(),
                                one["language"].get<std::string>(), small_decode);
    ASSERT_EQ(words.size(), one["words"].size());
    for (std::size_t i = 0; i < words.size(); ++i) {
      EXPECT_EQ(words[i].word, one["words"][i].get<std::string>());
      EXPECT_EQ(words[i].tokens, list_of<std::int32_t>(one["tokens"][i]));
    }
  }
}

TEST(SpeechWords, punctuation_goes_where_openai_puts_it) {
  for (const auto& one : speech_fixture()["merge"]) {
    std::vector<TimedWord> words;
    for (const auto& word : one["words"]) words.push_back({word.get<std::string>(), 1});
    merge_punctuation(words, kPrependPunctuation, kAppendPunctuation);
    for (std::size_t i = 0; i < words.size(); ++i) {
      EXPECT_EQ(words[i].word, one["merged"][i].get<std::string>());
      EXPECT_EQ(words[i].tokens, one["tokens"][i].get<std::size_t>());
    }
  }
}

TEST(SpeechWords, times_and_probabilities_are_of_their_tokens) {
  // " dog" "s" " cat": three tokens, two words
  const Ids ids = {7, 8, 1};
  const std::vector<std::int64_t> starts = {5, 10, 20, 40};
  const std::vector<double> probabilities = {0.5, 1, 0.25};
  const auto words = timed_words(ids, starts, probabilities, small_tokens(), "en", small_decode);
  ASSERT_EQ(words.size(), 2U);
  EXPECT_EQ(words[0].word, " dogs");
  EXPECT_EQ(words[0].start, 0.1);
  EXPECT_EQ(words[0].end, 0.4);
  EXPECT_EQ(words[0].probability, 0.75);
  EXPECT_EQ(words[1].end, 0.8);
  EXPECT_THROW(
      timed_words(ids, std::vector<std::int64_t>{1, 2}, probabilities, small_tokens(), "en", small_decode),
      Error);
}

}  // namespace
}  // namespace diffuse::test

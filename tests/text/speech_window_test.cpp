#include "text/speech_window.hpp"

#include <gmock/gmock.h>

#include "tests/text/speech_support.hpp"
#include "text/speech_beams.hpp"

namespace diffuse::test {
namespace {

using testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

TEST(SpeechWindow, compression_is_that_of_python) {
  for (const auto& one : speech_fixture()["ratios"])
    EXPECT_EQ(compression_ratio(one[0].get<std::string>()), one[1].get<double>()) << one[0];
  EXPECT_EQ(compression_ratio(""), 0);
}

TEST(SpeechWindow, average_counts_the_end) {
  EXPECT_EQ(average_logprob(-6, 2), -2);
  EXPECT_EQ(average_logprob(-1, 0), -1);
}

TEST(SpeechWindow, is_judged_by_its_scores) {
  const FallbackLimits limits;
  const auto verdict = [&](double logprob, double ratio, double no_speech, bool last = false) {
    return judge({logprob, ratio, no_speech}, limits, last);
  };
  EXPECT_EQ(verdict(-0.5, 1, 0.1), WindowVerdict::keep);
  EXPECT_EQ(verdict(-0.5, 1, 0.9), WindowVerdict::keep);  // sure of itself: not silent
  EXPECT_EQ(verdict(-1.5, 1, 0.1), WindowVerdict::retry);
  EXPECT_EQ(verdict(-0.5, 3, 0.1), WindowVerdict::retry);
  EXPECT_EQ(verdict(-1.5, 3, 0.9), WindowVerdict::silent);
  EXPECT_EQ(verdict(-1.5, 1, 0.1, true), WindowVerdict::keep);
  EXPECT_EQ(verdict(-1.5, 1, 0.9, true), WindowVerdict::silent);
  EXPECT_EQ(verdict(-1.0, 2.4, 0.6), WindowVerdict::keep);  // the limits themselves are fine
  EXPECT_EQ(judge({-9, 9, 0.9}, {{}, {}, {}}, false), WindowVerdict::keep);
  EXPECT_EQ(judge({-9, 9, 0.9}, {{}, {}, 0.6}, false),
            WindowVerdict::silent);  // without a limit nothing is sure
}

WindowCut cut(const Ids& chosen, std::int64_t frames = 3000) {
  return cut_window(chosen, small_tokens(), frames);
}

TEST(SpeechWindow, is_cut_at_its_pairs) {
  // 0.00 text 1.00 | 1.00 text 2.00 | 2.00 text
  const auto two = cut({30, 1, 80, 80, 2, 130, 130, 3});
  EXPECT_THAT(two.segments, ElementsAre(CutSegment{0, 3, 0, 1}, CutSegment{3, 6, 1, 2}));
  EXPECT_EQ(two.advance, 200);
  EXPECT_EQ(two.said, 7U);  // with the second 2.00, as in transformers' sequences
  EXPECT_FALSE(two.to_the_end);
}

TEST(SpeechWindow, a_single_timestamp_at_the_end_ends_it) {
  const auto single = cut({30, 1, 80, 80, 2, 130}, 2500);
  EXPECT_THAT(single.segments, ElementsAre(CutSegment{0, 3, 0, 1}, CutSegment{3, 6, 1, 2}));
  EXPECT_TRUE(single.to_the_end);
  EXPECT_EQ(single.advance, 2500);
  EXPECT_EQ(single.said, 6U);
  const auto alone = cut({30, 1, 130}, 2500);
  EXPECT_THAT(alone.segments, ElementsAre(CutSegment{0, 3, 0, 2}));
  EXPECT_EQ(alone.advance, 2500);
}

TEST(SpeechWindow, without_pairs_is_one_segment) {
  EXPECT_THAT(cut({30, 1, 2}, 1234).segments, ElementsAre(CutSegment{0, 3, 0, 12.34}));
  EXPECT_THAT(cut({40, 1, 2}, 1234).segments, ElementsAre(CutSegment{0, 3, 0, 10 * 0.02}));
  EXPECT_THAT(cut({1, 2}, 100).segments, ElementsAre(CutSegment{0, 2, 0, 1}));
  EXPECT_THAT(cut({}, 100).segments, ElementsAre(CutSegment{0, 0, 0, 1}));
  EXPECT_EQ(cut({}, 100).advance, 100);
}

TEST(SpeechWindow, always_goes_on) {
  EXPECT_EQ(cut({30, 30, 1}, 700).advance, 700);
}

// ---- beams

constexpr std::int32_t kEnd = 3;

// What the last slice says of rows of probabilities to a search of so many beams.
std::vector<std::vector<TokenLogprob>> rows(std::int32_t beams, const std::vector<std::vector<double>>& all) {
  std::vector<std::vector<TokenLogprob>> likeliest;
  SamplingScratch scratch;
  for (const auto& probabilities : all) {
    std::vector<float> logits;
    for (const auto p : probabilities) logits.push_back(p > 0 ? static_cast<float>(std::log(p)) : -INFINITY);
    likeliest.push_back(top_logprobs(logits, beams + 1, scratch));
  }
  return likeliest;
}

TEST(BeamSearch, keeps_the_likeliest_sequences) {
  BeamSearch search(2, 1, kEnd);
  EXPECT_EQ(search.rows(), 1U);
  EXPECT_THAT(search.advance(rows(2, {{0.5, 0.3, 0.1, 0.1}})), ElementsAre(0U, 0U));
  ASSERT_EQ(search.rows(), 2U);
  EXPECT_EQ(search.live()[0].tokens, Ids{0});
  EXPECT_EQ(search.live()[1].tokens, Ids{1});
  // From 0: 0.5 x 0.3 twice at most; from 1: 0.3 x 0.9 for token 2.
  EXPECT_THAT(search.advance(rows(2, {{0.4, 0.3, 0.2, 0.1}, {0.02, 0.03, 0.9, 0.05}})), ElementsAre(1U, 0U));
  EXPECT_EQ(search.live()[0].tokens, (Ids{1, 2}));
  EXPECT_EQ(search.live()[1].tokens, (Ids{0, 0}));
  EXPECT_NEAR(search.live()[0].logprob, std::log(0.27), 1e-6);
}

TEST(BeamSearch, ends_when_enough_are_finished) {
  BeamSearch search(2, 1, kEnd);
  search.advance(rows(2, {{0.4, 0.1, 0.1, 0.4}}));
  EXPECT_FALSE(search.finished());
  search.advance(rows(2, {{0.1, 0.1, 0.1, 0.7}, {0.3, 0.3, 0.3, 0.1}}));
  EXPECT_TRUE(search.finished());
  const auto all = search.candidates();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].tokens, Ids{});
  EXPECT_EQ(all[1].tokens, Ids{0});
  EXPECT_NEAR(all[1].logprob, std::log(0.28), 1e-6);
}

TEST(BeamSearch, patience_waits_for_more) {
  BeamSearch search(2, 2, kEnd);
  search.advance(rows(2, {{0.4, 0.1, 0.1, 0.4}}));
  search.advance(rows(2, {{0.1, 0.1, 0.1, 0.7}, {0.3, 0.3, 0.3, 0.1}}));
  EXPECT_FALSE(search.finished());
}

TEST(BeamSearch, unfinished_ones_fill_up) {
  BeamSearch search(3, 1, kEnd);
  search.advance(rows(3, {{0.5, 0.3, 0.2, 0}}));
  const auto all = search.candidates();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].tokens, Ids{0});
}

TEST(BeamSearch, nothing_but_the_end_ends_it) {
  BeamSearch search(2, 1, kEnd);
  EXPECT_THAT(search.advance(rows(2, {{0, 0, 0, 1}})), ElementsAre());
  EXPECT_TRUE(search.finished());
  EXPECT_EQ(search.candidates().size(), 1U);
}

TEST(BeamSearch, ends_with_what_was_said_where_nothing_is_left) {
  const std::vector<std::vector<TokenLogprob>> nothing(2);
  BeamSearch search(2, 1, kEnd);
  EXPECT_THAT(search.advance(std::span(nothing).first(1)), ElementsAre());
  EXPECT_TRUE(search.finished());
  ASSERT_EQ(search.candidates().size(), 1U);
  EXPECT_TRUE(search.candidates()[0].tokens.empty());

  BeamSearch later(2, 1, kEnd);
  later.advance(rows(2, {{0.6, 0.4, 0, 0}}));
  EXPECT_THAT(later.advance(nothing), ElementsAre());
  EXPECT_TRUE(later.finished());
  ASSERT_EQ(later.candidates().size(), 2U);
  EXPECT_EQ(later.candidates()[0].tokens, Ids{0});
}

TEST(BestOf, ranks_by_the_mean_or_the_penalty) {
  const std::vector<ScoredTokens> two = {{{1, 1}, -2}, {{1, 1, 1, 1}, -3}};
  EXPECT_EQ(best_of(two, std::nullopt), 1U);
  EXPECT_EQ(best_of(two, 0), 0U);  // the sum
  EXPECT_EQ(best_of(two, 1), 0U);  // 2 / (7/6) = 1.71 against 3 / (9/6) = 2
  EXPECT_EQ(best_of(std::vector<ScoredTokens>{{{1}, -1}, {{2}, -1}}, std::nullopt), 0U);
  EXPECT_EQ(best_of(std::vector<ScoredTokens>{{{}, -1}, {{2}, -9}}, std::nullopt), 1U);
  EXPECT_EQ(best_of(std::vector<ScoredTokens>{{{}, -1}}, std::nullopt), 0U);
}

}  // namespace
}  // namespace diffuse::test

#include "text/stop.hpp"

#include <gtest/gtest.h>

namespace diffuse {
namespace {

struct Outcome {
  std::string text;
  std::string found;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  std::string text;
  for (const auto& piece : pieces) text += matcher.push(piece);
  text += matcher.finish();
  EXPECT_EQ(matcher.stopped(), !matcher.found().empty());
  return {text, matcher.found()};
}

TEST(Stop, CutsBeforeTheString) {
  EXPECT_EQ(run({"END"}, {"some END more"}), (Outcome{"some ", "END"}));
  EXPECT_EQ(run({"END"}, {"some E", "N", "D", " more"}), (Outcome{"some ", "END"}));
  EXPECT_EQ(run({"END"}, {"some EN"}), (Outcome{"some EN", ""}));
  EXPECT_EQ(run({}, {"a", "b"}), (Outcome{"ab", ""}));
}

TEST(Stop, TakesTheOneThatIsCompleteFirst) {
  EXPECT_EQ(run({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", "bc"}));
  EXPECT_EQ(run({"c", "abc"}, {"xabc"}), (Outcome{"x", "abc"}));  // at the same byte: the longer
}

TEST(Stop, FallsBackWithinTheString) {
  EXPECT_EQ(run({"aab"}, {"aaab"}), (Outcome{"a", "aab"}));
  EXPECT_EQ(run({"ababc"}, {"abababc!"}), (Outcome{"ab", "ababc"}));
}

TEST(Stop, GivesTextOutAsSoonAsItIsCertain) {
  StopMatcher matcher({"\n\nUser:"});
  EXPECT_EQ(matcher.push("Hi"), "Hi");
  EXPECT_EQ(matcher.push("\n"), "");
  EXPECT_EQ(matcher.push("\nU"), "");
  EXPECT_EQ(matcher.push("x"), "\n\nUx");
  EXPECT_EQ(matcher.push("\n\nUser:"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(Stop, SaysTheSameWhereverTheTextIsCut) {
  const std::string text = "aabaabaaabb aab\xE2\x82\xAC zzz";
  const std::vector<std::string> stops = {"aaab", "\xE2\x82\xAC z", "baaa"};
  const auto whole = run(stops, {text});
  EXPECT_EQ(whole, (Outcome{"aabaa", "baaa"}));
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second)
      EXPECT_EQ(run(stops, {text.substr(0, first), text.substr(first, second - first), text.substr(second)}),
                whole);
  }
}

TEST(Eos, IsASet) {
  const EosSet eos({5, 2, 5});
  EXPECT_EQ(eos.ids(), (std::vector<std::int32_t>{2, 5}));
  EXPECT_TRUE(eos.contains(2));
  EXPECT_FALSE(eos.contains(3));
  EXPECT_FALSE(EosSet().contains(0));
}

}  // namespace
}  // namespace diffuse

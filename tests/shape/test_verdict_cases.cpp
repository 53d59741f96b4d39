// Every case of tests/data/verdicts: config files of real families with the answers read off their built
// modules.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "shape/verdict.hpp"

namespace diffuse {
namespace {

struct Case {
  std::string name;
  nlohmann::json answer;
};

std::vector<Case> load_cases() {
  std::vector<Case> cases;
  for (const auto& entry : std::filesystem::directory_iterator(DIFFUSE_TEST_DATA "/verdicts")) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    cases.push_back({entry.path().stem().string(), nlohmann::json::parse(file)});
  }
  std::ranges::sort(cases, {}, &Case::name);
  return cases;
}

const std::map<std::string, std::string>& refusals_in_words() {
  static const std::map<std::string, std::string> words = {{"encoder alone", "encoder-alone"},
                                                           {"remote code", "remote-code"},
                                                           {"recurrent", "recurrent"},
                                                           {"U-Net: skips cross resolutions", "u-net"}};
  return words;
}

TEST(VerdictCases, EveryCaseIsJudgedRight) {
  const std::vector<Case> cases = load_cases();
  ASSERT_GE(cases.size(), 161u);
  for (const auto& [name, answer] : cases) {
    SCOPED_TRACE(name);
    const nlohmann::json said = to_json(judge(answer.at("config")));
    EXPECT_FALSE(said.at("reason").get<std::string>().empty());
    if (!answer.at("verdict").is_null()) {
      EXPECT_EQ(said.at("verdict"), answer.at("verdict"));
      const nlohmann::json refusal =
          answer.contains("because") ? nlohmann::json(refusals_in_words().at(answer.at("because"))) : nullptr;
      EXPECT_EQ(said.at("refusal"), refusal);
      EXPECT_EQ(said.at("recurrent"), refusal == "recurrent");
    }
    if (answer.contains("shape")) {
      EXPECT_EQ(said.at("shape"), answer.at("shape"));
    }
    if (answer.contains("depth")) {
      EXPECT_EQ(said.at("depth"), answer.at("depth"));
    }
    if (answer.contains("stacks") && answer.at("stacks").size() > 1) {
      EXPECT_EQ(said.at("stacks"), answer.at("stacks"));
    }
  }
}

// What a hub file leaves out must not turn a verdict around.
TEST(VerdictCases, NullsAndFalsesSayNothing) {
  for (const auto& [name, answer] : load_cases()) {
    SCOPED_TRACE(name);
    nlohmann::json config = answer.at("config");
    std::erase_if(config.get_ref<nlohmann::json::object_t&>(),
                  [](const auto& entry) { return entry.second.is_null() || entry.second == false; });
    const Verdict whole = judge(answer.at("config"));
    const Verdict sparse = judge(config);
    EXPECT_EQ(sparse.refusal, whole.refusal);
    EXPECT_EQ(sparse.shape, whole.shape);
    EXPECT_EQ(sparse.depth, whole.depth);
    EXPECT_EQ(sparse.depth_at, whole.depth_at);
  }
}

void judge_with_junk(nlohmann::json& root, nlohmann::json& part) {
  const nlohmann::json junk[] = {nullptr,
                                 true,
                                 -1,
                                 1e308,
                                 "\"\\\u00fc",
                                 nlohmann::json::array({nlohmann::json::object()}),
                                 {{"num_hidden_layers", {{"a", 1}}}}};
  for (auto& [key, value] : part.items()) {
    nlohmann::json kept = value;
    for (const nlohmann::json& other : junk) {
      value = other;
      const Verdict verdict = judge(root);
      EXPECT_EQ(verdict.verdict == Outcome::runs, verdict.refusal == Refusal::none) << key;
      EXPECT_TRUE(verdict.verdict != Outcome::runs || (verdict.depth && *verdict.depth > 0)) << key;
      EXPECT_NO_THROW((void)to_json(verdict).dump()) << key;
    }
    value = std::move(kept);
    if (value.is_object()) judge_with_junk(root, value);
  }
}

TEST(VerdictCases, JunkInAnyPlaceIsAnsweredAndNeverThrown) {
  constexpr size_t kEach = 5;  // a sample of the cases: each is judged hundreds of times
  const std::vector<Case> cases = load_cases();
  for (size_t i = 0; i < cases.size(); i += kEach) {
    SCOPED_TRACE(cases[i].name);
    nlohmann::json config = cases[i].answer.at("config");
    judge_with_junk(config, config);
  }
}

}  // namespace
}  // namespace diffuse

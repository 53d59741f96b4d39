#include "text/prompt_clean.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/json.hpp"

namespace diffuse {
namespace {

TEST(PromptClean, AsTheReferenceHasIt) {
  const auto cases =
      read_json(std::filesystem::path(DIFFUSE_TEST_DATA) / "text" / "prompts" / "cleaned.json");
  ASSERT_GT(cases.size(), 400U);
  for (const auto& each : cases) {
    const auto text = each[0].get<std::string>();
    EXPECT_EQ(cleaned_prompt(text), each[1].get<std::string>()) << each[0].dump();
  }
}

}  // namespace
}  // namespace diffuse

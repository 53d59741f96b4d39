#include "core/json.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.hpp"

namespace diffuse {
namespace {

ExitCode code_of(const std::string& text, DuplicateKeys keys = DuplicateKeys::last_wins) {
  try {
    parse_json(text, "text", keys);
  } catch (const Error& problem) {
    EXPECT_NE(std::string(problem.what()).find("text"), std::string::npos) << problem.what();
    return problem.code();
  }
  return ExitCode::done;
}

TEST(Json, RefusesWhatNestsTooDeep) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_EQ(code_of(nested(kMaxJsonDepth)), ExitCode::done);
  EXPECT_EQ(code_of(nested(kMaxJsonDepth + 1)), ExitCode::bad_data);
  EXPECT_EQ(code_of(nested(200000)), ExitCode::bad_data);
}

TEST(Json, RefusesRepeatedKeysWhereAsked) {
  EXPECT_EQ(code_of(R"({"a":1,"a":2})"), ExitCode::done);
  EXPECT_EQ(code_of(R"({"a":1,"a":2})", DuplicateKeys::refuse), ExitCode::bad_data);
  EXPECT_EQ(code_of(R"({"a":{"b":1},"c":{"b":1}})", DuplicateKeys::refuse), ExitCode::done);
  EXPECT_EQ(code_of(R"({"a":{"b":1,"b":2}})", DuplicateKeys::refuse), ExitCode::bad_data);
}

TEST(Json, RefusesWhatIsNoJson) {
  for (const auto* text : {"", "{", "{\"a\":}", "[1,]", "nul", "\"\\ud800\"", "\xff"})
    EXPECT_EQ(code_of(text), ExitCode::bad_data) << text;
}

TEST(Json, TakesPythonsNamesOfNumbersAsStrings) {
  const auto value =
      parse_json(R"({"a": [0.0, Infinity, -Infinity], "NaN": NaN, "b": "no Infinity \" NaN"})", "text");
  EXPECT_EQ(value["a"][1], "Infinity");
  EXPECT_EQ(value["a"][2], "-Infinity");
  EXPECT_EQ(value["NaN"], "NaN");
  EXPECT_EQ(value["b"], "no Infinity \" NaN");
  EXPECT_EQ(code_of("[Infinity1]"), ExitCode::bad_data);
}

TEST(Json, ReadsAFileOnlyUpToItsBound) {
  const auto path = std::filesystem::path(testing::TempDir()) / "bounded.json";
  std::ofstream(path) << "[1, 2, 3]";
  EXPECT_EQ(read_json(path).size(), 3U);
  EXPECT_THROW(read_json(path, 4), Error);
  EXPECT_THROW(read_json(path.string() + ".missing"), Error);
  EXPECT_THROW(read_json(testing::TempDir()), Error);
}

}  // namespace
}  // namespace diffuse

#pragma once
// What the tests of src/text share.

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "core/error.hpp"
#include "core/json.hpp"

namespace diffuse {

inline std::filesystem::path text_data(const std::string& name) {
  return std::filesystem::path(DIFFUSE_TEST_DATA) / "text" / name;
}

// The message of the error that `call` throws; checks its code and that it is one line.
inline std::string error_of(ExitCode code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace diffuse

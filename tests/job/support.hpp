#pragma once
// What this folder's tests share.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "job/job.hpp"
#include "job/result.hpp"

namespace diffuse::test {

// A fresh folder that goes with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void write_bytes(const std::filesystem::path& path, std::string_view bytes);

// One request of each kind, texts in several scripts, own generate and ids.
Job sample_job();
// `requests` of them: with several samples, log-probabilities, traces, a bad and an unfinished one among
// them.
Result sample_result(std::size_t requests);

// The values as bytes: equal exactly where everything in them is.
std::string bytes_of(const Job& job);
std::string bytes_of(const Result& result);
std::string bytes_of(const RequestResult& request);

// The message of the Error of `code` that `action` throws; a test failure where it throws none or another.
std::string error_of(ExitCode code, const std::function<void()>& action);

// Runs Debian's Python on a script. Returns its standard output; skips the test (and returns nothing) where
// h5py is missing.
bool have_h5py();
std::string run_python(const std::string& script);

}  // namespace diffuse::test

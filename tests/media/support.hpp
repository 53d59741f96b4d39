#pragma once
// Sounds made by formula, and WAV files of them.

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/exact_math.hpp"

namespace diffuse::test {

inline std::vector<float> tone(double hz, std::int32_t rate, double seconds, double loudness = 0.5) {
  std::vector<float> samples(static_cast<std::size_t>(seconds * rate));
  for (std::size_t i = 0; i < samples.size(); ++i)
    samples[i] =
        static_cast<float>(loudness * exact::sin(2 * std::numbers::pi * hz * static_cast<double>(i) / rate));
  return samples;
}

// Uniform within -1 to 1: a linear congruence, so that other programs can make the same.
class Noise {
 public:
  double next() {
    state_ = state_ * 1664525U + 1013904223U;
    return static_cast<double>(state_ >> 8) / 8388608.0 - 1;
  }

 private:
  std::uint32_t state_ = 1;
};

inline std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

// A WAV file's bytes. `kind`: 1 whole numbers, 3 floating point; `data` as it stands in the file.
inline std::string wav(int kind, int bits, int channels, std::uint32_t rate, const std::string& data) {
  const auto frame = static_cast<std::uint64_t>(bits / 8 * channels);
  return "RIFF" + little(36 + data.size(), 4) + "WAVEfmt " + little(16, 4) +
         little(static_cast<std::uint64_t>(kind), 2) + little(static_cast<std::uint64_t>(channels), 2) +
         little(rate, 4) + little(rate * frame, 4) + little(frame, 2) +
         little(static_cast<std::uint64_t>(bits), 2) + "data" + little(data.size(), 4) + data;
}

inline std::string floats(const std::vector<float>& samples) {
  std::string data(samples.size() * sizeof(float), '\0');
  if (!samples.empty()) std::memcpy(data.data(), samples.data(), data.size());
  return data;
}

inline std::string shorts(const std::vector<std::int16_t>& samples) {
  std::string data;
  for (const auto sample : samples) data += little(static_cast<std::uint16_t>(sample), 2);
  return data;
}

// A fresh folder that goes with the object.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "diffuse-media-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw_errno("making a folder for a test");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // Writes a file and returns its path.
  std::filesystem::path put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The message of the Error of `code` that `action` throws; empty where it throws none or another.
inline std::string error_of(ExitCode code, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code() == code ? error.what() : "";
  }
  return "";
}

}  // namespace diffuse::test

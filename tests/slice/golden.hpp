#pragma once
// The golden cases: small models with what transformers says of them, in golden.safetensors beside the
// weights.
//
// tests/data/golden/ holds them; DIFFUSE_GOLDEN_EXTRA may name more folders of cases (with ':' between them).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "recipe/build.hpp"

namespace diffuse::test {

struct GoldenCase {
  std::string name;
  std::filesystem::path folder;
};

inline void PrintTo(const GoldenCase& golden, std::ostream* out) {
  *out << golden.folder.string();
}

// What a case's stack does beside reading ids and giving logits; each kind has arrays of its own.
enum class GoldenKind : std::uint8_t { plain, reads_encoder, walks_codebooks };

inline GoldenKind kind_of(const std::filesystem::path& folder) {
  const auto golden = read_json(folder / "golden.json");
  if (golden.at("shape") != "encoder memory") return GoldenKind::plain;
  const auto& arrays = golden.at("arrays");
  return arrays.contains("codes.guidance1") ? GoldenKind::walks_codebooks : GoldenKind::reads_encoder;
}

inline std::vector<GoldenCase> golden_cases(GoldenKind kind = GoldenKind::plain) {
  std::vector<std::filesystem::path> roots = {std::filesystem::path(DIFFUSE_TEST_DATA) / "golden"};
  if (const char* extra = std::getenv("DIFFUSE_GOLDEN_EXTRA")) {
    std::stringstream list(extra);
    for (std::string root; std::getline(list, root, ':');) roots.emplace_back(root);
  }
  std::vector<GoldenCase> cases;
  for (const auto& root : roots) {
    std::vector<GoldenCase> found;
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      if (!std::filesystem::exists(entry.path() / "golden.safetensors")) continue;
      if (kind_of(entry.path()) != kind) continue;
      auto name =
          (&root == roots.data() ? "" : root.filename().string() + "_") + entry.path().filename().string();
      std::replace_if(
          name.begin(), name.end(), [](unsigned char letter) { return std::isalnum(letter) == 0; }, '_');
      found.push_back({name, entry.path()});
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    cases.insert(cases.end(), found.begin(), found.end());
  }
  return cases;
}

inline GoldenCase golden_case(const std::string& name) {
  return {name, std::filesystem::path(DIFFUSE_TEST_DATA) / "golden" / name};
}

// The trained model that the project carries.
inline std::filesystem::path demo_model() {
  return std::filesystem::path(DIFFUSE_TEST_DATA).parent_path().parent_path() / "demo" / "lm";
}

// A model as the commands open it.
struct TestModel {
  explicit TestModel(const std::filesystem::path& folder, LoadMode mode = LoadMode::mmap)
      : checkpoint(Checkpoint::open(folder, mode)),
        recipe(build_recipe(checkpoint.config(), checkpoint.headers())) {}
  Checkpoint checkpoint;
  Recipe recipe;
};

// A reference array; of one dimension, it is a row.
struct GoldenFloats {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<float> values;

  const float* row(std::int64_t index) const { return values.data() + index * cols; }
  float largest() const {
    float most = 0;
    for (const auto value : values) most = std::max(most, std::abs(value));
    return most;
  }
};

class Golden {
 public:
  explicit Golden(const std::filesystem::path& folder) {
    std::ifstream file(folder / "golden.safetensors", std::ios::binary);
    std::stringstream all;
    all << file.rdbuf();
    bytes_ = all.str();
    std::uint64_t header = 0;
    if (bytes_.size() < sizeof header)
      throw std::runtime_error("no golden.safetensors in " + folder.string());
    std::memcpy(&header, bytes_.data(), sizeof header);
    arrays_ = Json::parse(bytes_.substr(sizeof header, header));
    data_ = sizeof header + header;
  }

  GoldenFloats floats(const std::string& name) const {
    const auto& entry = typed(name, "F32");
    GoldenFloats out;
    const auto& shape = entry.at("shape");
    out.rows = shape.size() == 1 ? 1 : shape.at(0).get<std::int64_t>();
    out.cols = shape.back();
    out.values = values<float>(entry, static_cast<std::size_t>(out.rows * out.cols));
    return out;
  }

  bool has(const std::string& name) const { return arrays_.contains(name); }

  std::vector<std::int32_t> ids(const std::string& name) const {
    const auto& entry = typed(name, "I64");
    std::size_t count = 1;
    for (const auto& size : entry.at("shape")) count *= size.get<std::size_t>();
    const auto wide = values<std::int64_t>(entry, count);
    return {wide.begin(), wide.end()};
  }

 private:
  const Json& typed(const std::string& name, const std::string& type) const {
    const auto& entry = arrays_.at(name);
    if (entry.at("dtype") != type) throw std::runtime_error(name + " is not " + type);
    return entry;
  }

  template <typename Value>
  std::vector<Value> values(const Json& entry, std::size_t count) const {
    const auto begin = entry.at("data_offsets").at(0).get<std::size_t>();
    const auto end = entry.at("data_offsets").at(1).get<std::size_t>();
    if (end - begin != count * sizeof(Value) || data_ + end > bytes_.size())
      throw std::runtime_error("golden.safetensors: an array does not have its size");
    std::vector<Value> out(count);
    std::memcpy(out.data(), bytes_.data() + data_ + begin, end - begin);
    return out;
  }

  std::string bytes_;
  Json arrays_;
  std::size_t data_ = 0;
};

inline const std::string kCuda = "cuda";

// What the tests compute on: each SIMD target of the processor, best first, and a CUDA card where there is
// one. Where a card stands in for another, it is all that is tested.
inline std::vector<std::string> processors() {
  std::vector<std::string> names;
#ifndef DIFFUSE_TEST_STANDIN
  names = cpu_simd_targets();
#endif
  if (cuda_device_count() > 0) names.push_back(kCuda);
  return names;
}

inline std::unique_ptr<Backend> make_backend(const std::string& processor, int threads, Compute compute) {
  if (processor == kCuda) return make_cuda_backend({.device = 0, .compute = compute});
  return make_cpu_backend({.threads = threads, .compute = compute, .simd = processor});
}

inline void to_device(Backend& backend, const Buffer& to, const std::vector<float>& values) {
  backend.upload(to.data(), std::as_bytes(std::span(values)));
}

inline std::vector<float> from_device(Backend& backend, const float* from, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  backend.download(std::as_writable_bytes(std::span(values)), reinterpret_cast<const std::byte*>(from));
  return values;
}

}  // namespace diffuse::test

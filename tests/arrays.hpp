#pragma once
// The arrays of a small safetensors file of our own, for tests that hold something against a reference.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/json.hpp"

namespace diffuse::test {

struct FloatArray {
  std::vector<std::size_t> shape;
  std::vector<float> values;
};

class Arrays {
 public:
  explicit Arrays(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    std::uint64_t header = 0;
    if (bytes_.size() < sizeof header) throw std::runtime_error("cannot read " + path.string());
    std::memcpy(&header, bytes_.data(), sizeof header);
    entries_ = Json::parse(bytes_.substr(sizeof header, header));
    data_ = sizeof header + header;
  }

  bool has(const std::string& name) const { return entries_.contains(name); }
  const Json& entries() const { return entries_; }

  FloatArray floats(const std::string& name) const {
    const auto& entry = entries_.at(name);
    if (entry.at("dtype") != "F32") throw std::runtime_error(name + " is not F32");
    FloatArray array;
    std::size_t count = 1;
    for (const auto& size : entry.at("shape")) {
      array.shape.push_back(size.get<std::size_t>());
      count *= array.shape.back();
    }
    array.values.resize(count);
    const auto begin = data_ + entry.at("data_offsets").at(0).get<std::size_t>();
    if (begin + count * sizeof(float) > bytes_.size()) throw std::runtime_error(name + " is cut short");
    if (count > 0) std::memcpy(array.values.data(), bytes_.data() + begin, count * sizeof(float));
    return array;
  }

 private:
  std::string bytes_;
  Json entries_;
  std::size_t data_ = 0;
};

}  // namespace diffuse::test

#pragma once
// Reads the tensors of a codec, each once, and keeps account of what was read.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "checkpoint/checkpoint.hpp"

namespace diffuse::codec {

// All must outlive it. The digest of each tensor goes to `hashes`, its bytes are added to `bytes_read`.
class WeightReader {
 public:
  WeightReader(const Checkpoint& checkpoint, Backend& backend, std::map<std::string, std::uint64_t>& hashes,
               std::uint64_t& bytes_read)
      : checkpoint_(checkpoint), backend_(backend), hashes_(hashes), bytes_read_(bytes_read) {}

  // Its elements in the order in which they are stored, whatever their type.
  std::vector<float> floats(const std::string& name);
  // values [rows, cols]
  std::shared_ptr<const PackedMatrix> matrix(const std::vector<float>& values, std::int64_t rows,
                                             std::int64_t cols);

 private:
  const Checkpoint& checkpoint_;
  Backend& backend_;
  std::map<std::string, std::uint64_t>& hashes_;
  std::uint64_t& bytes_read_;
};

}  // namespace diffuse::codec

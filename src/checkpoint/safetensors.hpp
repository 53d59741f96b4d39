#pragma once
// The header of one safetensors file, checked by the rules of the reference
// (github.com/huggingface/safetensors, safetensors/src/tensor.rs, and its README's "Format"):
//     u64 little-endian N; N bytes of JSON: {"__metadata__": {text: text}, name: {"dtype", "shape",
//     "data_offsets": [begin, end)}, …}; the data, to the end of the file.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/open_file.hpp"
#include "checkpoint/tensor_header.hpp"

namespace diffuse {

struct StoredTensor {
  TensorHeader header;
  std::uint64_t offset = 0;  // of its first byte in the file
  std::uint64_t bytes = 0;   // offset + bytes lies inside the file
};

// Throws bad data where a rule is broken, refused for a known type that this build does not read.
std::map<std::string, StoredTensor> read_safetensors_header(const OpenFile& file);

struct OnlyTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
// The tensor of a file that holds one, f32, f16 or bf16, widened to f32. Throws as above, bad data
// where it holds none, several, or one of another type, and I/O.
OnlyTensor read_only_tensor(const std::filesystem::path& path);

}  // namespace diffuse

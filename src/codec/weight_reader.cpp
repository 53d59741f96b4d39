#include "codec/weight_reader.hpp"

#include <span>

#include "core/dtype.hpp"

namespace diffuse::codec {

std::vector<float> WeightReader::floats(const std::string& name) {
  const auto tensor = checkpoint_.read(name);
  const auto type = tensor.header().dtype;
  std::vector<float> values(tensor.bytes().size() / size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = element_as_f32(tensor.bytes().data() + i * size_of(type), type);
  hashes_[name] = content_hash(tensor);
  bytes_read_ += tensor.bytes().size();
  tensor.check_unchanged();
  return values;
}

std::shared_ptr<const PackedMatrix> WeightReader::matrix(const std::vector<float>& values, std::int64_t rows,
                                                         std::int64_t cols) {
  const HostMatrix host = {reinterpret_cast<const std::byte*>(values.data()), DType::f32, rows, cols};
  return backend_.pack(std::span(&host, 1));
}

}  // namespace diffuse::codec
